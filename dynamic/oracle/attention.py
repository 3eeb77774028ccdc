"""Attention a piece at a time, so that the bounds of a whole score matrix never stand in memory together.

The fused kernels hold no scores; the reference's plain products do, with five tables beside them. Rows of queries are
independent of each other forward; backward a (batch, head) is, and its scores are computed again. The formulas and the
lengths of the sums are those of the plain products: no sum is cut. It does not support differentiating twice.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

from kcontract.dynamic.oracle.dtypes import Tensor

PIECE = 1 << 16
"""Scores in one piece; fewer scores than this are not cut."""

_plain: Any = F.scaled_dot_product_attention


@contextlib.contextmanager
def piecewise() -> Iterator[None]:
    """``scaled_dot_product_attention`` of torch.nn.functional, cut in pieces; restored on leaving."""
    before = F.scaled_dot_product_attention
    F.scaled_dot_product_attention = attention
    try:
        yield
    finally:
        F.scaled_dot_product_attention = before


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query·keyᵀ·scale + mask)·value as torch defines it; plain where few scores, dropout, shared heads, a
    mask with gradients or broadcast batches ask for it."""
    alike = query.dim() == key.dim() == value.dim() > 2 and query.shape[:-2] == key.shape[:-2] == value.shape[:-2]
    learned = attn_mask is not None and attn_mask.requires_grad
    if not alike or learned or dropout_p or enable_gqa or query.shape[:-1].numel() * key.shape[-2] <= PIECE:
        return _plain(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    return _Pieces.apply(query, key, value, attn_mask, is_causal, scale)


class _Pieces(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: Any) -> Tensor:
        ctx.save_for_backward(q, k, v, mask)
        ctx.causal, ctx.scale = causal, scale
        out = q.new_empty(*q.shape[:-1], v.shape[-1])
        for at in _heads(q):
            rows = max(1, PIECE // max(1, k[at].shape[:-1].numel()))
            for first in range(0, q.shape[-2], rows):
                here = (*at, slice(first, first + rows))
                out[here] = _plain(q[here], k[at], v[at], _mask(mask, q, k, at, first, rows, causal), scale=scale)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        q, k, v, mask = ctx.saved_tensors
        grads = [torch.empty_like(t) for t in (q, k, v)]
        for at in _heads(q):
            with torch.enable_grad():
                leaves = [t[at].detach().requires_grad_() for t in (q, k, v)]
                out = _plain(*leaves, _mask(mask, q, k, at, 0, q.shape[-2], ctx.causal), scale=ctx.scale)
            for whole, part in zip(grads, torch.autograd.grad(out, leaves, g[at]), strict=True):
                whole[at] = part
        return *grads, None, None, None


def _heads(q: Tensor) -> Iterator[tuple[slice, ...]]:
    """One (batch, head) after another, each dimension kept."""
    for at in itertools.product(*map(range, q.shape[:-2])):
        yield tuple(slice(i, i + 1) for i in at)


def _mask(
    mask: Tensor | None, q: Tensor, k: Tensor, at: tuple[slice, ...], first: int, rows: int, causal: bool
) -> Tensor | None:
    """The mask of some rows of one (batch, head); causal: row i sees columns up to i."""
    if causal:
        last = min(first + rows, q.shape[-2])
        return torch.ones(last - first, k.shape[-2], dtype=torch.bool, device=q.device).tril_(first)
    if mask is None:
        return None
    place = [*at, slice(first, first + rows), slice(None)][-mask.dim() :]
    return mask[tuple(slice(None) if n == 1 else s for n, s in zip(mask.shape, place, strict=True))]
