"""Operations that move, gather, pad or average elements: linear with non-negative weights, so that the native
operation itself carries the tables."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map

from kcontract.dynamic.oracle.dtypes import Tensor
from kcontract.dynamic.oracle.registry import rule
from kcontract.dynamic.oracle.tables import EXACT, Err, anywhere, either, plus

if TYPE_CHECKING:
    from kcontract.dynamic.oracle.mode import BoundMode

COPIES = (
    "cat", "stack", "index_select", "gather", "index", "slice_backward", "select_backward", "constant_pad_nd",
    "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "replication_pad2d",
    "replication_pad3d", "flip", "roll", "repeat", "tril", "triu", "diagonal_copy", "diag_embed", "embedding",
    "unfold_backward", "im2col", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "upsample_nearest1d",
    "upsample_nearest2d", "upsample_nearest3d", "_unsafe_view", "_reshape_copy", "view_copy", "expand_copy",
    "permute_copy", "slice_scatter", "select_scatter", "diagonal_scatter", "masked_scatter", "repeat_interleave",
    "masked_select", "take", "rot90", "as_strided_scatter", "unsafe_split", "split_with_sizes_copy",
    "value_selecting_reduction_backward",
    "scatter", "trace_backward", "diagonal_backward", "_reshape_alias_copy", "native_channel_shuffle", "resize",
)  # fmt: skip

SUMS = (
    "embedding_dense_backward", "scatter_add", "index_add", "index_put", "_index_put_impl", "col2im",
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d",
    "avg_pool2d_backward", "avg_pool3d_backward", "_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward",
    "upsample_nearest1d_backward", "upsample_nearest2d_backward", "upsample_nearest3d_backward",
    "upsample_bilinear2d", "upsample_linear1d", "upsample_trilinear3d", "upsample_bilinear2d_backward",
    "upsample_linear1d_backward", "upsample_trilinear3d_backward", "reflection_pad1d_backward",
    "reflection_pad2d_backward",
    "replication_pad1d_backward", "replication_pad2d_backward", "trace", "_embedding_bag_dense_backward",
)  # fmt: skip


def carry(ctx: BoundMode, func: Any, args: Any, kwargs: Any, part: int) -> Any:
    """The operation on one part of the tables in place of the values; None where all are zero."""
    found = False

    def swap(a: Any) -> Any:
        nonlocal found
        if not isinstance(a, torch.Tensor) or not a.is_floating_point():
            return a
        e = ctx.err(a)[part]
        if e is None:
            return torch.zeros_like(a)
        found = True
        return e.double() if e.dtype is torch.bool else e

    if ctx.current == "constant_pad_nd" or (ctx.current == "scatter" and not isinstance(args[3], torch.Tensor)):
        args = (*args[: 2 if ctx.current == "constant_pad_nd" else 3], 0.0)  # a constant is exact
    new_args, new_kwargs = tree_map(swap, args), tree_map(swap, kwargs)
    if not found:
        return None
    out = func(*new_args, **new_kwargs)
    if part != 2:
        return out
    return [o > 0 for o in out] if isinstance(out, (list, tuple)) else out > 0


def index_doubt(ctx: BoundMode, args: Any) -> bool:
    """True where an integer or bool argument may differ: then the whole result is undetermined."""
    leaves = torch.utils._pytree.tree_leaves(args)
    masks = [ctx.err(a).und for a in leaves if isinstance(a, torch.Tensor) and not a.is_floating_point()]
    return any(m is not None and anywhere(m) for m in masks)


def _lost(y: Any) -> Any:
    if isinstance(y, (tuple, list)):
        return tuple(_lost(v) for v in y)
    return Err(None, None, torch.ones_like(y, dtype=torch.bool))


@rule(*COPIES)
def moved(ctx: BoundMode, y: Any, *args: Any, **kwargs: Any) -> Any:
    """Each result is one of the operands' elements (or a constant): its error moves with it. A repeated element's
    independent error counts as systematic."""
    if index_doubt(ctx, args):
        if ctx.current == "gather":
            return _chosen(ctx, y, args)
        doubt = _doubtful_places(ctx, y, args) if ctx.current in ("index", "_unsafe_index") else None
        if doubt is None:
            return _lost(y)
        parts = [carry(ctx, ctx.function, args, kwargs, k) for k in range(3)]
        return Err(plus(parts[0], parts[1]), None, either(parts[2], doubt))
    first = y[0] if isinstance(y, (tuple, list)) else y
    if not first.is_floating_point():
        floats = [Err(None, None, None)] * (len(y) if isinstance(y, (tuple, list)) else 1)
        return tuple(floats)
    parts = [carry(ctx, ctx.function, args, kwargs, k) for k in range(3)]
    if isinstance(y, (tuple, list)):
        return tuple(Err(*(None if p is None else p[k] for p in parts)) for k in range(len(y)))
    err = Err(*parts)
    leaves = [a for a in torch.utils._pytree.tree_leaves(args) if isinstance(a, torch.Tensor) and a.is_floating_point()]
    return err.systematic() if y.numel() > sum(a.numel() for a in leaves) else err


def _doubtful_places(ctx: BoundMode, y: Tensor, args: Any) -> Tensor | None:
    """Where x[i, j, …] uses an index that may differ; None where the indices do not pick each element on their own."""
    x, indices = args
    if len(indices) != x.dim() or any(k is None or k.dtype is torch.bool for k in indices):
        return None
    return either(*(ctx.err(k).und for k in indices)).expand(y.shape)  # type: ignore[union-attr]


def _chosen(ctx: BoundMode, y: Tensor, args: Any) -> Err:
    """gather at an index that may differ: undetermined there."""
    x, dim, index = args[:3]
    e = ctx.err(x)
    parts = [None if p is None else p.gather(dim, index) for p in e]
    return Err(parts[0], parts[1], either(parts[2], ctx.err(index).und))


@rule(*SUMS)
def summed(ctx: BoundMode, y: Tensor, *args: Any, **kwargs: Any) -> Err:
    """Sums of few terms with non-negative weights: gamma_N·Σw|x| (+ N·u_step where steps are stored: such sums add in
    place, in memory) with N the most terms a result adds up, read off the operation on ones; sqrt(max w·Σw·i²) and
    Σw·c carried."""
    if index_doubt(ctx, args):
        return _lost(y)  # type: ignore[no-any-return]
    if not y.is_floating_point():
        return EXACT
    func = ctx.function

    def on(f: Any) -> Tensor:
        apply = lambda a: f(a) if isinstance(a, torch.Tensor) and a.is_floating_point() else a  # noqa: E731
        return func(*tree_map(apply, args), **tree_map(apply, kwargs))

    average = "pool" in ctx.current or "linear" in ctx.current
    if average:
        sizes = [a.numel() for a in args if isinstance(a, torch.Tensor)]
        window = next((a for a in args[1:] if isinstance(a, (list, tuple)) and "adaptive" not in ctx.current), None)
        n = int(torch.tensor(window).prod()) if window is not None and "upsample" not in ctx.current else 16
        if "linear" in ctx.current and "backward" in ctx.current:  # of twice the scale's results an axis
            n = math.prod(2 * -(-o // i) + 1 for o, i in zip(args[0].shape[2:], y.shape[2:], strict=True))
        if "adaptive" in ctx.current and "backward" not in ctx.current:
            n = -(-sizes[0] // max(y.numel(), 1)) + 1
            for k in args[1]:
                n += int(k)
        n = max(2, n)
    else:
        n = max(2, int(on(torch.ones_like).max()) + 1)
    ctx.record(ctx.current, "gamma_N·Σw|x|", n)
    fresh = on(torch.abs)
    stored = 0.0 if average else n * ctx.model.u_step
    exchange = ctx.lam != 1.0 and n > 16 and not stored
    c = carry(ctx, func, args, kwargs, 0)
    i = None
    if "linear" in ctx.current:
        c = plus(
            c, _coordinates(ctx, y, args[0]) if "backward" not in ctx.current else _coordinates_back(ctx, y, fresh)
        )
    if exchange:
        # w <= 1 and weights of an average are equal: sqrt(S²(N/3 + 1)) <= A·sqrt(N/3 + 1) + A·sqrt(N/6 + 1)
        i = fresh * (ctx.u * ((n / 3 + 1) ** 0.5 + (n / 6 + 1) ** 0.5))
    else:
        c = plus(c, fresh * ((ctx.model.factor(n) + stored) / ctx.lam))
    own = None
    squares = _squared_independent(ctx, func, args, kwargs)
    if squares is not None:
        own = squares.sqrt_()
    i = plus(plus(i, own), ctx.fresh(y, 1.0))
    return Err(c, i, carry(ctx, func, args, kwargs, 2))


def _coordinates(ctx: BoundMode, y: Tensor, x: Tensor) -> Tensor:
    """What linear interpolation errs by because its coordinates do, over λ: of size s along an axis,
    scale·(k + 1/2) − 1/2 errs by 4u·s, and a weight with it; twice that, like every proven part.

    The weights of two neighbours err against each other: times the largest step between neighbours near by.
    """
    pools = (torch.nn.functional.max_pool1d, torch.nn.functional.max_pool2d, torch.nn.functional.max_pool3d)
    pool = pools[x.dim() - 3]
    total = torch.zeros_like(y)
    for axis, size in enumerate(x.shape[2:]):
        step = x.diff(dim=axis + 2).abs_()
        step = (
            torch.cat([step, step.narrow(axis + 2, -1, 1)], axis + 2) if step.shape[axis + 2] else torch.zeros_like(x)
        )
        near = torch.nn.functional.interpolate(pool(step, 5, 1, 2), y.shape[2:], mode="nearest")
        total.add_(near, alpha=8 * ctx.u * size / ctx.lam)
    ctx.alone_of(total, y)
    return total


def _coordinates_back(ctx: BoundMode, y: Tensor, size: Tensor) -> Tensor:
    """The same of the gradient: a weight's error times Σ|g| over what went to elements near by (``size``: Σw|g|)."""
    pools = (torch.nn.functional.avg_pool1d, torch.nn.functional.avg_pool2d, torch.nn.functional.avg_pool3d)
    near = pools[y.dim() - 3](size, 3, 1, 1).mul_(3 ** (y.dim() - 2))
    near.mul_(8 * ctx.u * sum(y.shape[2:]) / ctx.lam)
    ctx.alone_of(near, y)
    return near


def _squared_independent(ctx: BoundMode, func: Any, args: Any, kwargs: Any) -> Tensor | None:
    found = False

    def swap(a: Any) -> Any:
        nonlocal found
        if not isinstance(a, torch.Tensor) or not a.is_floating_point():
            return a
        e = ctx.err(a).i
        if e is None:
            return torch.zeros_like(a)
        found = True
        return e * e

    new_args, new_kwargs = tree_map(swap, args), tree_map(swap, kwargs)
    return func(*new_args, **new_kwargs) if found else None


@rule("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool1d",
      "adaptive_max_pool2d", "adaptive_max_pool3d")  # fmt: skip
def max_pool(ctx: BoundMode, y: Any, x: Tensor, *args: Any, **kwargs: Any) -> tuple[Err, Err]:
    """y = max over a window: the largest error in the window, no rounding. The index is undetermined where a second
    element lies within the errors: found by pooling again with the winners taken out."""
    e = ctx.err(x)
    func = ctx.function
    c, i, und = (None if p is None else func(p.double(), *args, **kwargs)[0] for p in e)
    value = Err(c, i, None if und is None else und > 0)
    out, index = y
    if not ctx.wants_indices:
        return value, Err()
    rank = 3 if "3d" in ctx.current else 2 if "2d" in ctx.current else 1
    flat = x.reshape(*x.shape[: x.dim() - rank], -1).clone()
    flat.scatter_(-1, index.reshape(*index.shape[: index.dim() - rank], -1), -torch.inf)
    second = func(flat.reshape(x.shape), *args, **kwargs)[0]
    total = value.total()
    slack = 0.0 if total is None else 2 * ctx.lam * total
    doubt = (out - second) <= slack
    return value, Err(None, None, doubt if anywhere(doubt) else None)


@rule("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward", "adaptive_max_pool2d_backward")
def max_pool_backward(ctx: BoundMode, y: Tensor, g: Tensor, x: Tensor, *args: Any) -> Err:
    """The gradient goes to the winner. Where a window's winner may differ, an element that may win it, or did, errs
    by up to the whole gradient of the doubtful windows that cover it (where windows cannot be re-read: undetermined).
    Where windows overlap an element is a sum of up to N gradients, N the window's size: gamma_N·Σ|g|.
    """
    e, func = ctx.err(g), ctx.function
    doubt = ctx.err(args[-1]).und
    parts = [None if p is None else func(p.double(), x, *args) for p in e]
    c, i = parts[0], None if e.i is None else func(e.i * e.i, x, *args).sqrt_()
    und = None if parts[2] is None else parts[2] > 0
    if doubt is not None:
        whole = e.total()
        size = g.abs() if whole is None else torch.add(g.abs(), whole, alpha=ctx.lam)
        if ctx.current == "max_pool2d_with_indices_backward" and set(args[3]) == {1}:
            back = torch.ops.aten.avg_pool2d_backward
            c = plus(c, ctx.jump(back(size * doubt, x, args[0], args[1], args[2], args[4], True, 1)))
        else:
            und = either(und, func(doubt.double(), x, *args) > 0, x == x)
    window, stride = (args[0], args[1] or args[0]) if len(args) > 1 else ((), ())
    if len(args) <= 1 or any(k > s for k, s in zip(window, stride, strict=True)) or set(args[3]) != {1}:
        n = math.prod(window) if window else 4
        ctx.record(ctx.current, "gamma_N·Σ|g|", n)
        c = plus(c, func(g.abs(), x, *args).mul_((ctx.model.factor(n) + n * ctx.model.u_step) / ctx.lam))
    return Err(c, plus(i, ctx.fresh(y, 8.0)), und)
