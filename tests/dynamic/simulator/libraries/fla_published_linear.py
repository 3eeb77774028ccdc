"""Linear attentions of fla-core as its public tests compare them. See ``fla_compare.py``."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fla.utils import device
from fla_compare import F16, F32, Tensors, compare, packed, pieces, rand, randn, split, state


@pytest.fixture(autouse=True)
def _seed(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(42)
    monkeypatch.setenv("TRITON_F32_DEFAULT", "ieee")


def gla_inputs(b: int, t: int, h: int, d: int, dtype: torch.dtype, states: int | None = None) -> Tensors:
    q, k, v = (rand(b, t, h, d, dtype=dtype) for _ in range(3))
    g = F.logsigmoid(rand(b, t, h, d, dtype=dtype))
    return {"q": q, "k": k, "v": v, "gk": g, "h0": rand(states or b, h, d, d)}


def chunk_gla(**xs: Any) -> Any:
    from fla.ops.gla import chunk_gla

    return chunk_gla(g=xs.pop("gk"), **xs)


def test_gla_fused_recurrent() -> None:
    from fla.ops.gla import fused_recurrent_gla
    from fla.ops.gla.naive import naive_recurrent_gla

    compare(state(fused_recurrent_gla), state(naive_recurrent_gla), gla_inputs(1, 63, 1, 64, F32))


@pytest.mark.parametrize("offsets", [[0, 15]])
def test_gla_fused_recurrent_varlen(offsets: list[int]) -> None:
    from fla.ops.gla import fused_recurrent_gla
    from fla.ops.gla.naive import naive_recurrent_gla

    inputs = gla_inputs(1, offsets[-1], 4, 64, F32, len(offsets) - 1)
    compare(state(fused_recurrent_gla, cu_seqlens=packed(offsets)), pieces(state(naive_recurrent_gla), offsets), inputs)


@pytest.mark.parametrize(("b", "t", "h", "d"), [(1, 63, 1, 64)])
def test_gla_chunk(b: int, t: int, h: int, d: int) -> None:
    from fla.ops.gla import fused_recurrent_gla

    compare(state(chunk_gla), state(fused_recurrent_gla), gla_inputs(b, t, h, d, F16))


@pytest.mark.parametrize("first", ["chunk", "fused_recurrent"])
def test_gla_state_v_first(first: str) -> None:
    from fla.ops.gla import fused_recurrent_gla

    f = chunk_gla if first == "chunk" else fused_recurrent_gla

    def turned(h0: torch.Tensor, **xs: torch.Tensor) -> Any:
        o, ht = state(f, state_v_first=True)(h0.transpose(-1, -2).contiguous(), **xs)
        return o, ht.transpose(-1, -2)

    compare(turned, state(f), gla_inputs(2, 256, 4, 64, F32))


@pytest.mark.parametrize("offsets", [[0, 15], [0, 0, 16]])
def test_gla_chunk_varlen(offsets: list[int]) -> None:
    from fla.ops.gla import fused_recurrent_gla

    more = {"cu_seqlens": packed(offsets)}
    inputs = gla_inputs(1, offsets[-1], 4, 64, F16, len(offsets) - 1)
    compare(state(chunk_gla, **more), state(fused_recurrent_gla, **more), inputs)


def simple_inputs(b: int, t: int, d: int, dtype: torch.dtype, gate: float, states: int | None = None) -> Tensors:
    q, k, v = (randn(b, t, 2, d, dtype=dtype) for _ in range(3))
    return {"q": q, "k": k, "v": v, "g": F.logsigmoid(randn(b, t, 2)) / gate, "h0": randn(states or b, 2, d, d)}


@pytest.mark.parametrize("t", [1, 15])
@pytest.mark.parametrize("d", [32])
@pytest.mark.parametrize("scale", [1, 0.1])
@pytest.mark.parametrize("gate", [1, 0.1, 10])
def test_simple_gla_fused_recurrent(t: int, d: int, scale: float, gate: float) -> None:
    from fla.ops.simple_gla import fused_recurrent_simple_gla
    from fla.ops.simple_gla.naive import naive_recurrent_simple_gla

    compare(
        state(fused_recurrent_simple_gla, scale=scale), state(naive_recurrent_simple_gla, scale=scale),
        simple_inputs(2, t, d, F32, gate), err_atol=2e-4,
    )  # fmt: skip


@pytest.mark.parametrize("d", [32])
@pytest.mark.parametrize("scale", [1, 0.1])
def test_simple_gla_fused_recurrent_varlen(d: int, scale: float) -> None:
    from fla.ops.simple_gla import fused_recurrent_simple_gla
    from fla.ops.simple_gla.naive import naive_recurrent_simple_gla

    offsets = split(2, 63)
    compare(
        state(fused_recurrent_simple_gla, scale=scale, cu_seqlens=packed(offsets)),
        pieces(state(naive_recurrent_simple_gla, scale=scale), offsets),
        simple_inputs(1, 63, d, F32, 1, 2), err_atol=2e-4,
    )  # fmt: skip


@pytest.mark.parametrize("t", [1, 15])
@pytest.mark.parametrize("d", [32])
@pytest.mark.parametrize("scale", [1, 0.1])
@pytest.mark.parametrize("gate", [1, 0.1, 10])
def test_simple_gla_chunk(t: int, d: int, scale: float, gate: float) -> None:
    from fla.ops.simple_gla import chunk_simple_gla, fused_recurrent_simple_gla

    inputs = simple_inputs(2, t, d, F16, gate)
    compare(state(chunk_simple_gla, scale=scale), state(fused_recurrent_simple_gla, scale=scale), inputs)


@pytest.mark.parametrize("t", [1, 15])
@pytest.mark.parametrize("d", [32])
@pytest.mark.parametrize("gate", [1, 0.1, 10])
def test_simple_gla_parallel(t: int, d: int, gate: float) -> None:
    from fla.ops.simple_gla import fused_recurrent_simple_gla, parallel_simple_gla

    inputs = simple_inputs(2, t, d, F16, gate)
    del inputs["h0"]
    inputs["g"] = inputs["g"].to(F16)
    compare(
        lambda **xs: parallel_simple_gla(**xs, scale=0.1)[0],
        lambda **xs: fused_recurrent_simple_gla(**xs, scale=0.1)[0],
        inputs, g=0.015,
    )  # fmt: skip


@pytest.mark.parametrize("t", [64, 128])
@pytest.mark.parametrize("d", [32])
def test_linear_attn_fused_recurrent(t: int, d: int) -> None:
    from fla.ops.linear_attn import fused_recurrent_linear_attn
    from fla.ops.linear_attn.naive import naive_chunk_linear_attn

    def naive(**xs: torch.Tensor) -> Any:
        found = naive_chunk_linear_attn(**xs, normalize=False)
        return found[0] if isinstance(found, tuple) else found

    inputs = {n: randn(2, t, 2, d) for n in "qkv"}
    compare(lambda **xs: fused_recurrent_linear_attn(**xs, normalize=False)[0], naive, inputs, o=1e-3, gradients=1e-3)


@pytest.mark.parametrize("t", [64, 128])
@pytest.mark.parametrize("d", [32])
@pytest.mark.parametrize("form", ["chunk", "fused_chunk"])
def test_linear_attn_chunk(t: int, d: int, form: str) -> None:
    from fla.ops import linear_attn

    def exact(**xs: torch.Tensor) -> Any:
        wide = {n: x.to(F32) for n, x in xs.items()}
        o, ht = state(linear_attn.fused_recurrent_linear_attn, normalize=False)(**wide)
        return o.to(F16), ht.to(F16).detach()

    def form_of(**xs: torch.Tensor) -> Any:
        o, ht = state(getattr(linear_attn, f"{form}_linear_attn"), normalize=False)(**xs)
        return o, ht.detach()

    h0 = torch.zeros if form == "fused_chunk" else torch.randn
    inputs = {n: randn(2, t, 2, d, dtype=F16) for n in "qkv"} | {"h0": h0(2, 2, d, d, dtype=F16, device=device)}
    given = inputs.pop("h0")
    compare(lambda **xs: form_of(h0=given, **xs), lambda **xs: exact(h0=given, **xs), inputs, o=1e-3, gradients=1e-3)


@pytest.mark.parametrize("t", [1, 15])
@pytest.mark.parametrize("d", [32])
@pytest.mark.parametrize("ratio", [1, 2])
def test_retention_chunk(t: int, d: int, ratio: int) -> None:
    from fla.ops.retention import chunk_retention, fused_recurrent_retention

    q, k, v, h0 = ((2, t, 2, d), (2, t, 2, d), (2, t, 2, d * ratio), (2, 2, d, d * ratio))
    inputs = {n: randn(*s, dtype=F16) for n, s in {"q": q, "k": k, "v": v, "h0": h0}.items()}
    compare(state(chunk_retention), state(fused_recurrent_retention), inputs)


@pytest.mark.parametrize("d", [32])
def test_retention_chunk_varlen(d: int) -> None:
    from fla.ops.retention import chunk_retention, fused_recurrent_retention

    more = {"cu_seqlens": packed(split(2, 63))}
    inputs = {n: randn(1, 63, 2, d, dtype=F16) for n in "qkv"} | {"h0": randn(2, 2, d, d, dtype=F16)}
    compare(state(chunk_retention, **more), state(fused_recurrent_retention, **more), inputs)


@pytest.mark.parametrize("t", [1, 15])
@pytest.mark.parametrize("d", [32])
@pytest.mark.parametrize("ratio", [1, 2])
def test_retention_parallel(t: int, d: int, ratio: int) -> None:
    from fla.ops.retention import parallel_retention
    from fla.ops.retention.naive import naive_retention

    def naive(**xs: torch.Tensor) -> torch.Tensor:
        return naive_retention(*(xs[n].transpose(1, 2) for n in "qkv")).transpose(1, 2)  # type: ignore[no-any-return]

    inputs = {n: randn(2, t, 2, d * (ratio if n == "v" else 1), dtype=F16) for n in "qkv"}
    compare(lambda **xs: parallel_retention(**xs)[0], naive, inputs)
