"""Delta rules of fla-core as its public tests compare them. See ``fla_compare.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fla_compare import F16, F32, Tensors, compare, packed, pieces, rand, randn, state, unit


@pytest.fixture(autouse=True)
def _seed(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(42)
    monkeypatch.setenv("TRITON_F32_DEFAULT", "ieee")


def test_delta_rule_chunk() -> None:
    from fla.ops.delta_rule import chunk_delta_rule, fused_recurrent_delta_rule

    b, t, h, d = 2, 56, 3, 60
    inputs = {
        "q": randn(b, t, h, d, dtype=F16), "k": unit(randn(b, t, h, d)).to(F16), "v": randn(b, t, h, d, dtype=F16),
        "beta": rand(b, t, h, dtype=F16).sigmoid(), "h0": randn(b, h, d, d),
    }  # fmt: skip
    more = {"scale": d**-0.5}
    compare(state(chunk_delta_rule, **more), state(fused_recurrent_delta_rule, **more), inputs, o=6e-3, gradients=8e-3)


def gated_inputs(b: int, t: int, h: int, hv: int, d: int, dtype: torch.dtype, gate: float) -> Tensors:
    return {
        "q": rand(b, t, h, d, dtype=dtype), "k": rand(b, t, h, d, dtype=dtype), "v": rand(b, t, hv, d, dtype=dtype),
        "beta": rand(b, t, hv).sigmoid(), "g": F.logsigmoid(rand(b, t, hv)) / gate, "h0": torch.zeros(b, hv, d, d),
    }  # fmt: skip


def normed(f: Callable[..., Any], groups: int = 1) -> Callable[..., Any]:
    """``f`` on queries and keys of unit length, each head repeated ``groups`` times."""

    def call(q: torch.Tensor, k: torch.Tensor, **xs: torch.Tensor) -> Any:
        q, k = (unit(x.repeat_interleave(groups, 2)) for x in (q, k))
        return f(q=q, k=k, **xs)

    return call


def test_gated_delta_rule_fused_recurrent() -> None:
    from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule
    from fla.ops.gated_delta_rule.naive import naive_recurrent_gated_delta_rule

    inputs = (
        gated_inputs(1, 63, 1, 1, 64, F32, 1) | {n: randn(1, 63, 1, 64) for n in "qkv"} | {"h0": randn(1, 1, 64, 64)}
    )
    in_kernel = state(fused_recurrent_gated_delta_rule, scale=1, use_qk_l2norm_in_kernel=True)
    naive = normed(state(naive_recurrent_gated_delta_rule, scale=1))
    compare(in_kernel, naive, inputs, o=2e-3, gradients=None)


def test_gated_delta_rule_chunk() -> None:
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    from fla.ops.gated_delta_rule.naive import naive_recurrent_gated_delta_rule

    compare(
        normed(state(chunk_gated_delta_rule, scale=1)), normed(state(naive_recurrent_gated_delta_rule, scale=1)),
        gated_inputs(2, 75, 4, 4, 64, F16, 0.01), gradients=8e-3, beta=0.02, g=0.02,
    )  # fmt: skip


@pytest.mark.parametrize("chunk", [16, 32, 64])
def test_gated_delta_rule_chunk_size(chunk: int) -> None:
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    from fla.ops.gated_delta_rule.naive import naive_recurrent_gated_delta_rule

    compare(
        normed(state(chunk_gated_delta_rule, scale=0.1, chunk_size=chunk)),
        normed(state(naive_recurrent_gated_delta_rule, scale=0.1), 2),
        gated_inputs(1, 64, 2, 4, 32, F32, 1), beta=0.01, g=0.01,
    )  # fmt: skip


def kda_inputs(b: int, t: int, h: int, d: int, dtype: torch.dtype) -> Tensors:
    return {
        **{n: rand(b, t, h, d, dtype=dtype) for n in "qkv"},
        "g": F.logsigmoid(randn(b, t, h, d)), "beta": randn(b, t, h, dtype=dtype).sigmoid(), "h0": randn(b, h, d, d),
    }  # fmt: skip


def test_kda_fused_recurrent() -> None:
    from fla.ops.kda import fused_recurrent_kda
    from fla.ops.kda.naive import naive_recurrent_kda

    f, naive = (normed(state(x, scale=1)) for x in (fused_recurrent_kda, naive_recurrent_kda))
    compare(f, naive, kda_inputs(1, 64, 1, 64, F32), gradients=None)


def test_kda_chunk() -> None:
    from fla.ops.kda import chunk_kda
    from fla.ops.kda.naive import naive_recurrent_kda

    f, naive = (normed(state(x, scale=1)) for x in (chunk_kda, naive_recurrent_kda))
    compare(f, naive, kda_inputs(1, 63, 1, 64, F16), gradients=8e-3, g=0.02, beta=0.02)


def test_kda_chunk_varlen() -> None:
    from fla.ops.kda import chunk_kda
    from fla.ops.kda.naive import naive_recurrent_kda

    offsets, (h, d) = [0, 15], (4, 60)
    inputs = kda_inputs(1, 15, h, d, F16)
    inputs |= {"q": randn(1, 15, h, d, dtype=F16), "k": unit(randn(1, 15, h, d)).to(F16)}
    f, naive = state(chunk_kda, cu_seqlens=packed(offsets).long()), pieces(state(naive_recurrent_kda), offsets)
    compare(f, naive, inputs, gradients=8e-3, g=0.015, beta=0.015)


@pytest.mark.parametrize(("b", "t", "h", "d"), [(1, 2, 2, 12), (1, 32, 2, 16), (2, 64, 4, 32)])
@pytest.mark.parametrize("bias", [False, True])
def test_kda_gate(b: int, t: int, h: int, d: int, bias: bool) -> None:
    from fla.ops.kda.gate import fused_kda_gate, naive_kda_gate

    inputs = {"g": randn(b, t, h, d) * 10, "A_log": torch.log(rand(1, 1, h, 1) * 15 + 1)}
    inputs |= {"dt_bias": randn(h * d)} if bias else {}
    compare(fused_kda_gate, naive_kda_gate, inputs, o=1e-4, gradients=1e-4)


def comba_inputs(b: int, t: int, h: int, d: int, dtype: torch.dtype) -> Tensors:
    return {
        **{n: randn(b, t, h, d, dtype=dtype) for n in "qkpv"},
        "beta": rand(b, t, h, dtype=dtype).sigmoid(), "g": F.logsigmoid(rand(b, t, h)), "h0": randn(b, h, d, d),
    }  # fmt: skip


@pytest.mark.parametrize("form", ["fused_recurrent", "chunk"])
def test_comba(form: str) -> None:
    from fla.ops import comba
    from fla.ops.comba.naive import naive_chunk_comba

    def unit_length(f: Callable[..., Any]) -> Callable[..., Any]:
        def call(p: torch.Tensor, **xs: torch.Tensor) -> Any:
            return normed(state(f, scale=1))(p=unit(p), **xs)

        return call

    operator = getattr(comba, f"{form}_comba")
    f, naive = (unit_length(x) for x in (operator, naive_chunk_comba))
    if form == "chunk":
        inputs = comba_inputs(1, 63, 1, 64, F16) | {"h0": torch.zeros(1, 1, 64, 64)}
        compare(f, naive, inputs, k=8e-3, p=8e-3, g=0.02, h0=8e-3)
    else:
        compare(f, naive, comba_inputs(1, 63, 1, 64, F32), o=2e-3, gradients=None)


@pytest.mark.parametrize("t", [1, 15])
@pytest.mark.parametrize("d", [32])
@pytest.mark.parametrize("form", ["chunk", "fused_recurrent"])
def test_iplr(t: int, d: int, form: str) -> None:
    from fla.ops import generalized_delta_rule
    from fla.ops.generalized_delta_rule.iplr.naive import iplr_recurrence

    def naive(h0: torch.Tensor, **xs: torch.Tensor) -> Any:
        # the naive function scales by the width itself and puts heads first
        q, k, v, a, b = (xs[n].float().transpose(1, 2) for n in "qkvab")
        o, ht = iplr_recurrence(q * (0.25 * d**0.5), k, v, a, b, h0)
        return o.transpose(1, 2).to(F16), ht

    a = unit(rand(2, t, 2, d, dtype=F16))
    inputs = {n: randn(2, t, 2, d, dtype=F16) for n in "qkv"} | {"a": a, "b": -a, "h0": torch.zeros(2, 2, d, d)}
    operator = state(getattr(generalized_delta_rule, f"{form}_iplr_delta_rule"), scale=0.25)
    if form == "chunk":
        compare(operator, naive, inputs, o=7e-3, gradients=None)
    else:
        compare(operator, naive, inputs, o=3e-3, gradients=3e-3)
