"""Gradients of activations: y = g·d(x), with the roundings of d where it is built by cancellation (absolute, times
|g|)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from kcontract.dynamic.oracle.dtypes import Tensor
from kcontract.dynamic.oracle.fallback import variation
from kcontract.dynamic.oracle.registry import rule
from kcontract.dynamic.oracle.rules.algebra import clean, linear
from kcontract.dynamic.oracle.rules.functions import beyond_exp
from kcontract.dynamic.oracle.rules.selection import kinked
from kcontract.dynamic.oracle.tables import Err, either, plus

if TYPE_CHECKING:
    from kcontract.dynamic.oracle.mode import BoundMode


def gradient(
    ctx: BoundMode, y: Tensor, g: Tensor, x: Tensor, slope: Tensor, curve: Callable[[Tensor], Tensor], absolute: Tensor
) -> Err:
    """|d|·e_g + |g|·curve(λe_x)·e_x + u(2|y| + |g|·absolute) + eta, ``slope`` = d(x) and curve >= |d'| over x ± λe."""
    eg, ex = ctx.err(g), ctx.err(x)
    size = g.abs()
    total = ex.total()
    bend = None if total is None else clean(curve(total * ctx.lam).mul_(size))
    fresh = clean(torch.addcmul(ctx.fresh(y, 2.0), size, absolute, value=ctx.u))
    gain = None if eg.c is None and eg.i is None else slope.abs()
    return linear(ctx, y, [(eg, gain), (ex, bend)], fresh)


@rule("gelu_backward")
def gelu_backward(ctx: BoundMode, y: Tensor, g: Tensor, x: Tensor, approximate: str = "none") -> Err:
    """d = Φ + xφ: |d'| = φ|2 − x²| + λe; 1 + erf errs by 1.5u, φ by (3 + x²)u of itself; the tanh form's 1 − t² by
    4u."""
    density = torch.exp(x * x * -0.5).mul_(1 / math.sqrt(2 * math.pi))
    d = torch.addcmul(torch.erf(x / math.sqrt(2)).add_(1).mul_(0.5), x, density)
    absolute = clean((x * x).add_(5).mul_(density).mul_(x.abs())).add_(d.abs()).add_(1.5)
    if approximate != "none":
        near = x.abs().clamp(max=6.0)
        absolute += near * (1 + 0.134 * near * near) * 2 + 2
    return gradient(ctx, y, g, x, d, lambda r: r + density * (2 - x * x).abs_(), absolute)


@rule("silu_backward")
def silu_backward(ctx: BoundMode, y: Tensor, g: Tensor, x: Tensor) -> Err:
    """d = σ(1 + x(1 − σ)): |d'| = |σ(1 − σ)(2 + x(1 − 2σ))| + 0.35λe; σ is known to (9 + 2.4|x|)u of itself and 1 − σ
    to an absolute 3u, so d to σ(12 + 6|x|)u; as in ``silu``, all of y where exp(−x) overflows."""
    s = torch.sigmoid(x)
    rest = 1 - s
    absolute = clean(x.abs().mul_(6).add_(12).mul_(s))
    d = s * (1 + x * rest)
    e = gradient(ctx, y, g, x, d, lambda r: r.mul_(0.35).add_((s * rest * (2 + x * (rest - s))).abs_()), absolute)
    return Err(plus(e.c, beyond_exp(ctx, y, x)), e.i, e.und)


@rule("sigmoid_backward")
def sigmoid_backward(ctx: BoundMode, y: Tensor, g: Tensor, s: Tensor) -> Err:
    """d = s(1 − s): |d'| = |1 − 2s| + λe, 1 − s rounds once."""
    return gradient(ctx, y, g, s, s * (1 - s), lambda r: r.add_((1 - 2 * s).abs_()), s * 1.0)


@rule("tanh_backward")
def tanh_backward(ctx: BoundMode, y: Tensor, g: Tensor, t: Tensor) -> Err:
    """d = 1 − t²: |d'| = 2|t| + λe, t² rounds once."""
    square = t * t
    return gradient(ctx, y, g, t, 1 - square, lambda r: r.add_(t.abs(), alpha=2.0), square)


@rule("mish_backward")
def mish_backward(ctx: BoundMode, y: Tensor, g: Tensor, x: Tensor) -> Err:
    """d = t + x·σ(x)(1 − t²), t = tanh(softplus x): |d'| <= 1.2; t is known to 7u and 1 − t² to 14u."""
    t, s = torch.tanh(torch.nn.functional.softplus(x)), torch.sigmoid(x)
    d = t + x * s * (1 - t * t)
    absolute = clean(x.abs() * s).clamp_(max=20.0).mul_(14).add_(d.abs(), alpha=4).add_(7)
    return gradient(ctx, y, g, x, clean(d), lambda r: torch.full_like(r, 1.2), absolute)


@rule("softplus_backward")
def softplus_backward(ctx: BoundMode, y: Tensor, g: Tensor, x: Tensor, beta: float, threshold: float) -> Err:
    """d = σ(βx), known to (9 + 2.4|βx|)u of itself, and to exp(−20) at the threshold: |d'| <= β/4."""
    d = torch.sigmoid(x * beta)
    absolute = clean(x.abs().mul_(2.4 * abs(beta)).add_(9).mul_(d).clamp_(max=16.0)) + (x * beta > threshold - 1) * (
        3e-9 / ctx.u
    )
    return gradient(ctx, y, g, x, d, lambda r: torch.full_like(r, abs(beta) / 4), absolute)


@rule("log_sigmoid_backward")
def log_sigmoid_backward(ctx: BoundMode, y: Tensor, g: Tensor, x: Tensor, buffer: Tensor) -> Err:
    """d = σ(−x), built as 1 − z/(1 + z) for x < 0: known to 4u + (9 + 2.4|x|)u of itself; |d'| <= 1/4."""
    d = torch.sigmoid(-x)
    absolute = clean(x.abs().mul_(2.4).add_(9).mul_(d).clamp_(max=20.0)).add_(4)
    return gradient(ctx, y, g, x, d, lambda r: torch.full_like(r, 0.25), absolute)


@rule("elu_backward")
def elu_backward(
    ctx: BoundMode, y: Tensor, g: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, x: Tensor
) -> Err:
    """d = s, or sα·exp(x) (= result + sα) for x < 0: the variation of d, known to (4 + |x|)u of itself or 2sα·u."""
    func = torch.ops.aten.elu_backward
    one = torch.ones_like(g)
    d = func(one, alpha, scale, input_scale, is_result, x)
    part, _ = variation(ctx, d, lambda v: func(one, alpha, scale, input_scale, is_result, v), x)
    size = g.abs()
    part = Err(None if part.c is None else part.c * size, None if part.i is None else part.i * size, part.und)
    absolute = clean(x.abs().clamp(max=100.0).add_(4).mul_(d.abs())).add_(2 * abs(alpha * scale))
    eg = ctx.err(g)
    fresh = torch.addcmul(ctx.fresh(y, 2.0), size, absolute, value=ctx.u)
    return linear(ctx, y, [(eg, None if eg.exact else d.abs()), (part, 1)], fresh)


@rule("hardswish_backward")
def hardswish_backward(ctx: BoundMode, y: Tensor, g: Tensor, x: Tensor) -> Err:
    """d = 0, x/3 + 1/2 or 1, with jumps of 1/2 at ±3."""
    inside = (x > -3) & (x < 3)
    d = torch.where(inside, x / 3 + 0.5, (x >= 3).to(x.dtype))
    e = kinked(ctx, y, g, x, [-3.0, 3.0], lambda: d.abs(), 0.5)
    smooth = gradient(
        ctx, y, torch.where(inside, g, 0.0), x, d, lambda r: torch.full_like(r, 1 / 3), torch.ones_like(g)
    )
    return Err(plus(e.c, smooth.c), plus(e.i, smooth.i), e.und)


@rule("hardsigmoid_backward")
def hardsigmoid_backward(ctx: BoundMode, y: Tensor, g: Tensor, x: Tensor) -> Err:
    """d = 1/6 inside ±3, else 0; + 2u|y|."""
    e = kinked(ctx, y, g, x, [-3.0, 3.0], lambda: ((x > -3) & (x < 3)).to(x.dtype) / 6, 1 / 6)
    return Err(e.c, plus(e.i, ctx.fresh(y, 2.0)), e.und)


@rule("mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward")
def clipped_difference(
    ctx: BoundMode, y: Tensor, g: Tensor, x: Tensor, target: Tensor, reduction: int, bound: float = math.inf
) -> Err:
    """y = k·g·clip(d, −b, b), d = x − target, in units of b for smooth L1, doubled and never clipped for squares; k is
    1/N where a mean is taken (``reduction`` 1). |clip|·k·e_g + k|g|(e_x + e_t) where |d| <= b + λ(e_x + e_t), +
    5u|y|: a clip is continuous. For b = 0, the sign, either sign where |d| <= λ(e_x + e_t). Where steps are stored, d
    and k·d are."""
    ex, et = ctx.err(x), ctx.err(target)
    unit = 2.0 if bound == math.inf else 1 / bound if bound and ctx.current.startswith("smooth") else 1.0
    k = unit / (max(1, ctx.count(y)) if reduction == 1 else 1)
    size = g.abs() * k
    d = x - target
    total = plus(ex.total(), et.total())
    eg, jump, slope = ctx.err(g), None, None
    if total is not None:
        reach = total * ctx.lam
        near = d.abs().sub_(reach) <= bound
        if bound:
            slope = near.to(y.dtype).mul_(size)
        else:
            jump = ctx.jump((near & (reach > 0)).to(y.dtype).mul_(size), 2.0)
    clip = None if eg.exact else (d.clamp(-bound, bound) if bound else d.sign()).abs_().mul_(k)
    parts = [(eg, clip, g), (Err(jump), 1)]
    if bound:
        parts += [(ex, slope, x), (et, slope, target)]
    fresh = ctx.fresh(y, 5.0)
    if ctx.model.u_step:
        fresh.add_(y.abs(), alpha=ctx.model.u_step).add_(g.abs(), alpha=ctx.model.eta_step)
    return linear(ctx, y, parts, fresh, either(ex.und, et.und))


@rule("mse_loss", "smooth_l1_loss", "huber_loss")
def loss(ctx: BoundMode, y: Tensor, x: Tensor, target: Tensor, reduction: int = 1, bound: float = math.inf) -> Any:
    """y = d², d = x − target, or d²/2 up to |d| = b and b(|d| − b/2) beyond, over b for smooth L1 (for b = 0: |d|): the
    slope at |d| + λ(e_x + e_t) times e_x + e_t, + 4u·y; where steps are stored, d and its half square are. A mean or a
    sum of that is one."""
    if reduction:
        function = ctx.function
        with ctx:
            each = function(x, target, 0) if bound == math.inf else function(x, target, 0, bound)
            total = each.mean() if reduction == 1 else each.sum()
        return ctx.adopt(y, (total,))
    ex, et = ctx.err(x), ctx.err(target)
    whole, slope = plus(ex.total(), et.total()), None
    if whole is not None:
        slope = torch.sub(x, target).abs_().add_(whole * ctx.lam)
        if bound == math.inf:
            slope.mul_(2)
        elif ctx.current.startswith("smooth"):
            slope = slope.div_(bound).clamp_(max=1.0) if bound else torch.ones_like(slope)
        else:
            slope.clamp_(max=bound)
    fresh = ctx.fresh(y, 4.0)
    if ctx.model.u_step:
        fresh.add_(y, alpha=2 * ctx.model.u_step).add_(ctx.model.eta_step)
    return linear(ctx, y, [(ex, slope, x), (et, slope, target)], fresh)
