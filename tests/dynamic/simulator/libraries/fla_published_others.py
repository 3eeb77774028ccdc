"""Other recurrences, sums and norms of fla-core as its public tests compare them. See ``fla_compare.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fla.utils import device
from fla_compare import BF16, F16, F32, Tensors, compare, packed, pieces, rand, randn, split, state


@pytest.fixture(autouse=True)
def _seed(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(42)
    monkeypatch.setenv("TRITON_F32_DEFAULT", "ieee")


def hgrn_inputs(b: int, t: int, dtype: torch.dtype, states: int | None = None) -> Tensors:
    x, g = randn(b, t, 500, dtype=dtype), randn(b, t, 500, dtype=dtype)
    return {"x": (1 - g.sigmoid()) * x, "g": F.logsigmoid(g), "h0": randn(states or b, 500, dtype=dtype)}


@pytest.mark.parametrize("t", [1, 15])
def test_hgrn_fused_recurrent(t: int) -> None:
    from fla.ops.hgrn import fused_recurrent_hgrn
    from fla.ops.hgrn.naive import naive_recurrent_hgrn

    compare(state(fused_recurrent_hgrn), state(naive_recurrent_hgrn), hgrn_inputs(2, t, F32))


def test_hgrn_fused_recurrent_varlen() -> None:
    from fla.ops.hgrn import fused_recurrent_hgrn
    from fla.ops.hgrn.naive import naive_recurrent_hgrn

    offsets = split(2, 63)
    operator = state(fused_recurrent_hgrn, cu_seqlens=packed(offsets))
    compare(operator, pieces(state(naive_recurrent_hgrn), offsets), hgrn_inputs(1, 63, F32, 2))


@pytest.mark.parametrize("t", [1, 15])
@pytest.mark.parametrize("dtype", [BF16, F32])
def test_hgrn_chunk(t: int, dtype: torch.dtype) -> None:
    from fla.ops.hgrn import chunk_hgrn, fused_recurrent_hgrn

    inputs = hgrn_inputs(2, t, dtype)
    h0 = inputs.pop("h0")
    f, g = (lambda x, g, f=f: f(x, g, h0, output_final_state=True)[0] for f in (chunk_hgrn, fused_recurrent_hgrn))
    compare(f, g, inputs)


def gsa_inputs(t: int, d: int, m: int, gate: float) -> Tensors:
    return {
        **{n: randn(2, t, 2, d) for n in "qkv"},
        "s": randn(2, t, 2, m), "g": F.logsigmoid(randn(2, t, 2, m)) / gate,
        "hk": randn(2, 2, d, m), "hv": randn(2, 2, m, d),
    }  # fmt: skip


def slots(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda hk, hv, **xs: f(**xs, initial_state=(hk, hv))[0]


@pytest.mark.parametrize("t", [1, 7])
@pytest.mark.parametrize("d", [50])
@pytest.mark.parametrize("m", [32])
def test_gsa_fused_recurrent(t: int, d: int, m: int) -> None:
    from fla.ops.gsa import fused_recurrent_gsa
    from fla.ops.gsa.naive import naive_recurrent_gsa

    compare(slots(fused_recurrent_gsa), slots(naive_recurrent_gsa), gsa_inputs(t, d, m, 1))


@pytest.mark.parametrize("t", [1, 7])
@pytest.mark.parametrize("d", [50])
@pytest.mark.parametrize("gate", [1, 0.05, 20])
def test_gsa_chunk(t: int, d: int, gate: float) -> None:
    from fla.ops.gsa import chunk_gsa, fused_recurrent_gsa

    compare(slots(chunk_gsa), slots(fused_recurrent_gsa), gsa_inputs(t, d, 32, gate), s=8e-3, g=8e-3)


def test_forgetting_attn_parallel() -> None:
    from fla.ops.forgetting_attn import parallel_forgetting_attn
    from fla.ops.forgetting_attn.naive import naive_forgetting_attn

    b, t, h, d = 3, 211, 2, 110
    g = torch.empty(b, t, h, dtype=F16, device=device).uniform_(-0.1, -0.01)
    inputs = {n: randn(b, t, h, d, dtype=F16) for n in "qkv"} | {"g": g}

    def operator(**xs: torch.Tensor) -> Any:
        found = parallel_forgetting_attn(**xs, scale=d**-0.5)
        return found[0] if isinstance(found, tuple) else found

    compare(operator, lambda **xs: naive_forgetting_attn(**xs, scale=d**-0.5).to(F16), inputs)


@pytest.mark.parametrize(
    ("b", "t", "g", "h", "d", "scale"), [(1, 63, 2, 4, 64, 1.0), (2, 70, 2, 4, 64, None)], ids=["63", "70"]
)
def test_log_linear_attn_chunk(b: int, t: int, g: int, h: int, d: int, scale: float | None) -> None:
    from fla.ops.log_linear_attn import chunk_log_linear_attn
    from fla.ops.log_linear_attn.naive import naive_log_linear_attn

    levels = (t - 1).bit_length() + 1
    dt = F.softplus(randn(b, t, h) - 4)
    inputs = {
        "q": randn(b, t, g, d), "k": randn(b, t, g, d), "v": randn(b, t, h, d) * dt[..., None],
        "g": -torch.exp(rand(h)) * dt, "level_scales": randn(b, t, h, levels),
    }  # fmt: skip
    compare(
        lambda **xs: chunk_log_linear_attn(**xs, scale=scale)[0], lambda **xs: naive_log_linear_attn(**xs, scale=scale),
        inputs, o=4e-3, gradients=8e-3, q=7e-3, v=7e-3, g=0.015, level_scales=0.015,
    )  # fmt: skip


@pytest.mark.parametrize("t", [1, 7])
@pytest.mark.parametrize("d", [None, 50])
@pytest.mark.parametrize("chunk", [None, 32, 64])
@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("reverse", [False, True])
def test_cumsum(t: int, d: int | None, chunk: int | None, dtype: torch.dtype, reverse: bool) -> None:
    from fla.ops.utils import chunk_global_cumsum, chunk_local_cumsum

    def naive(s: torch.Tensor) -> torch.Tensor:
        parts = s.float().split(chunk or t, 1)
        turn = (lambda x: x.flip(1)) if reverse else (lambda x: x)
        return torch.cat([turn(turn(p).cumsum(1)) for p in parts], 1).to(dtype)

    operator = chunk_local_cumsum if chunk else chunk_global_cumsum
    more = {"chunk_size": chunk} if chunk else {}
    inputs = {"s": randn(2, t, 2, *([d] if d else []), dtype=dtype)}
    allowed = 1e-3 if dtype == F32 else 3e-3
    compare(lambda s: operator(s, reverse=reverse, **more).to(dtype), naive, inputs, o=allowed, gradients=None)


def same_module(mine: torch.nn.Module, theirs: torch.nn.Module, x: torch.Tensor) -> None:
    """Both modules with the same random parameters: outputs and gradients within 0.001."""
    values = {n: torch.randn_like(p) for n, p in theirs.named_parameters()}

    def call(module: torch.nn.Module) -> Callable[..., Any]:
        return lambda x, **parameters: torch.func.functional_call(module, parameters, (x,))

    compare(call(mine), call(theirs), {"x": x, **values}, o=1e-3, gradients=1e-3)


class Scaled(torch.nn.Module):
    """x over its root mean square, times a weight."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(d))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)))


@pytest.mark.parametrize("d", [50])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_layernorm(d: int, affine: bool, bias: bool) -> None:
    from fla.modules import LayerNorm

    both = (f(d, elementwise_affine=affine, bias=bias) for f in (LayerNorm, torch.nn.LayerNorm))
    same_module(*both, randn(2, 2, 512, d))


@pytest.mark.parametrize("d", [64])
@pytest.mark.parametrize("groups", [1, 4])
def test_groupnorm(d: int, groups: int) -> None:
    from fla.modules import GroupNorm

    class Reference(torch.nn.GroupNorm):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x.flatten(0, 1)).view_as(x)

    same_module(GroupNorm(groups, d, bias=True), Reference(groups, d), randn(2, 512, d))


@pytest.mark.parametrize("shape", [(2, 2, 512, 50), (1, 128), (2, 128)])
def test_rmsnorm(shape: tuple[int, ...]) -> None:
    from fla.modules import RMSNorm

    same_module(RMSNorm(shape[-1], eps=0), Scaled(shape[-1]), randn(*shape))


@pytest.mark.parametrize("shape", [(1, 128), (2, 128)])
def test_layernorm_few_rows(shape: tuple[int, ...]) -> None:
    from fla.modules import LayerNorm

    both = (f(shape[-1], elementwise_affine=True, bias=True) for f in (LayerNorm, torch.nn.LayerNorm))
    same_module(*both, randn(*shape))


@pytest.mark.parametrize("n", [1, 16])
@pytest.mark.parametrize("d", [50])
@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_norm_linear(n: int, d: int, kind: str) -> None:
    from fla.modules import LayerNormLinear, RMSNormLinear

    mine = LayerNormLinear(d, elementwise_affine=True, bias=True) if kind == "layer" else RMSNormLinear(d, eps=0)
    norm = torch.nn.LayerNorm(d) if kind == "layer" else Scaled(d)
    inputs = {"x": randn(n, d), **{name: torch.randn_like(p) for name, p in norm.named_parameters()}}
    inputs |= {"w": randn(d, d) * 0.01, "b": randn(d) * 0.01}

    def operator(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, **parameters: torch.Tensor) -> Any:
        return torch.func.functional_call(mine, parameters, (x, w, b))

    def naive(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, **parameters: torch.Tensor) -> Any:
        return F.linear(torch.func.functional_call(norm, parameters, (x,)), w, b)

    compare(operator, naive, inputs, o=1e-3, gradients=1e-3)
