"""Softmax, log-softmax, logsumexp and their gradients, with the maximum subtracted first (online forms too)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from kcontract.dynamic.oracle.dtypes import Tensor
from kcontract.dynamic.oracle.registry import rule
from kcontract.dynamic.oracle.rules.algebra import clean, linear
from kcontract.dynamic.oracle.sums import axes, sum_terms
from kcontract.dynamic.oracle.tables import Err, plus

if TYPE_CHECKING:
    from kcontract.dynamic.oracle.mode import BoundMode


def sum_of_exps(ctx: BoundMode, e: Err, p: Tensor, depth: Tensor, dims: tuple[int, ...]) -> tuple[Err, Tensor | None]:
    """The relative error of D = Σ exp(x − m) with p = exp(x − m)/D and ``depth`` = m − x >= 0.

    The sum's own law on the terms p (S = 1); each term errs by (3 + depth)·u of itself; the inputs' errors enter as
    Σ p·c and sqrt(Σ (p·i)²). Returns the error (keepdim) and u·p·(3 + depth).
    """
    one = torch.ones_like(p.narrow(dims[0], 0, 1)) if len(dims) == 1 else p.sum(dims, keepdim=True)
    own = clean(torch.add(depth, 3).mul_(p)).mul_(ctx.u)
    c = None if e.c is None else p * e.c
    i = own if e.i is None else torch.addcmul(own, p, e.i)
    return sum_terms(ctx, "softmax", p, Err(c, i, e.und), one, dims, True), own


@rule("_softmax", "_safe_softmax")
def softmax(ctx: BoundMode, y: Tensor, x: Tensor, dim: int, *args: Any, **kwargs: Any) -> Err:
    """y = exp(x − m)/D: y·(e_x + e_D/D) + u·y·(5 + m − x) + eta, with D as in ``sum_of_exps``; the relative error is
    (exp(λr) − 1)/λ where r is large. Where every term is −Inf the reference's NaN stands."""
    if x.dim() == 0:
        return Err(None, None, ctx.err(x).und)
    dims = axes(dim, x.dim())
    e = ctx.err(x)
    depth = x.amax(dims, keepdim=True).sub(x)
    ed, own = sum_of_exps(ctx, e, y, depth, dims)
    shared = ed.total()
    assert shared is not None and own is not None
    fresh = own.add_(y, alpha=2 * ctx.u).add_(ctx.model.eta)
    c = plus(shared, e.c)
    i = e.i
    whole = plus(c, i)
    top = float(whole.max().nan_to_num(0.0, 1e3)) * ctx.lam if whole is not None and whole.numel() else 0.0
    if top > 0.01:
        reach = whole * ctx.lam  # type: ignore[operator]
        grow = clean(torch.expm1(reach.clamp(max=600.0)).div_(reach)).clamp_(min=1.0)
        limit = (1 / (clean(y) * ctx.lam)).nan_to_num_(0.0, 1e300)
        c = torch.minimum(c * grow, limit)
        i = None if i is None else i * grow
    return Err(clean(c * y), fresh if i is None else torch.addcmul(fresh, i, clean(y)), ed.und)


@rule("_log_softmax")
def log_softmax(ctx: BoundMode, y: Tensor, x: Tensor, dim: int, *args: Any, **kwargs: Any) -> Err:
    """y = x − m − ln D, or x − (m + ln D): e_x + e_D/D + u(|y| + (m − x) + 2·ln D + 2|m|): the second form rounds at the
    size of the maximum, and where steps are stored in half, m + ln D is one."""
    if x.dim() == 0:
        return Err(None, None, ctx.err(x).und)
    dims = axes(dim, x.dim())
    e = ctx.err(x)
    top = x.amax(dims, keepdim=True)
    depth = top.sub(x)
    ed, _ = sum_of_exps(ctx, e, y.exp(), depth, dims)
    logs = (y + depth).abs_().amin(dims, keepdim=True).add_(1).add_(top.abs()).mul_(2 * ctx.u + ctx.model.u_step / 2)
    fresh = ctx.fresh(y, 1.0).add_(depth, alpha=ctx.u).add_(logs)
    if not bool(torch.isfinite(fresh.sum())):
        fresh = fresh.nan_to_num_(0.0, 0.0)
    shared = plus(ed.total(), e.c)
    return Err(None if shared is None else shared.expand(y.shape), fresh if e.i is None else fresh.add_(e.i), ed.und)


@rule("logsumexp")
def logsumexp(ctx: BoundMode, y: Tensor, x: Tensor, dim: Any, keepdim: bool = False) -> Err:
    """y = m + ln Σ exp(x − m): e_D/D as in ``sum_of_exps``, + u(2|y| + 2|m| + 2)."""
    dims = axes(dim, x.dim())
    full = y if keepdim else torch.logsumexp(x, dims, keepdim=True)
    top = x.amax(dims, keepdim=True)
    p = clean((x - full).exp_())
    ed, _ = sum_of_exps(ctx, ctx.err(x), p, clean(top - x), dims)
    fresh = clean(full.abs().mul_(2).add_(top.abs(), alpha=2).add_(2).mul_(ctx.u))
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
    """y = g − exp(logp)·d, d = Σ g: e_g + p·e_d + p|d|·e_logp + u(|y| + p|d|(3 + |logp|))."""
    dims = axes(dim, g.dim())
    eg, el = ctx.err(g), ctx.err(logp)
    d = g.sum(dims, keepdim=True)
    ed = sum_terms(ctx, "log_softmax backward", g, eg, d, dims, True)
    p = logp.exp()
    pd = p * d.abs()
    fresh = ctx.fresh(y, 1.0).add_(clean(logp.abs().add_(3).mul_(pd)), alpha=ctx.u)
    return linear(ctx, y, [(eg, 1), (ed.systematic(), p), (el, None if el.exact else pd)], fresh)
