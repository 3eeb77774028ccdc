"""`chunk_gated_delta_rule`: the Triton kernels behind `torch.autograd.Function`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kcontract.kernels.gdn.problem import check

SIZES = (64, 128, 256)
"""Head dimensions K and V that the kernels are built and tested for."""

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def chunk_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return ``(o [B, T, HV, V] in the dtype of v, final state [N, HV, K, V] in float32 or None)``.

    q, k ``[B, T, H, K]``, v ``[B, T, HV, V]`` in one of `DTYPES`, HV a multiple of H, K and V in `SIZES`; g, the
    natural logarithm of the decay and at most 0, ``[B, T, HV]``, or ``[B, T, HV, K]`` for a gate a channel; beta ``[B,
    T, HV]``. ``scale`` defaults to ``K ** -0.5``. With ``cu_seqlens [N + 1]``, on the device, B is 1 and sequence n is
    ``cu_seqlens[n] : cu_seqlens[n + 1]``. Every float input is differentiable. float32 inputs multiply as three tf32
    products.

    Raises ``ValueError`` for shapes, dtypes and devices that do not fit. Values are not looked at: no call waits for
    the GPU.
    """
    given = {"q": q, "k": k, "v": v, "g": g, "beta": beta, "initial_state": initial_state, "cu_seqlens": cu_seqlens}
    for name, x in given.items():
        if not isinstance(x, torch.Tensor) and not (x is None and name in ("initial_state", "cu_seqlens")):
            raise ValueError(f"{name} must be a tensor; found {type(x).__name__}.")
    p = check(q, k, v, g, beta, scale, initial_state, cu_seqlens)
    if p.K not in SIZES or p.V not in SIZES:
        raise ValueError(
            f"K and V must be among {SIZES}; found K = {p.K} in q and V = {p.V} in v. Pad them with zeros."
        )
    if q.dtype not in DTYPES or k.dtype != q.dtype or v.dtype != q.dtype:
        raise ValueError(
            f"q, k and v must share bfloat16, float16 or float32; found {q.dtype}, {k.dtype} and {v.dtype}."
        )
    for name, x in (("g", g), ("beta", beta), ("initial_state", initial_state)):
        if x is not None and not x.is_floating_point():
            raise ValueError(f"{name} must hold floating-point numbers; found {x.dtype}.")
    if p.T == 0 or p.B == 0:
        return _without_tokens(q, k, v, g, beta, initial_state, output_final_state, (p.N, p.HV, p.K, p.V))
    if q.device.type != "cuda":
        raise ValueError(f"the kernels run on CUDA tensors; found {q.device}. On a CPU use `reference`.")
    o, state = _GatedDeltaRule.apply(q, k, v, g, beta, p.scale, initial_state, output_final_state, cu_seqlens)
    return o, state if output_final_state else None


def _without_tokens(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, start: Tensor | None, wanted: bool, shape: tuple[int, ...]
) -> tuple[Tensor, Tensor | None]:
    nothing = q.sum() + k.sum() + g.sum() + beta.sum()
    o = v + nothing.to(v.dtype)
    if not wanted:
        return o, None
    return o, v.new_zeros(shape, dtype=torch.float32) if start is None else start.float() + nothing.float()


class _GatedDeltaRule(torch.autograd.Function):  # type: ignore[misc]  # torch is Any to the type checker
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float, start: Tensor | None,
        wanted: bool, cu_seqlens: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        from kcontract.kernels.gdn import launch

        q, k, v, g, beta = (x.contiguous() for x in (q, k, v, g, beta))
        start = None if start is None else start.contiguous()
        p = check(q, k, v, g, beta, scale, start, cu_seqlens)
        with torch.cuda.device(q.device):
            chunks = launch.locate(p, q, cu_seqlens)
            o, state, x = launch.forward(p, chunks, q, k, v, g, beta, start, wanted)
        ctx.save_for_backward(q, k, v, g, beta, start, *x.kept)
        ctx.problem, ctx.chunks = p, chunks
        return o, state

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]  # likewise
    def backward(ctx: Any, do: Tensor, dstate: Tensor | None) -> tuple[Tensor | None, ...]:
        from kcontract.kernels.gdn import launch

        q, k, v, g, beta, start, *kept = ctx.saved_tensors
        dstate = None if dstate is None else dstate.contiguous()
        with torch.cuda.device(q.device):
            dq, dk, dv, dg, db, dstart = launch.backward(
                ctx.problem, ctx.chunks, q, k, v, g, beta, launch.Kept(*kept), start, do.contiguous(), dstate
            )
        dstart = None if start is None else dstart.to(start.dtype)
        return dq, dk, dv, dg.to(g.dtype), db.to(beta.dtype), None, dstart, None, None
