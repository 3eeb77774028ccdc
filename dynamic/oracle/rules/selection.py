"""Comparisons, where, maxima of pairs, and the gradients of kinked functions: where rounding may choose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from kcontract.dynamic.oracle.dtypes import Tensor
from kcontract.dynamic.oracle.registry import rule
from kcontract.dynamic.oracle.tables import Err, anywhere, either, plus

if TYPE_CHECKING:
    from kcontract.dynamic.oracle.mode import BoundMode


@rule("lt", "le", "gt", "ge", "eq", "ne")
def compare(ctx: BoundMode, y: Tensor, a: Any, b: Any) -> Err:
    """A comparison may differ where |a − b| <= λ(e_a + e_b), which is not 0; an extremum equals the element that it is,
    where no other comes near (gradients of extrema ask)."""
    ea, eb = ctx.err(a), ctx.err(b)
    total = plus(ea.total(), eb.total())
    und = either(ea.und, eb.und)
    if total is None:
        return Err(None, None, und)
    close = (torch.sub(a, b) if isinstance(a, torch.Tensor) else torch.rsub(b, a)).abs_() <= total * ctx.lam
    close &= total > 0  # what is exact is equal or not
    for t in (a, b) if ctx.current == "eq" else ():
        alone = ctx.alone_there.find(t) if isinstance(t, torch.Tensor) else None
        if alone is not None:
            close &= ~(y & alone[2])
    return Err(None, None, either(und, close if anywhere(close) else None))


@rule("logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor")
def logic(ctx: BoundMode, y: Tensor, a: Any, b: Any) -> Err:
    """A logical result may differ where an operand may."""
    return Err(None, None, either(*(_may_differ(ctx, t) for t in (a, b))))


@rule("logical_not", "bitwise_not", "isnan", "isinf", "isfinite")
def negation(ctx: BoundMode, y: Tensor, a: Tensor) -> Err:
    """A test of one operand may differ where the operand is undetermined."""
    return Err(None, None, ctx.err(a).und)


def _may_differ(ctx: BoundMode, t: Any) -> Tensor | None:
    return ctx.err(t).und


@rule("where")
def where(ctx: BoundMode, y: Tensor, cond: Tensor, a: Any, b: Any) -> Err:
    """y = a or b: the chosen one's error; where the condition may differ, + |a − b| and both errors: the
    value may be either."""
    if not y.is_floating_point():
        return Err(None, None, either(ctx.err(cond).und, ctx.err(a).und, ctx.err(b).und))
    ea, eb = _spread(ctx, a, y), _spread(ctx, b, y)
    parts: list[Tensor | None] = []
    for p, q in ((ea.c, eb.c), (ea.i, eb.i)):
        if p is None or q is None:
            parts.append(_masked(cond, p) if q is None else _masked(~cond, q))
        else:
            parts.append(torch.where(cond, p, q))
    und = None
    if ea.und is not None or eb.und is not None:
        no = torch.zeros((), dtype=torch.bool, device=y.device)
        und = torch.where(cond, no if ea.und is None else ea.und, no if eb.und is None else eb.und)
    doubt = ctx.err(cond).und
    if doubt is None or not anywhere(doubt):
        return Err(parts[0], parts[1], und)
    at: Any = doubt.expand(y.shape)
    at = at.nonzero(as_tuple=True) if y.dim() else at

    def there(t: Any) -> Any:
        return t.expand(y.shape)[at] if isinstance(t, torch.Tensor) else t

    gap = (there(a) - there(b)).abs_() if isinstance(a, torch.Tensor) else torch.sub(there(b), a).abs_()
    both = plus(ea.total(), eb.total())
    c = torch.zeros_like(y) if parts[0] is None else parts[0]
    if c.shape != y.shape:
        c = c.expand(y.shape).clone()
    if und is not None and und.shape != y.shape:
        und = und.expand(y.shape).clone()
    finite = torch.isfinite(gap)
    jump = ctx.jump(gap) if both is None else ctx.jump(gap).add_(there(both))
    c[at] += jump.masked_fill_(~finite, 0.0)
    lost = ~finite
    if ea.und is not None or eb.und is not None:
        lost |= there(either(ea.und, eb.und))
    if anywhere(lost):
        und = torch.zeros_like(y, dtype=torch.bool) if und is None else und
        und[at] |= lost
    return Err(c, parts[1], und)


def _masked(cond: Tensor, p: Tensor | None) -> Tensor | None:
    """p where ``cond``, else 0 (torch's own ``where`` takes 3 times as long on masks without a pattern)."""
    if p is None or not bool(torch.isfinite(p.sum())):
        return None if p is None else torch.where(cond, p, 0.0)
    return cond.to(p.dtype).mul(p)


def _spread(ctx: BoundMode, t: Any, y: Tensor) -> Err:
    e = ctx.err(t)
    return e.systematic() if isinstance(t, torch.Tensor) and t.shape != y.shape else e


@rule("masked_fill")
def masked_fill(ctx: BoundMode, y: Tensor, x: Tensor, mask: Tensor, value: Any) -> Err:
    """y = value where mask, else x: see ``where``."""
    return where(ctx, y, mask, value, x) if isinstance(value, torch.Tensor) else _filled(ctx, y, x, mask, value)


def _filled(ctx: BoundMode, y: Tensor, x: Tensor, mask: Tensor, value: float) -> Err:
    e = ctx.err(x)
    if ctx.err(mask).und is not None:
        return where(ctx, y, mask, torch.full_like(x, value), x)
    keep = ~mask
    return Err(*(None if p is None else (p & keep if p.dtype is torch.bool else p * keep) for p in e))


@rule("maximum", "minimum", "fmax", "fmin")
def extreme(ctx: BoundMode, y: Tensor, a: Tensor, b: Tensor) -> Err:
    """y = max(a, b): at most the larger of the two errors, no rounding."""
    ea, eb = _spread(ctx, a, y), _spread(ctx, b, y)
    parts = [p if q is None else q if p is None else torch.maximum(p, q) for p, q in ((ea.c, eb.c), (ea.i, eb.i))]
    total = plus(ea.total(), eb.total())
    if total is not None and (ea.total() is None or eb.total() is None):
        alive = (y - (b if ea.total() is None else a)).abs() <= total * ctx.lam
        parts = [None if p is None else p * alive for p in parts]
    return Err(parts[0], parts[1], either(ea.und, eb.und))


@rule("threshold_backward")
def threshold_backward(ctx: BoundMode, y: Tensor, g: Tensor, x: Tensor, level: float) -> Err:
    """y = g where x > level, else 0: the error of g there; where |x − level| <= λe, y may be g or 0."""
    return kinked(ctx, y, g, x, [level], lambda: (x > level).to(y.dtype), 1.0)


@rule("hardtanh_backward")
def hardtanh_backward(ctx: BoundMode, y: Tensor, g: Tensor, x: Tensor, low: float, high: float) -> Err:
    """y = g where low < x < high, else 0: see ``threshold_backward``."""
    return kinked(ctx, y, g, x, [low, high], lambda: ((x > low) & (x < high)).to(y.dtype), 1.0)


@rule("leaky_relu_backward")
def leaky_relu_backward(ctx: BoundMode, y: Tensor, g: Tensor, x: Tensor, slope: float, is_result: bool) -> Err:
    """y = g or slope·g: see ``threshold_backward``; + u|y|."""
    e = kinked(ctx, y, g, x, [0.0], lambda: torch.where(x > 0, 1.0, abs(slope)), abs(1 - slope))
    return Err(e.c, plus(e.i, ctx.fresh(y, 1.0)), e.und)


def kinked(ctx: BoundMode, y: Tensor, g: Tensor, x: Tensor, kinks: list[float], gain: Any, jump: float) -> Err:
    """The gradient of a piecewise linear function: gain·e_g, and jump·(|g| + λe_g) where x ± λe meets a kink."""
    eg, ex = ctx.err(g), ctx.err(x)
    slope = None if eg.exact else gain()
    c, i = (None if p is None else slope * p for p in (eg.c, eg.i))
    und = None if eg.und is None else eg.und & (slope != 0)
    total = ex.total()
    if total is not None:
        reach = total * ctx.lam
        near = either(*((x - kink).abs_() < reach for kink in kinks))
        if anywhere(near):
            size = g.abs()
            e = eg.total()
            if e is not None:
                size.add_(e, alpha=ctx.lam)
            size = ctx.jump(torch.where(near, size, 0.0), jump)
            c = size if c is None else c.add_(size)
    return Err(c, i, either(und, ex.und))
