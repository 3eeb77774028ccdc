"""What the mode does without a rule: perturb a pointwise operation, decompose, or estimate."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from kcontract.dynamic.oracle.dtypes import Tensor
from kcontract.dynamic.oracle.tables import Err, anywhere, either, plus

if TYPE_CHECKING:
    from kcontract.dynamic.oracle.mode import BoundMode

POINTWISE_ULPS = 4.0
ESTIMATE_LAMBDA = 32.0
DRAWS = 4


def decomposition(func: Any) -> Callable[..., Any] | None:
    """torch's own decomposition of an aten operation, or None."""
    from torch._decomp import decomposition_table

    found = decomposition_table.get(func)
    if found is None and func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
        return func.decompose  # type: ignore[no-any-return]
    return found  # type: ignore[no-any-return]


def variation(ctx: BoundMode, y: Tensor, at: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Err, Tensor | None]:
    """Error of y = at(x) from the error of ``x``: max |at(x ± λe) − y| / λ, shared out between c and i as in x.

    Kinks are covered, interior extrema are not; a NaN on either side is undetermined. Returns that error and the
    gain (error out / error in), or None where x is exact.
    """
    err = ctx.err(x)
    e = err.total()
    if e is None:
        return Err(None, None, err.und), None
    reach = e * ctx.lam
    up, down = at(x + reach).sub_(y).abs_(), at(x - reach).sub_(y).abs_()
    spread = torch.maximum(up, down)
    lost = torch.isnan(spread) & torch.isfinite(y)
    gain = (spread / reach).nan_to_num_(0.0)
    und = either(err.und, lost) if anywhere(lost) else err.und
    return Err(None if err.c is None else gain * err.c, None if err.i is None else gain * err.i, und), gain


def pointwise_by_sampling(ctx: BoundMode, y: Tensor, func: Any, args: Any, kwargs: dict[str, Any]) -> Err:
    """Any operation aten tags as pointwise: the variation of each argument by itself, + 4u|y|."""
    leaves, spec = tree_flatten((args, kwargs))
    c = i = und = None
    for at, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor) or ctx.err(leaf).exact:
            continue
        if not leaf.is_floating_point():
            und = either(und, ctx.err(leaf).und)
            continue

        def call(x: Tensor, at: int = at) -> Tensor:
            a, k = tree_unflatten([*leaves[:at], x, *leaves[at + 1 :]], spec)
            return func(*a, **k).to(torch.float64)

        part, _ = variation(ctx, y.to(torch.float64), call, leaf)
        if leaf.shape != y.shape:
            part = part.systematic()
        c, i, und = plus(c, part.c), plus(i, part.i), either(und, part.und)
    if not y.is_floating_point():
        moved = plus(c, i)
        return Err(None, None, either(und, None if moved is None else moved > 0))
    ctx.record("pointwise", "max|f(x ± e) − f(x)| + 4u|y|")
    return Err(c, plus(i, ctx.fresh(y, POINTWISE_ULPS)), und)


def stochastic(ctx: BoundMode, y: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Err, ...]:
    """The last resort: the spread of float64 results under random perturbations of the inputs' errors and of one
    float32 rounding of each input, times 32/λ. Only an estimate; whoever uses it must say so."""
    leaves, spec = tree_flatten((args, kwargs))
    results = list(y) if isinstance(y, (tuple, list)) else [y]
    spreads: list[Tensor | None] = [None] * len(results)
    ctx.record("estimate", "32·max|f(x + δ) − f(x)|")
    generator = torch.Generator().manual_seed(len(leaves))
    und = None
    for leaf in leaves:
        mask = ctx.err(leaf).und
        und = either(und, None if mask is None else mask.any())
    for _ in range(DRAWS):
        moved = []
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                sign = torch.randint(0, 2, leaf.shape, generator=generator).to(leaf) * 2 - 1
                e = ctx.err(leaf).total()
                leaf = leaf + sign * (leaf.abs() * ctx.u + (0.0 if e is None else e))
            moved.append(leaf)
        a, k = tree_unflatten(moved, spec)
        again = func(*a, **k)
        for at, value in enumerate(again if isinstance(again, (tuple, list)) else [again]):
            if isinstance(value, torch.Tensor) and value.shape == results[at].shape:
                gap = (value.double() - results[at].double()).abs()
                old = spreads[at]
                spreads[at] = gap if old is None else torch.maximum(old, gap)
    errs = []
    for value, spread in zip(results, spreads, strict=True):
        if not isinstance(value, torch.Tensor) or spread is None:
            errs.append(Err())
        elif value.is_floating_point():
            shared = None if und is None else und.expand(value.shape)
            errs.append(Err(spread * (ESTIMATE_LAMBDA / ctx.lam) + ctx.fresh(value, 4.0), None, shared))
        else:
            errs.append(Err(None, None, either(spread > 0, None if und is None else und.expand(value.shape))))
    return tuple(errs)
