"""Arithmetic on elements: copies, sums, products, quotients, roots and powers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from kcontract.dynamic.oracle.dtypes import Tensor
from kcontract.dynamic.oracle.fallback import variation
from kcontract.dynamic.oracle.registry import rule
from kcontract.dynamic.oracle.rules.algebra import clean, linear
from kcontract.dynamic.oracle.tables import EXACT, Err, anywhere, either, plus

if TYPE_CHECKING:
    from kcontract.dynamic.oracle.mode import BoundMode


@rule("neg", "abs", "clone", "contiguous", "positive", "detach_copy", "lift_fresh_copy", "_conj")
def same_size(ctx: BoundMode, y: Tensor, x: Tensor, **kwargs: Any) -> Err:
    """y = ±x: the error of x, no rounding (k = 0)."""
    return ctx.err(x)


@rule("_to_copy")
def cast(ctx: BoundMode, y: Tensor, x: Tensor, **kwargs: Any) -> Err:
    """A cast keeps the error; what a narrow type costs is added by the mode. Float to integer: undetermined where
    x ± λe crosses an integer, and where x is NaN, infinite or outside the type (each machine has its own answer)."""
    e = ctx.err(x)
    if x.is_floating_point() and not y.is_floating_point():
        total, und = e.total(), e.und
        if y.dtype is not torch.bool:
            limits = torch.iinfo(y.dtype)
            inside = (x > float(limits.min) - 1.0) & (x < float(limits.max) + 1.0)
            if limits.bits == 64:
                inside |= x == float(limits.min)
            und = either(und, None if bool(inside.all()) else ~inside)
        if total is None:
            return Err(None, None, und)
        reach = total * ctx.lam
        crossed = ((x + reach).to(y.dtype) != y) | ((x - reach).to(y.dtype) != y)
        return Err(None, None, either(und, crossed))
    if y.is_floating_point() and not x.is_floating_point():
        return Err(None, None, e.und)
    return e


@rule("copy")
def copy(ctx: BoundMode, y: Tensor, old: Tensor, new: Tensor, non_blocking: bool = False) -> Err:
    """An overwritten tensor has the error of what was written."""
    e = ctx.err(new) if new.is_floating_point() == y.is_floating_point() else cast(ctx, y, new)
    return e.systematic() if new.shape != y.shape else e


@rule(
    "fill", "zero", "full_like", "zeros_like", "ones_like", "empty_like", "new_zeros", "new_ones", "new_full",
    "new_empty", "new_empty_strided", "rand_like", "randn_like", "bernoulli", "empty", "zeros", "ones",
)  # fmt: skip
def constant(ctx: BoundMode, y: Tensor, *args: Any, **kwargs: Any) -> Err:
    """A constant is exact; filling with a tensor's value takes over its error."""
    if len(args) > 1 and isinstance(args[1], torch.Tensor):
        e = ctx.err(args[1]).systematic()
        return Err(*(None if p is None else p.expand(y.shape) for p in e))
    return EXACT


@rule("add", "sub")
def add(ctx: BoundMode, y: Tensor, a: Any, b: Any, *, alpha: float = 1, **kwargs: Any) -> Err:
    """y = a ± αb: e_a + |α|·e_b + u|y| (one rounding), the independent part of a broadcast operand systematic; the sum
    of two whole numbers without an error is exact up to 1/u."""
    if not y.is_floating_point():
        return Err(None, None, either(ctx.err(a).und, ctx.err(b).und))
    parts = [(ctx.err(t), g, t) for t, g in ((a, 1), (b, alpha)) if isinstance(t, torch.Tensor)]
    fresh = ctx.fresh(y, 1.0)
    if alpha in (1, -1) and all(e.c is None and e.i is None for e, _, _ in parts):
        fresh = _unless_whole(ctx, fresh, y, parts[0][2])
    if alpha not in (1, -1) and isinstance(b, torch.Tensor):
        fresh = fresh + b.abs() * (ctx.u * abs(alpha))
    return linear(ctx, y, parts, fresh)


def _unless_whole(ctx: BoundMode, fresh: Tensor, y: Tensor, a: Tensor) -> Tensor:
    """``fresh`` without what whole numbers of at most 1/u would add (an operand and the sum tell of the other)."""
    few = y.reshape(-1)[:16]
    if not anywhere(few == few.floor()):
        return fresh
    return fresh.masked_fill_(
        (y == y.floor()) & (a == a.floor()) & (y.abs() <= 1 / ctx.u) & (a.abs() <= 1 / ctx.u), 0.0
    )


@rule("rsub")
def rsub(ctx: BoundMode, y: Tensor, a: Any, b: Any, alpha: float = 1) -> Err:
    """y = b − αa: see ``add``."""
    return add(ctx, y, b, a, alpha=alpha)


@rule("mul")
def mul(ctx: BoundMode, y: Tensor, a: Any, b: Any, **kwargs: Any) -> Err:
    """y = ab: |b|·e_a + |a|·e_b + λ·e_a·e_b + u|y| + eta."""
    if not y.is_floating_point():
        return Err(None, None, either(ctx.err(a).und, ctx.err(b).und))
    if not isinstance(b, torch.Tensor) or b.dim() == 0 or not isinstance(a, torch.Tensor):
        t, factor = (a, b) if isinstance(a, torch.Tensor) and a.shape == y.shape else (b, a)
        if isinstance(factor, torch.Tensor):
            if not ctx.err(factor).exact:
                return _times(ctx, y, a, b)
            factor = float(factor)
        power = factor != 0 and abs(float(factor)) in (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
        return linear(
            ctx,
            y,
            [(ctx.err(t), abs(float(factor)))],
            None if power and ctx.model.eta == 0 else ctx.fresh(y, 0.0 if power else 1.0),
        )
    return _times(ctx, y, a, b)


def _times(ctx: BoundMode, y: Tensor, a: Tensor, b: Tensor) -> Err:
    if not a.is_floating_point() or not b.is_floating_point():
        return _masked(ctx, y, a, b)
    ea, eb = ctx.err(a), ctx.err(b)
    parts: list[tuple[Any, ...]] = []
    size_b: Tensor | None = None
    if ea.c is not None or ea.i is not None:
        size_b = b.abs()
        e = eb.total()
        if e is not None:
            size_b = size_b.add_(e, alpha=ctx.lam) if size_b.shape == e.shape else size_b + e * ctx.lam
    parts.append((ea, size_b, a))
    parts.append((eb, None if eb.c is None and eb.i is None else a.abs(), b))
    return linear(ctx, y, parts, ctx.fresh(y, 1.0))


def _masked(ctx: BoundMode, y: Tensor, a: Tensor, b: Tensor) -> Err:
    """A product with a mask or whole number: where that may differ, y may be anything between 0 and the other factor
    for a bool; for an integer it is undetermined."""
    number, value = (a, b) if not a.is_floating_point() else (b, a)
    doubt = ctx.err(number).und
    size = (number if number.dtype is torch.bool else number.abs()).to(y.dtype)
    fresh = None if number.dtype is torch.bool else ctx.fresh(y, 1.0)
    out = linear(ctx, y, [(ctx.err(value), size, value)], fresh)
    if doubt is None:
        return out
    if number.dtype is not torch.bool:
        return Err(out.c, out.i, either(out.und, doubt.expand(y.shape)))
    whole = ctx.err(value).total()
    reach = value.abs() if whole is None else torch.add(value.abs(), whole, alpha=ctx.lam)
    return Err(plus(out.c, ctx.jump(reach * doubt)), out.i, out.und)


@rule("div")
def div(ctx: BoundMode, y: Tensor, a: Any, b: Any, *, rounding_mode: str | None = None) -> Err:
    """y = a/b: (e_a + |y|·e_b)/(|b| − λe_b) + 2u|y| + eta (div.full.f32 errs by 2 ulp, PTX ISA); undetermined where
    |b| <= λ·e_b. With a rounding mode: undetermined where the quotient's error crosses an integer."""
    if rounding_mode is not None:
        exact = torch.div(a, b)
        of_exact = div(ctx, exact, a, b)
        step = torch.floor if rounding_mode == "floor" else torch.trunc
        return step_function(ctx, y, step, exact, of_exact)
    if not isinstance(b, torch.Tensor) or (b.dim() == 0 and ctx.err(b).exact):
        b = b.detach() if isinstance(b, torch.Tensor) else b
        return linear(ctx, y, [(ctx.err(a), 1.0 / abs(float(b)) if float(b) else 0.0)], ctx.fresh(y, 2.0))
    if not b.is_floating_point():
        b = b.to(y.dtype)
    eb = ctx.err(b)
    e = eb.total()
    den, pole = b.abs(), None
    if e is not None:
        den = den.sub_(e, alpha=ctx.lam)
        pole = (den <= 0) & (e > 0)
        if anywhere(pole):
            den.masked_fill_(pole, torch.inf)
        else:
            pole = None
    inverse = den.reciprocal_()
    if not bool(torch.isfinite(inverse.sum())):
        inverse = inverse.nan_to_num_(0.0, 0.0)
    parts = [(ctx.err(a), inverse, a), (eb, None if e is None else clean(y.abs() * inverse), b)]
    return linear(ctx, y, parts, ctx.fresh(y, 2.0), pole)


def step_function(ctx: BoundMode, y: Tensor, step: Any, x: Tensor, e: Err) -> Err:
    """y = step(x), piecewise constant: undetermined where x ± λe steps over a jump."""
    total = e.total()
    if total is None:
        return Err(None, None, e.und)
    reach = total * ctx.lam
    return Err(None, None, either(e.und, (step(x + reach) != y) | (step(x - reach) != y)))


def _steps(name: str) -> None:
    func = getattr(torch, name)

    def apply(ctx: BoundMode, y: Tensor, x: Tensor, **kwargs: Any) -> Err:
        return step_function(ctx, y, func, x, ctx.err(x)) if x.is_floating_point() else Err(None, None, ctx.err(x).und)

    apply.__doc__ = f"y = {name}(x): undetermined where x ± λe steps over a jump."
    rule(name)(apply)


for _name in ("floor", "ceil", "round", "trunc"):
    _steps(_name)


@rule("sign", "sgn", "signbit")
def sign(ctx: BoundMode, y: Tensor, x: Tensor) -> Err:
    """The sign of x: undetermined where |x| <= λe."""
    e = ctx.err(x)
    total = e.total() if x.is_floating_point() else None
    return Err(None, None, e.und if total is None else either(e.und, x.abs() <= total * ctx.lam))


@rule("reciprocal")
def reciprocal(ctx: BoundMode, y: Tensor, x: Tensor) -> Err:
    """y = 1/x: see ``div``; k = 1 (rcp.approx.ftz errs by 1 ulp)."""
    return div(ctx, y, torch.ones((), dtype=y.dtype, device=y.device), x)


@rule("sqrt")
def sqrt(ctx: BoundMode, y: Tensor, x: Tensor) -> Err:
    """y = sqrt(x): the variation of x ± λe, + 2u|y| (sqrt.approx errs by 1 to 2 ulp); undetermined where x − λe < 0
    and x itself is in error. Where x is exactly 0 with an error, [0, sqrt(λe)] is covered."""
    total = ctx.err(x).total()
    if total is None:
        return linear(ctx, y, [(ctx.err(x), 1)], ctx.fresh(y, 2.0))
    reach = total * ctx.lam
    low = (x - reach).clamp_(min=0.0).sqrt_()
    gain = clean((y - low) / reach)
    up = clean(((x + reach).sqrt_() - y) / reach)
    gain = torch.maximum(gain, up)
    fails = (x > 0) & (x < reach) & (total > ctx.model.eta * 4)
    return linear(ctx, y, [(ctx.err(x), gain, x)], ctx.fresh(y, 2.0), fails if anywhere(fails) else None)


@rule("rsqrt")
def rsqrt(ctx: BoundMode, y: Tensor, x: Tensor) -> Err:
    """y = x^-1/2: e/(2·(x − λe)^(3/2)) + 3u|y| (rsqrt.approx errs by 2 ulp); undetermined where x <= λe."""
    total = ctx.err(x).total()
    pole = gain = None
    if total is not None:
        low = x - total * ctx.lam
        pole = (low <= 0) & (total > 0)
        gain = clean(low.clamp_(min=0.0).pow_(-1.5).mul_(0.5))
        if anywhere(pole):
            gain.masked_fill_(pole, 0.0)
        else:
            pole = None
    return linear(ctx, y, [(ctx.err(x), gain, x)], ctx.fresh(y, 3.0), pole)


@rule("pow")
def power(ctx: BoundMode, y: Tensor, x: Any, p: Any) -> Err:
    """y = x^p: for p = 2 the rule of ``mul``; else the variation of each argument, + (4 + |p·ln x|·2)·u|y| + eta
    (exp2(p·log2 x): the error of the product p·log2 x becomes a relative one)."""
    if not isinstance(p, torch.Tensor) and p == 2:
        e = ctx.err(x)
        total = e.total()
        gain = None if total is None else x.abs().mul_(2.0).add_(total, alpha=ctx.lam)
        return linear(ctx, y, [(e, gain, x)], ctx.fresh(y, 1.0))
    parts: list[tuple[Any, ...]] = []
    lost = None
    for t, f in ((x, lambda v: torch.pow(v, p)), (p, lambda v: torch.pow(x, v))):
        if isinstance(t, torch.Tensor):
            part, _ = variation(ctx, y, f, t)
            parts.append((part, 1, t))
    whole = not isinstance(p, torch.Tensor) and float(p).is_integer() and 0 < float(p) <= 4
    fresh = ctx.fresh(y, 4.0)
    if not whole:
        size = (
            torch.log(torch.abs(torch.as_tensor(x, dtype=y.dtype, device=y.device)))
            .mul(p)
            .abs()
            .nan_to_num(0.0, 0.0, 0.0)
        )
        fresh = (
            torch.addcmul(fresh, y.abs(), size, value=2 * ctx.u)
            if size.shape == y.shape
            else fresh + y.abs() * size * (2 * ctx.u)
        )
    return linear(ctx, y, parts, fresh, lost)


@rule("addcmul")
def addcmul(ctx: BoundMode, y: Tensor, start: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Err:
    """y = start + v·ab: the error of the product and of the sum."""
    prod = a * b * value
    e = _times(ctx, prod, a, b)
    e = Err(None if e.c is None else e.c * abs(value), None if e.i is None else e.i * max(abs(value), 1.0), e.und)
    return linear(ctx, y, [(ctx.err(start), 1, start), (e, 1, prod)], ctx.fresh(y, 1.0))


@rule("addcdiv")
def addcdiv(ctx: BoundMode, y: Tensor, start: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Err:
    """y = start + v·a/b: the error of the quotient and of the sum."""
    quotient = a / b
    e = div(ctx, quotient, a, b)
    return linear(ctx, y, [(ctx.err(start), 1, start), (e, abs(value), quotient)], ctx.fresh(y, 1.0))


@rule("lerp")
def lerp(ctx: BoundMode, y: Tensor, a: Tensor, b: Tensor, weight: Any) -> Err:
    """y = a + w(b − a): |1 − w|·e_a + |w|·e_b + |b − a|·e_w + u(3|w||b − a| + |y|)."""
    gap = (b - a).abs()
    size = weight.abs() if isinstance(weight, torch.Tensor) else abs(weight)
    rest = (1 - weight).abs() if isinstance(weight, torch.Tensor) else abs(1 - weight)
    parts = [(ctx.err(a), rest, a), (ctx.err(b), size, b)]
    if isinstance(weight, torch.Tensor):
        parts.append((ctx.err(weight), gap, weight))
    return linear(ctx, y, parts, ctx.fresh(y, 1.0) + gap * size * (3 * ctx.u))


@rule("complex", "view_as_complex", "view_as_real", "_fft_r2c", "_fft_c2c", "_fft_c2r")
def refuse_complex(ctx: BoundMode, y: Tensor, *args: Any, **kwargs: Any) -> Err:
    """Complex numbers have no bound yet: refused in a sentence."""
    from kcontract.errors import InputError

    raise InputError("the reference uses complex numbers, for which no error bound is known; rewrite it with reals")
