"""Softmax, log-softmax, logsumexp and their gradients, with the maximum subtracted first (online forms too)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from kcontract.dynamic.oracle.dtypes import Tensor
from kcontract.dynamic.oracle.fallback import variation
from kcontract.dynamic.oracle.registry import rule
from kcontract.dynamic.oracle.rules.algebra import clean, linear
from kcontract.dynamic.oracle.sums import axes, norm, sum_terms
from kcontract.dynamic.oracle.tables import Err, plus

if TYPE_CHECKING:
    from kcontract.dynamic.oracle.mode import BoundMode


def sum_of_exps(ctx: BoundMode, e: Err, p: Tensor, depth: Tensor, dims: tuple[int, ...]) -> Err:
    """The relative error (keepdim) of D = Σ exp(x − m) with p = exp(x − m)/D and ``depth`` = m − x.

    The sum's own law on the terms p (S = 1). Each term errs by (5 + 2.4(m − x))·u of itself, independently of the
    others: sqrt(Σ of squares). The inputs' errors enter as Σ p·c and sqrt(Σ (p·i)²).
    """
    one = torch.ones([1 if d in dims else s for d, s in enumerate(p.shape)], dtype=p.dtype, device=p.device)
    carried = Err(None if e.c is None else p * e.c, None if e.i is None else p * e.i, e.und)
    found = sum_terms(ctx, "softmax", p, carried, one, dims, True)
    own = depth.mul(2.4).add_(5).mul_(p)
    size = norm(own.nan_to_num_(0.0), 2, dims, keepdim=True).mul_(ctx.u)
    return Err(found.c, size if found.i is None else torch.hypot(found.i, size), found.und)


def depths(x: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor, bool]:
    """m − x and m = max x (keepdim); and whether all of it is finite."""
    if len(dims) == 1:
        low, top = torch.aminmax(x, dim=dims[0], keepdim=True)
    else:
        low, top = x.amin(dims, keepdim=True), x.amax(dims, keepdim=True)
    return top - x, top, bool(torch.isfinite((top - low).sum()))


@rule("_softmax", "_safe_softmax")
def softmax(ctx: BoundMode, y: Tensor, x: Tensor, dim: int, *args: Any, **kwargs: Any) -> Err:
    """y = exp(x − m)/D: y·(e_x + e_D/D) + u·y·(9 + 2.4(m − x)) + eta, with D as in ``sum_of_exps``; the relative
    error is (exp(λr) − 1)/λ where r is large, at most 1 in all (but where gradients are asked for: backward kernels
    form exp(x − lse) again, which is then no share of 1). Where every term is −Inf the reference's NaN stands."""
    if x.dim() == 0:
        return Err(None, None, ctx.err(x).und)
    dims = axes(dim, x.dim())
    e = ctx.err(x)
    fresh, _, finite = depths(x, dims)
    p = y if finite else y.nan_to_num(0.0)
    ed = sum_of_exps(ctx, e, p, fresh, dims)
    shared = ed.total()
    fresh = fresh.mul_(2.4).mul_(p)
    if not finite:
        fresh.nan_to_num_(0.0, 0.0)
    fresh = ctx.with_eta(fresh.add_(p, alpha=9), ctx.u)
    c, i = plus(shared, e.c), e.i
    whole: Any = plus(c, i)
    top = float(whole.max().nan_to_num(0.0, 1e3)) * ctx.lam if whole is not None and whole.numel() else 0.0
    if top > 0.01:
        reach = whole * ctx.lam
        grow = clean(torch.expm1(reach.clamp(max=600.0)).div_(reach)).clamp_(min=1.0)
        c = c * grow
        if not ctx.wants_indices:
            c = torch.minimum(c, (1 / (p * ctx.lam)).nan_to_num_(0.0, 1e300))
        i = None if i is None else i * grow
    out = c * p
    return Err(out if finite else clean(out), fresh if i is None else torch.addcmul(fresh, i, p), ed.und)


@rule("_log_softmax")
def log_softmax(ctx: BoundMode, y: Tensor, x: Tensor, dim: int, *args: Any, **kwargs: Any) -> Err:
    """y = x − m − ln D, or x − (m + ln D): e_x + e_D/D + u(|y| + (m − x) + 2·ln D + 2|m| + 6): the second form
    rounds at the size of the maximum, and where steps are stored in half, m + ln D is one."""
    if x.dim() == 0:
        return Err(None, None, ctx.err(x).und)
    dims = axes(dim, x.dim())
    e = ctx.err(x)
    fresh, top, finite = depths(x, dims)
    ed = sum_of_exps(ctx, e, y.exp(), fresh, dims)
    # m − x <= |y| + ln D, so that u(|y| + m − x) <= u(2(m − x) + ln D).
    logs = torch.full((), math.log(max(x.shape[dims[0]], 1)), dtype=x.dtype, device=x.device)
    row = top.abs().add_(logs).mul_(2 * ctx.u + ctx.model.u_step / 2).add_(logs + 6, alpha=ctx.u)
    fresh = torch.add(row, fresh, alpha=2 * ctx.u, out=fresh)
    if not finite:
        fresh.nan_to_num_(0.0, 0.0)
    shared = plus(ed.total(), e.c)
    return Err(None if shared is None else shared.expand(y.shape), fresh if e.i is None else fresh.add_(e.i), ed.und)


@rule("logsumexp")
def logsumexp(ctx: BoundMode, y: Tensor, x: Tensor, dim: Any, keepdim: bool = False) -> Err:
    """y = m + ln Σ exp(x − m): e_D/D as in ``sum_of_exps``, + u(2|y| + 2|m| + 6). Where steps are stored in half, the
    differences, exponentials, D and ln D are some: u_step/2·(2 + |ln D| + Σ p(m − x))."""
    dims = axes(dim, x.dim())
    full = y if keepdim else torch.logsumexp(x, dims, keepdim=True)
    top = x.amax(dims, keepdim=True)
    p = clean((x - full).exp_())
    ed = sum_of_exps(ctx, ctx.err(x), p, top - x, dims)
    fresh = clean(full.abs().mul_(2).add_(top.abs(), alpha=2).add_(6).mul_(ctx.u))
    if ctx.model.u_step:
        depth = clean(p * (top - x)).sum(dims, keepdim=True)
        fresh.add_(clean(depth.add_((full - top).abs_()).add_(2)), alpha=ctx.model.u_step / 2)
    out = linear(ctx, full, [(ed, 1)], fresh)
    return Err(*(None if q is None else q.reshape(y.shape) for q in out))


@rule("_softmax_backward_data")
def softmax_backward(ctx: BoundMode, y: Tensor, g: Tensor, p: Tensor, dim: int, input_dtype: Any) -> Err:
    """y = p(g − d), d = Σ g·p: p·(e_g + e_d) + |g − d|·e_p + u(2|y| + p(|g| + |d|)); e_d is the error of a sum of
    products, |g|e_p + p·e_g each."""
    dims = axes(dim, g.dim())
    eg, ep = ctx.err(g), ctx.err(p)
    terms = g * p
    size = g.abs()
    d = terms.sum(dims, keepdim=True)
    own = linear(ctx, terms, [(eg, p), (ep, size)], ctx.fresh(terms, 1.0))
    ed = sum_terms(ctx, "softmax backward", terms, own, d, dims, True)
    fresh = torch.addcmul(ctx.fresh(y, 2.0), p, size.add_(d.abs()), value=ctx.u)
    return linear(ctx, y, [(eg, p), (ed.systematic(), p), (ep, None if ep.exact else (g - d).abs_())], fresh)


@rule("_log_softmax_backward_data")
def log_softmax_backward(ctx: BoundMode, y: Tensor, g: Tensor, logp: Tensor, dim: int, input_dtype: Any) -> Err:
    """y = g − exp(logp)·d, d = Σ g: e_g + p·e_d + p|d|·e_logp + u(|y| + p|d|(5 + 2.4|logp|))."""
    dims = axes(dim, g.dim())
    eg, el = ctx.err(g), ctx.err(logp)
    d = g.sum(dims, keepdim=True)
    ed = sum_terms(ctx, "log_softmax backward", g, eg, d, dims, True)
    p = logp.exp()
    pd = p * d.abs()
    fresh = ctx.fresh(y, 1.0).add_(clean(logp.abs().mul_(2.4).add_(5).mul_(pd)), alpha=ctx.u)
    return linear(ctx, y, [(eg, 1), (ed.systematic(), p), (el, None if el.exact else pd)], fresh)


@rule("logaddexp", "logaddexp2")
def log_add_exp(ctx: BoundMode, y: Tensor, a: Tensor, b: Tensor) -> Err:
    """y = m + ln(1 + exp(−|a − b|)), or in base 2: the variation of each argument, + u(2|y| + 2|m| + 14): the two parts
    may cancel, the logarithm errs by an absolute 6u/ln 2 and the exponential's (5 + 2.4d)·exp(−d) is below 5u."""
    func = ctx.function
    parts = [
        (variation(ctx, y, lambda v: func(v, b), a)[0], 1, a),
        (variation(ctx, y, lambda v: func(a, v), b)[0], 1, b),
    ]
    fresh = y.abs().mul_(2).add_(torch.maximum(a, b).abs(), alpha=2).add_(14).mul_(ctx.u)
    return linear(ctx, y, parts, fresh.nan_to_num_(0.0, 0.0))
