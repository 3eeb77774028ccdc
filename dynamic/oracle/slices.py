"""Where an operation may be followed a slice at a time: what rules and runs make on the way then stays small.

The values are the native operation's; only what stands beside them is worked out by slices, along an axis whose
elements do not meet in the operation: of pointwise ones any, of planes the batch's or the channels', of a normalisation
its channels', of a softmax any other than its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_map

from kcontract.dynamic.oracle.dtypes import Tensor

PIECE = 1 << 15
"""Elements of a slice of a pointwise operation, so that some twenty tensors of that size stay in the cache."""
MOST = 8
"""Slices of an operation that is none: each costs a rule's small calls once more."""
SOFTMAX = {"_softmax": 1, "_safe_softmax": 1, "_log_softmax": 1, "_softmax_backward_data": 2,
           "_log_softmax_backward_data": 2}  # fmt: skip
"""Where these have their axis among their arguments."""
LOSSES = frozenset({"mse_loss", "smooth_l1_loss", "huber_loss", "mse_loss_backward", "smooth_l1_loss_backward",
                    "huber_loss_backward"})  # fmt: skip
"""Pointwise where no mean is taken."""
EXTREMES = frozenset({"amax", "amin"})
CHANNELS = frozenset({"native_batch_norm", "native_batch_norm_backward", "_native_batch_norm_legit"})
PLANES = frozenset(
    {"avg_pool2d", "avg_pool3d", "avg_pool2d_backward", "avg_pool3d_backward", "max_pool2d_with_indices",
     "max_pool3d_with_indices", "max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward",
     "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward", "upsample_bilinear2d", "upsample_bilinear2d_backward",
     "upsample_trilinear3d", "upsample_trilinear3d_backward"}
)  # fmt: skip


class Slice(NamedTuple):
    """One slice: ``of`` cuts a tensor (an operand, a result, or what stands in for one); ``args`` the arguments."""

    of: Callable[[Tensor], Tensor]
    args: Callable[[tuple[Any, ...]], tuple[Any, ...]]


def slices(base: str, pointwise: bool, y: Any, args: Any, kwargs: dict[str, Any]) -> Iterator[Slice] | None:
    """The slices of an operation named ``base`` with results ``y``; None where it is to be followed at once."""
    first = y[0] if isinstance(y, (tuple, list)) else y
    operands = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
    if not isinstance(first, torch.Tensor) or not operands:
        return None
    piece = chunk(first)
    if pointwise or base in LOSSES:
        count = first.numel() // piece
        return (_flat(y, operands) or _broadcast(y, operands, count)) if count > 1 and first is y else None
    count = min(max(first.numel(), operands[0].numel()) // (2 * piece), MOST)
    if count < 2:
        return None
    if base in SOFTMAX and first.dim() > 1:
        own = args[SOFTMAX[base]] % first.dim()
        dim = max((d for d in range(first.dim()) if d != own), key=lambda d: first.shape[d])
        return _along(first.shape[dim], count, lambda t: dim)
    if base in EXTREMES and len(args) > 1:
        return _kept(operands[0], args, count)
    if base in CHANNELS and operands[0].dim() > 1:
        return _along(operands[0].shape[1], count, lambda t: min(1, t.dim() - 1) if t.numel() else None)
    if base in PLANES:
        x = operands[0]
        dim = max(range(x.dim() - int(next(filter(str.isdigit, base)))), key=lambda d: x.shape[d])
        return _along(x.shape[dim], count, lambda t: dim)
    if base == "native_group_norm_backward":
        return _groups(args, count)
    return None


def chunk(t: Tensor, piece: int | None = None) -> int:
    """The elements of ``t`` to look at together: ``piece`` (PIECE), more on a GPU, whose kernels take 10 µs each."""
    return (piece or PIECE) << (0 if t.device.type == "cpu" else 7)


def bounds(n: int, count: int, least: int = 2) -> list[tuple[int, int]]:
    """``n`` places in ``count`` parts, (first, size) each, of at least ``least``: what is broadcast along an axis of
    one would not be seen to be. Empty where that leaves one part."""
    count = min(count, n // least)
    cuts = [k * n // count for k in range(count + 1)] if count > 1 else []
    return [(a, b - a) for a, b in itertools.pairwise(cuts)]


def _along(n: int, count: int, where: Callable[[Tensor], int | None]) -> Iterator[Slice] | None:
    """Slices of axis ``where(t)`` of each tensor t (None: whole), and of sizes given as a list of as many numbers."""
    parts = bounds(n, count)

    def slice_(low: int, size: int) -> Slice:
        def of(t: Tensor) -> Tensor:
            at = where(t)
            return t if at is None else t.narrow(at, low, size)

        def one(a: Any, dim: Any, rank: int) -> Any:
            if isinstance(a, torch.Tensor):
                return of(a)
            listed = isinstance(a, (list, tuple)) and len(a) == rank and type(a[0]) is int
            return [size if d == dim else k for d, k in enumerate(a)] if listed else a

        def args(given: tuple[Any, ...]) -> tuple[Any, ...]:
            x = given[0]
            return tuple(one(a, where(x), x.dim()) for a in given)

        return Slice(of, args)

    return (slice_(*p) for p in parts) if parts else None


def _every(of: Callable[[Tensor], Tensor]) -> Slice:
    swap = lambda a: of(a) if isinstance(a, torch.Tensor) else a  # noqa: E731
    return Slice(of, lambda args: tuple(tree_map(swap, a) for a in args))


def _flat(y: Tensor, operands: list[Tensor]) -> Iterator[Slice] | None:
    """In the order of memory, where all tensors but single elements are laid out alike, without gaps."""
    size, strides, piece = y.numel(), y.stride(), chunk(y)
    if y.untyped_storage().nbytes() != size * y.element_size() or 0 in strides:
        return None
    for t in operands:
        if t.numel() != 1 and not (t.shape == y.shape and t.stride() == strides):
            return None

    def of(t: Tensor, low: int) -> Tensor:
        if t.numel() == 1:
            return t.as_strided((), (), t.storage_offset())
        return t.as_strided((min(piece, size - low),), (1,), t.storage_offset() + low)

    return (_every(lambda t, low=low: of(t, low)) for low in range(0, size, piece))  # type: ignore[misc]


def _broadcast(y: Tensor, operands: list[Tensor], count: int) -> Iterator[Slice] | None:
    """Along the first axis that is long enough for some slices, else the longest."""
    long = (d for d in range(y.dim()) if y.shape[d] >= 2 * min(count, 4))
    dim = next(long, max(range(y.dim()), key=lambda d: y.shape[d]))
    parts = bounds(y.shape[dim], count)

    def of(t: Tensor, low: int, size: int) -> Tensor:
        at = dim - y.dim() + t.dim()
        return t.narrow(at, low, size) if at >= 0 and t.shape[at] == y.shape[dim] else t

    return (_every(lambda t, p=p: of(t, *p)) for p in parts) if parts else None  # type: ignore[misc]


def _kept(x: Tensor, args: tuple[Any, ...], count: int) -> Iterator[Slice] | None:
    """Along the longest axis that a reduction keeps."""
    reduced = {d % x.dim() for d in args[1]} if x.dim() else set()
    kept = [d for d in range(x.dim()) if d not in reduced]
    if not reduced or not kept:
        return None
    dim = max(kept, key=lambda d: x.shape[d])
    before = sum(d < dim for d in reduced)
    return _along(x.shape[dim], count, lambda t: dim if t.dim() == x.dim() else dim - before)


def _groups(args: tuple[Any, ...], count: int) -> Iterator[Slice] | None:
    """Along the groups of a group norm's backward, (g, x, mean, rstd, w, batch, channels, area, groups, mask)."""
    channels, groups = args[6], args[8]
    each = channels // groups

    def slice_(low: int, size: int) -> Slice:
        def of(t: Tensor) -> Tensor:
            if t.dim() == 1:
                return t.narrow(0, low * each, size * each)
            scale = 1 if t.shape[1] == groups else each
            return t.narrow(1, low * scale, size * scale)

        def cut(given: tuple[Any, ...]) -> tuple[Any, ...]:
            tensors = [of(t) if isinstance(t, torch.Tensor) else t for t in given[:5]]
            return (*tensors, given[5], size * each, given[7], size, *given[9:])

        return Slice(of, cut)

    parts = [(g, 1) for g in range(groups)] if groups <= count else bounds(groups, count)
    return (slice_(*p) for p in parts) if len(parts) > 1 else None
