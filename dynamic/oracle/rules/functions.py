"""Elementary functions and activations: gain (bound on the derivative over x ± λe) and roundings of each.

The roundings are those of the fast GPU forms, 1 ulp being 2u (CUDA C++ Programming Guide, "Intrinsic functions"):
__expf errs by 2 + 1.173|x| ulp, so (4 + 2.4|x|)u; a division by 2 ulp; __logf by an absolute 2^-21.4 = 6u. tanh and
sigmoid are built from them, tanh as 1 − small; erf errs by an absolute 2u. cuDNN's recurrent kernels need these.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from kcontract.dynamic.oracle.dtypes import Tensor
from kcontract.dynamic.oracle.fallback import variation
from kcontract.dynamic.oracle.registry import rule
from kcontract.dynamic.oracle.rules.algebra import clean, linear
from kcontract.dynamic.oracle.tables import Err, anywhere, either, plus

if TYPE_CHECKING:
    from kcontract.dynamic.oracle.mode import BoundMode

LOG2 = math.log(2)


def unary(ctx: BoundMode, y: Tensor, x: Tensor, gain: Callable[[Tensor], Tensor], fresh: Tensor) -> Err:
    """The error of y = f(x): gain(λe)·e + fresh, the gain only computed where x carries an error."""
    e = ctx.err(x)
    total = e.total()
    return linear(ctx, y, [(e, None if total is None else clean(gain(total * ctx.lam)))], fresh)


def relative(ctx: BoundMode, y: Tensor, size: Tensor, k: float, slope: float) -> Tensor:
    """u·|y|·(k + slope·|size|) + eta; 0·Inf counts as 0."""
    factor = torch.add(torch.full((), k * ctx.u, dtype=y.dtype, device=y.device), size.abs(), alpha=slope * ctx.u)
    return clean(factor.mul_(y.abs())).add_(ctx.model.eta)


@rule("exp")
def exp(ctx: BoundMode, y: Tensor, x: Tensor) -> Err:
    """y = exp x: y·(exp(λe) − 1)/λ + (4 + 2.4|x|)·u·y + eta."""
    return unary(ctx, y, x, lambda r: torch.expm1(r).div_(r).mul_(y), relative(ctx, y, x, 4.0, 2.4))


@rule("exp2")
def exp2(ctx: BoundMode, y: Tensor, x: Tensor) -> Err:
    """y = 2^x: y·(2^λe − 1)/λ + 4u·y + eta (ex2.approx errs by 2 ulp)."""
    return unary(ctx, y, x, lambda r: torch.expm1(r * LOG2).div_(r).mul_(y), ctx.fresh(y, 4.0))


@rule("expm1")
def expm1(ctx: BoundMode, y: Tensor, x: Tensor) -> Err:
    """y = exp x − 1: (y + 1)(exp(λe) − 1)/λ + 3u|y| + u|x|·exp x + eta: accurate near 0, as its purpose is."""
    fresh = clean(relative(ctx, y + 1, x, 0.0, 1.0)) + ctx.fresh(y, 3.0)
    return unary(ctx, y, x, lambda r: torch.expm1(r).div_(r).mul_(y + 1), fresh)


def _log(name: str, scale: float) -> None:
    def apply(ctx: BoundMode, y: Tensor, x: Tensor) -> Err:
        e = ctx.err(x).total()
        pole = gain = None
        if e is not None:
            low = x - e * ctx.lam
            pole = (low <= 0) & (x > 0)
            gain = clean(low.clamp_(min=0.0).reciprocal_().mul_(scale))
            gain.masked_fill_(pole, 0.0)
            pole = pole if anywhere(pole) else None
        return linear(ctx, y, [(ctx.err(x), gain)], ctx.fresh(y, 3.0) + 6 * scale * ctx.u, pole)

    apply.__doc__ = f"y = {name}(x): {scale:.3g}·e/(x − λe) + 3u|y| + {6 * scale:.3g}u; undetermined where x <= λe."
    rule(name)(apply)


_log("log", 1.0)
_log("log2", 1 / LOG2)
_log("log10", 1 / math.log(10))


@rule("xlogy")
def xlogy(ctx: BoundMode, y: Tensor, x: Any, o: Any) -> Err:
    """y = x·ln o: (|ln o| + λe_o/(o − λe_o))·e_x + |x|·e_o/(o − λe_o) + 4u|y| + 6u|x|; undetermined where o <= λe_o
    beside an x that is not 0, and where o is 0 beside an x in error."""
    x, o = (
        t if isinstance(t, torch.Tensor) else torch.full((), float(t), dtype=y.dtype, device=y.device) for t in (x, o)
    )
    ex, eo = ctx.err(x), ctx.err(o)
    reach_x, reach_o = ex.total(), eo.total()
    pole = gain_x = gain_o = None
    if reach_x is not None:
        gain_x = clean(torch.log(o).abs_())
        pole = (o <= 0) & (reach_x > 0)
    if reach_o is not None:
        low = o - reach_o * ctx.lam
        pole = either(pole, (low <= 0) & (o > 0) & (x != 0))
        steep = clean(low.clamp_(min=0.0).reciprocal_()).masked_fill_(low <= 0, 0.0)
        gain_o = clean(x.abs() * steep)
        gain_x = gain_x if gain_x is None else torch.addcmul(gain_x, steep, reach_o, value=ctx.lam)
    pole = pole if pole is not None and anywhere(pole) else None
    fresh = clean(ctx.fresh(y, 4.0).add_(x.abs(), alpha=6 * ctx.u))
    return linear(ctx, y, [(ex, gain_x, x), (eo, gain_o, o)], fresh, pole)


@rule("log1p")
def log1p(ctx: BoundMode, y: Tensor, x: Tensor) -> Err:
    """y = ln(1 + x): e/(1 + x − λe) + 4u|y|; undetermined where 1 + x <= λe."""
    e = ctx.err(x).total()
    pole = gain = None
    if e is not None:
        low = x + 1 - e * ctx.lam
        pole = (low <= 0) & (x > -1)
        gain = clean(low.clamp_(min=0.0).reciprocal_()).masked_fill_(pole, 0.0)
        pole = pole if anywhere(pole) else None
    return linear(ctx, y, [(ctx.err(x), gain)], ctx.fresh(y, 4.0), pole)


@rule("sigmoid")
def sigmoid(ctx: BoundMode, y: Tensor, x: Tensor) -> Err:
    """y = 1/(1 + exp(−x)): gain y(1 − y)·exp(λe) (its logarithm has slope <= 1), + u·y·(5 + (4 + 2.4|x|)(1 − y)) +
    eta."""
    rest = 1 - y
    fresh = clean(x.abs().mul_(2.4).add_(4).mul_(rest).add_(5).mul_(y).mul_(ctx.u)).add_(ctx.model.eta)
    return unary(ctx, y, x, lambda r: r.exp_().clamp_(max=1e30).mul_(y).mul_(rest).clamp_(max=0.25), fresh)


@rule("tanh")
def tanh(ctx: BoundMode, y: Tensor, x: Tensor) -> Err:
    """y = tanh x: gain min(1, (1 − y²)·exp(2λe)), + u(5 + (1 − y²)(2 + 2.4|x|)): 1 − 2/(1 + exp 2x)."""
    rest = 1 - y * y
    fresh = clean(x.abs().mul_(2.4).add_(2).mul_(rest)).add_(5).mul_(ctx.u)
    return unary(ctx, y, x, lambda r: r.mul_(2).exp_().mul_(rest).clamp_(max=1.0), fresh)


@rule("sin", "cos")
def wave(ctx: BoundMode, y: Tensor, x: Tensor) -> Err:
    """y = sin x or cos x: gain min(1, sqrt(1 − y²) + λe), + 2u absolute + u|x|·sqrt(1 − y²) (range reduction)."""
    slope = (1 - y * y).clamp_(min=0.0).sqrt_()
    fresh = clean(slope * x.abs()).mul_(ctx.u).add_(2 * ctx.u)
    return unary(ctx, y, x, lambda r: r.add_(slope).clamp_(max=1.0), fresh)


@rule("erf", "erfc")
def erf(ctx: BoundMode, y: Tensor, x: Tensor) -> Err:
    """y = erf x: gain 2/sqrt(π)·exp(−max(|x| − λe, 0)²), + 2u absolute."""
    return unary(
        ctx, y, x,
        lambda r: (x.abs() - r).clamp_(min=0.0).square_().neg_().exp_().mul_(2 / math.sqrt(math.pi)),
        torch.full_like(y, 2 * ctx.u).add_(y.abs(), alpha=ctx.u),
    )  # fmt: skip


@rule("relu")
def relu(ctx: BoundMode, y: Tensor, x: Tensor) -> Err:
    """y = max(x, 0): the error of x where x > −λe, no rounding."""
    e = ctx.err(x)
    total = e.total()
    if total is None:
        return Err(None, None, e.und)
    alive = x > total.mul(-ctx.lam)
    return Err(None if e.c is None else e.c * alive, None if e.i is None else e.i * alive, e.und)


@rule("leaky_relu")
def leaky_relu(ctx: BoundMode, y: Tensor, x: Tensor, slope: float = 0.01) -> Err:
    """y = x or slope·x: the larger slope within x ± λe, + u|y|."""
    return unary(ctx, y, x, lambda r: torch.where(x > -r, max(1.0, abs(slope)), abs(slope)), ctx.fresh(y, 1.0))


@rule("gelu")
def gelu(ctx: BoundMode, y: Tensor, x: Tensor, approximate: str = "none") -> Err:
    """y = x·Φ(x): gain min(1.13, |Φ(x) + xφ(x)| + λe·0.8) (|gelu''| <= 0.8), + u(3|y| + 1.5|x|) from 1 + erf; the
    tanh form 5u|x| from tanh and (1 − t²)·|inner|."""
    k = 1.5 if approximate == "none" else 5.0
    fresh = torch.add(y.abs().mul_(3 * ctx.u), x.abs(), alpha=k * ctx.u)
    if not bool(torch.isfinite(fresh.sum())):
        fresh = fresh.nan_to_num_(0.0, 0.0)

    def gain(r: Tensor) -> Tensor:
        slope = torch.exp(x * x * -0.5).mul_(x).mul_(1 / math.sqrt(2 * math.pi))
        slope.add_(clean(y / x))
        return r.mul_(0.8).add_(slope.abs_()).clamp_(max=1.13)

    return unary(ctx, y, x, gain, fresh)


@rule("silu")
def silu(ctx: BoundMode, y: Tensor, x: Tensor) -> Err:
    """y = x·σ(x): gain min(1.1, |σ(1 + x(1 − σ))| + λe/2) (|silu''| <= 1/2), + u|y|(6 + (4 + 2.4|x|)(1 − σ)) +
    eta(1 + |x|) (σ may be flushed), and all of y where exp(−x) leaves the accumulator's range: x/Inf is −0."""
    s = torch.sigmoid(x)
    rest = 1 - s
    fresh = clean(x.abs().mul_(2.4).add_(4).mul_(rest).add_(6).mul_(y.abs()).mul_(ctx.u)).add_(ctx.model.eta)
    e = unary(ctx, y, x, lambda r: r.mul_(0.5).add_((rest.mul(x).add_(1).mul_(s)).abs_()).clamp_(max=1.1), fresh)
    return Err(plus(e.c, beyond_exp(ctx, y, x)), e.i, e.und)


def beyond_exp(ctx: BoundMode, y: Tensor, x: Tensor) -> Tensor | None:
    """What may be lost where exp(−x) overflows (to within a few roundings), or σ(x) is flushed on the way to y."""
    edge = 1 - math.log(ctx.model.largest)
    if not y.numel() or not anywhere(x < edge):
        return None
    size = ctx.jump(y.abs()).add_(clean(x.abs()), alpha=ctx.model.eta)
    return clean(size).masked_fill_(x >= edge, 0.0)


@rule("mish")
def mish(ctx: BoundMode, y: Tensor, x: Tensor) -> Err:
    """y = x·tanh(ln(1 + exp x)): the variation of x, + 4u|y| + 7u|x| (tanh is known to an absolute 7u)."""
    part, _ = variation(ctx, y, torch.nn.functional.mish, x)
    return linear(ctx, y, [(part, 1)], clean(ctx.fresh(y, 4.0).add_(x.abs(), alpha=7 * ctx.u)))


@rule("softplus")
def softplus(ctx: BoundMode, y: Tensor, x: Tensor, beta: float = 1, threshold: float = 20) -> Err:
    """y = ln(1 + exp βx)/β: gain 1, + u(3|y| + (4 + 2.4|βx|)·min(y, 1) + 6/β) absolute, and the step exp(−20)/β at the
    threshold is the reference's own."""
    fresh = torch.add(y.clamp(max=1.0).mul_(clean(x.abs()).mul_(2.4 * abs(beta)).add_(4)), y.abs(), alpha=3).add_(
        6 / beta
    )
    return unary(ctx, y, x, lambda r: torch.sigmoid((x + r).mul_(beta)), clean(fresh.mul_(ctx.u)))


@rule("log_sigmoid_forward")
def log_sigmoid(ctx: BoundMode, y: Any, x: Tensor) -> tuple[Err, Err]:
    """y = min(x, 0) − ln(1 + exp(−|x|)): gain 1, + u(3|y| + 8); the saved buffer is not part of the promise."""
    out = unary(ctx, y[0], x, lambda r: torch.sigmoid(r - x), ctx.fresh(y[0], 3.0).add_(8 * ctx.u))
    return out, Err()


@rule("elu")
def elu(ctx: BoundMode, y: Tensor, x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Err:
    """y = s·x or s·α(exp x − 1): gain s·max(1, α·exp(x + λe)), + u(3|y| + 6sα·[x < 0]) (exp − 1 cancels near 0)."""
    top = abs(scale) * max(1.0, abs(alpha) * abs(input_scale))
    fresh = ctx.fresh(y, 3.0) + (x < 0) * (6 * abs(alpha * scale) * ctx.u)
    return unary(ctx, y, x, lambda r: torch.where(x > -r, top, (x + r).mul_(input_scale).exp_().mul_(top)), fresh)


@rule("hardswish")
def hardswish(ctx: BoundMode, y: Tensor, x: Tensor) -> Err:
    """y = x·clamp(x + 3, 0, 6)/6: gain min(1.5, |x/3 + 1/2| + λe/3) where x ± λe is above −3, + 4u|y| + u|x|·[|x| <
    3]."""
    fresh = ctx.fresh(y, 4.0).add_(x.abs().mul_(x.abs() < 3), alpha=ctx.u)
    return unary(ctx, y, x, lambda r: torch.where(x + r > -3, (x.abs() / 3 + 0.5 + r / 3).clamp_(max=1.5), 0.0), fresh)


@rule("hardsigmoid")
def hardsigmoid(ctx: BoundMode, y: Tensor, x: Tensor) -> Err:
    """y = clamp(x + 3, 0, 6)/6: gain 1/6, + 2u|y| + u/2 (x + 3 cancels)."""
    return linear(ctx, y, [(ctx.err(x), 1 / 6)], ctx.fresh(y, 2.0).add_(ctx.u / 2))


@rule("hardtanh", "clamp", "clamp_min", "clamp_max")
def clamp(ctx: BoundMode, y: Tensor, x: Tensor, low: Any = None, high: Any = None, **kwargs: Any) -> Err:
    """y = min(max(x, low), high): the error of x where x ± λe is not wholly cut off, no rounding; bounds that are
    tensors add their own error."""
    low, high = kwargs.get("min", low), kwargs.get("max", high)
    e = ctx.err(x)
    extra = [ctx.err(b).systematic() for b in (low, high) if isinstance(b, torch.Tensor)]
    total = e.total()
    if total is None or any(not b.exact for b in extra):
        return linear(ctx, y, [(e, 1), *((b, 1) for b in extra)], None)
    alive = (x - y).abs_() <= total * ctx.lam
    return Err(None if e.c is None else e.c * alive, None if e.i is None else e.i * alive, e.und)


@rule("threshold")
def threshold(ctx: BoundMode, y: Tensor, x: Tensor, level: float, value: float) -> Err:
    """y = x where x > level, else value: the variation of x over ± λe."""
    part, _ = variation(ctx, y, lambda v: torch.threshold(v, level, value), x)
    return part
