"""Checks the arguments of a gated delta rule once, and turns them into a small frozen description.

It looks at shapes, dtypes and devices only. It never reads tensor values, so a launch stays free of synchronisation and
can be captured in a CUDA graph: that `cu_seqlens` rises from 0 to T is the caller's promise.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

CHUNK = 64
"""Tokens a chunk. 64 rows fill one warpgroup of the matrix units."""


@dataclass(frozen=True)
class Problem:
    """Sizes of one call. ``B`` batch, ``T`` tokens, ``H`` query/key heads, ``HV`` value heads, ``N`` sequences."""

    B: int
    T: int
    H: int
    HV: int
    K: int
    V: int
    N: int
    channelwise: bool
    scale: float


def check(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor | None,
    beta: torch.Tensor | None,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
) -> Problem:
    """Return the sizes of a call, or raise ``ValueError`` with a sentence that names the argument and both shapes.

    q, k ``[B, T, H, K]``; v ``[B, T, HV, V]`` with HV a multiple of H; g None, ``[B, T, HV]`` or ``[B, T, HV, K]``;
    beta None or ``[B, T, HV]``; initial_state None or ``[N, HV, K, V]``; cu_seqlens None or ``[N + 1]`` integers with B
    = 1.
    """
    if q.dim() != 4 or k.shape != q.shape:
        raise ValueError(f"q and k must both have shape [B, T, H, K]; found {_s(q)} and {_s(k)}.")
    B, T, H, K = q.shape
    if v.dim() != 4 or v.shape[:2] != q.shape[:2]:
        raise ValueError(f"v must have shape [B, T, HV, V] with [B, T] = {[B, T]} as in q; found {_s(v)}.")
    HV, V = v.shape[2:]
    if H == 0 or HV % H:
        raise ValueError(
            f"the value heads must be a multiple of the query heads; found HV = {HV} in v and H = {H} in q."
        )
    if g is not None and tuple(g.shape) not in ((B, T, HV), (B, T, HV, K)):
        raise ValueError(f"g must have shape {[B, T, HV]} or {[B, T, HV, K]}; found {_s(g)}.")
    if beta is not None and tuple(beta.shape) != (B, T, HV):
        raise ValueError(f"beta must have shape {[B, T, HV]}; found {_s(beta)}.")
    N = B
    if cu_seqlens is not None:
        if B != 1:
            raise ValueError(f"with cu_seqlens the batch must be 1, all sequences packed along T; found B = {B}.")
        if cu_seqlens.dim() != 1 or len(cu_seqlens) < 2 or cu_seqlens.dtype not in (torch.int32, torch.int64):
            raise ValueError(
                f"cu_seqlens must hold N + 1 integers; found shape {_s(cu_seqlens)} of {cu_seqlens.dtype}."
            )
        N = len(cu_seqlens) - 1
    if initial_state is not None and tuple(initial_state.shape) != (N, HV, K, V):
        raise ValueError(f"initial_state must have shape {[N, HV, K, V]}; found {_s(initial_state)}.")
    named = {"k": k, "v": v, "g": g, "beta": beta, "initial_state": initial_state, "cu_seqlens": cu_seqlens}
    for name, tensor in named.items():
        if tensor is not None and tensor.device != q.device:
            raise ValueError(f"all inputs must be on one device; q is on {q.device} and {name} on {tensor.device}.")
    channelwise = g is not None and g.dim() == 4
    return Problem(B, T, H, HV, K, V, N, channelwise, K**-0.5 if scale is None else float(scale))


def _s(tensor: torch.Tensor) -> list[int]:
    return list(tensor.shape)
