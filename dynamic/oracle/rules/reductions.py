"""Reductions: sums, means, variances, norms, products, extrema, scans. Each sum obeys the law in ``sums``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from kcontract.dynamic.oracle.dtypes import Tensor
from kcontract.dynamic.oracle.registry import rule
from kcontract.dynamic.oracle.rules.algebra import clean, linear
from kcontract.dynamic.oracle.rules.arithmetic import sqrt as sqrt_rule
from kcontract.dynamic.oracle.sums import axes, norm, sample_rows, structured, sum_terms
from kcontract.dynamic.oracle.tables import Err, anywhere, either, plus

if TYPE_CHECKING:
    from kcontract.dynamic.oracle.mode import BoundMode


@rule("sum", "nansum")
def total(ctx: BoundMode, y: Tensor, x: Tensor, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Err:
    """y = Σx: Σc + sqrt(Σi²) and the law of ``sums`` with N the length of that reduction."""
    if not y.is_floating_point() or not x.is_floating_point():
        mask = ctx.err(x).und
        return Err(None, None, None if mask is None else mask.any().expand(y.shape))
    return sum_terms(ctx, "sum", x, ctx.err(x), y, axes(dim, x.dim()), keepdim)


@rule("mean")
def mean(ctx: BoundMode, y: Tensor, x: Tensor, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Err:
    """y = Σx/N: the error of the sum over N, + 2u|y| for the quotient."""
    n = x.numel() // max(y.numel(), 1)
    e = sum_terms(ctx, "mean", x, ctx.err(x), y * n, axes(dim, x.dim()), keepdim)
    return linear(ctx, y, [(e, 1 / max(n, 1))], ctx.fresh(y, 2.0))


def variance_error(
    ctx: BoundMode, x: Tensor, e: Err, dims: tuple[int, ...], mean_: Tensor, var: Tensor, divisor: float
) -> tuple[Err, Err]:
    """Errors of the mean (keepdim) and of the variance Σ(x − mean)²/divisor, two-pass or Welford.

    e_m is a sum's error over N + 2u|m|; where that sum is exact, the law of ``sums`` + u|m|N/2 for a running mean.
    The squares are summed
    like any N positive terms; a shift of the mean by e adds N/divisor·e² and no first-order term in the two-pass
    form; a running mean errs by up to e_m at each step, and the next term's deviation is independent of that error, so
    Welford's adds 4·e_m·sqrt(var/N) (worst case: any order, 2·e_m·sqrt(var)); rounding of x − m adds
    4u·sqrt(var)·|m|/sqrt(N) (random signs) + u²m².
    Chan, Golub, LeVeque, "Algorithms for computing the sample variance" (1983).
    """
    n = 1
    for d in dims:
        n *= x.shape[d]
    em = sum_terms(ctx, "mean", x, e, mean_ * n, dims, True)
    if em.exact:  # a sum on a lattice: a running mean is on none, and rounds at each step with weight k/N
        law = (mean_ * mean_).mul_(n * n + n).add_(var, alpha=divisor).clamp_(min=0.0).mul_(n / 3 + 1)
        em = Err(mean_.abs().mul_(ctx.u * n * n / 2 / ctx.lam), law.sqrt_().mul_(ctx.u))
    em = linear(ctx, mean_, [(em, 1 / n)], ctx.fresh(mean_, 2.0))
    whole = em.total()
    assert whole is not None
    centred = x - mean_
    squares = centred.square()
    es = sum_terms(ctx, "variance", squares, Err(), var * divisor, dims, True)
    deviation = var.clamp(min=0.0).sqrt()
    fresh = ctx.fresh(var, 4.0)
    fresh.addcmul_(deviation, mean_.abs(), value=4 * ctx.u / n**0.5).addcmul_(mean_, mean_, value=ctx.u**2)
    drift = 2.0 if ctx.lam == 1.0 else min(2.0, 4 / n**0.5)
    extra = torch.addcmul(deviation * whole * drift, whole, whole, value=ctx.lam * n / max(divisor, 1))
    parts: list[tuple[Any, ...]] = [(es, 1 / max(divisor, 1)), (Err(extra), 1)]
    if e.c is not None or e.i is not None:
        size = centred.abs()
        c = None if e.c is None else (size * e.c).sum(dims, keepdim=True).mul_(2 / max(divisor, 1))
        i = None if e.i is None else norm(size * e.i, 2, dims, keepdim=True).mul_(2 / max(divisor, 1))
        second = e.total()
        bend = (second * second).sum(dims, keepdim=True).mul_(ctx.lam / max(divisor, 1))  # type: ignore[operator]
        parts.append((Err(plus(c, bend), i), 1))
    ev = linear(ctx, var, parts, fresh, em.und)
    return em, ev


def _squeeze(e: Err, like: Tensor) -> Err:
    return Err(*(None if p is None else p.reshape(like.shape) for p in e))


@rule("var", "var_mean", "std", "std_mean")
def variance(
    ctx: BoundMode, y: Any, x: Tensor, dim: Any = None, unbiased: Any = True, keepdim: bool = False, *,
    correction: Any = None, **kwargs: Any,
) -> Any:  # fmt: skip
    """Variance or its root, and the mean: see ``variance_error``; std adds the rule of ``sqrt``."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    dims = axes(dim, x.dim())
    n = 1
    for d in dims:
        n *= x.shape[d]
    correction = (1 if unbiased else 0) if correction is None else float(correction)
    var, mean_ = torch.var_mean(x, dims, correction=correction, keepdim=True)
    em, ev = variance_error(ctx, x, ctx.err(x), dims, mean_, var, n - correction)
    first = y[0] if isinstance(y, tuple) else y
    if "std" in ctx.current:
        ctx.tables.put(var, ev)
        ev = sqrt_rule(ctx, var.sqrt(), var)
    ev = _squeeze(ev, first)
    return (ev, _squeeze(em, y[1])) if isinstance(y, tuple) else ev


@rule("linalg_vector_norm", "norm")
def vector_norm(
    ctx: BoundMode, y: Tensor, x: Tensor, p: Any = 2, dim: Any = None, keepdim: bool = False, **kwargs: Any
) -> Err:
    """y = (Σ|x|^p)^(1/p): p = 2: (Σ|x|e/y and the sum's error of x² over 2y, the
    terms' own p·u added up) + 3u|y|; p = 1 a sum; p = ±Inf an
    extremum; any other p, the same with |x|^(p − 1). Where y <= λe the root's error [0, sqrt] is taken."""
    p = 2.0 if p is None else float(p)
    dims = axes(dim, x.dim())
    e = ctx.err(x)
    if p == 0.0:  # the number of terms that are not 0
        size = e.total()
        near = None if size is None else (x.abs() <= size * ctx.lam) & (size > 0)
        return largest_error(Err(None, None, either(e.und, near)), dims, keepdim)
    if p == 1.0:
        return sum_terms(ctx, "norm", x.abs(), e, y, dims, keepdim)
    if p in (float("inf"), float("-inf")):
        return largest_error(e, dims, keepdim)
    terms = x * x if p == 2.0 else x.abs().pow_(p)
    slope = None if e.c is None and e.i is None else x.abs().pow_(p - 1).mul_(p)
    power = y.pow(p)
    es = sum_terms(ctx, "norm", terms, linear(ctx, terms, [(e, slope)], None), power, dims, keepdim)
    es = linear(ctx, power, [(es, 1)], ctx.fresh(power, p).add_(ctx.model.eta * (x.numel() // max(y.numel(), 1))))
    whole = es.total()
    if whole is None:
        return Err(None, ctx.fresh(y, 3.0), es.und)
    reach = whole * ctx.lam
    low = (power - reach).clamp_(min=0.0).pow_(1 / p)
    high = (power + reach).pow_(1 / p)
    gain = clean(torch.maximum(y - low, high - y) / reach)
    flushed = (power > 0) & (power < reach)
    return linear(ctx, y, [(es, gain)], ctx.fresh(y, 3.0), flushed if anywhere(flushed) else None)


def largest_error(e: Err, dims: tuple[int, ...], keepdim: bool) -> Err:
    """An extremum errs by at most the largest error of its terms."""
    whole = e.total()
    und = e.und
    if und is not None:
        for d in sorted(dims, reverse=True):
            und = und.any(d, keepdim=keepdim)
    return Err(None if whole is None else whole.amax(dims, keepdim=keepdim), None, und)


@rule("amax", "amin")
def extremum(ctx: BoundMode, y: Tensor, x: Tensor, dim: Any = (), keepdim: bool = False) -> Err:
    """y = max x: at most the largest error of the terms that may win, no rounding."""
    return winner(ctx, x, y, axes(dim, x.dim()), keepdim)


def winner(ctx: BoundMode, x: Tensor, y: Tensor, dims: tuple[int, ...], keepdim: bool) -> Err:
    """max(|max x̂ − max x|) <= the largest e among terms within their λe (and the winner's) of the extremum."""
    e = ctx.err(x)
    whole = e.total()
    if whole is None:
        return largest_error(e, dims, keepdim)
    best = y
    if not keepdim:
        for d in sorted(dims):
            best = best.unsqueeze(d)
    near = (x - best).abs_() <= (whole + whole.amax(dims, keepdim=True)) * ctx.lam
    if ctx.wants_indices:
        ctx.alone_there.put(y, (None, None, near.sum(dims, keepdim=keepdim) == 1))
    parts = [None if p is None else torch.where(near, p, 0.0).amax(dims, keepdim=keepdim) for p in (e.c, e.i)]
    return Err(parts[0], parts[1], largest_error(e, dims, keepdim).und)


@rule("max", "min")
def extreme_with_index(ctx: BoundMode, y: Any, x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """Value as ``amax``; the index may be any within the error of the extremum."""
    if isinstance(dim, torch.Tensor):
        from kcontract.dynamic.oracle.rules.selection import extreme

        return extreme(ctx, y, x, dim)
    if not isinstance(y, tuple):
        return winner(ctx, x, y, axes(None, x.dim()), False)
    value = winner(ctx, x, y[0], axes(dim, x.dim()), keepdim)
    return value, choice(ctx, x, y[1], y[0], int(dim), keepdim)


@rule("argmax", "argmin")
def index_of_extreme(ctx: BoundMode, y: Tensor, x: Tensor, dim: Any = None, keepdim: bool = False) -> Err:
    """An index is undetermined where another term lies within the errors (a tie: any choice)."""
    if dim is None:
        flat = x.reshape(-1)
        ctx.tables.put(flat, ctx.err(x)) if flat.untyped_storage()._cdata != x.untyped_storage()._cdata else None
        best = flat[y.reshape(())]
        e = ctx.err(flat)
        whole = e.total()
        slack = 0.0 if whole is None else (whole + whole.reshape(-1)[y.reshape(())]) * ctx.lam
        several = ((flat - best).abs() <= slack).sum() > 1
        ctx.choose(y, flat, e, 0, False)
        return Err(None, None, several.expand(y.shape))
    best = x.gather(int(dim), y if keepdim else y.unsqueeze(int(dim)))
    return choice(ctx, x, y, best if keepdim else best.squeeze(int(dim)), int(dim), keepdim)


def choice(ctx: BoundMode, x: Tensor, index: Tensor, value: Tensor, dim: int, keepdim: bool) -> Err:
    """Marks an index whose extremum another term may equal, and remembers what else would be right."""
    e = ctx.err(x)
    if x.dim() == 0:
        return Err()
    best = value if keepdim else value.unsqueeze(dim)
    whole = e.total()
    if whole is None:
        several = (x == best).sum(dim, keepdim=keepdim) > 1
    else:
        slack = (whole + whole.amax(dim, keepdim=True)) * ctx.lam
        several = ((x - best).abs_() <= slack).sum(dim, keepdim=keepdim) > 1
    ctx.choose(index, x, e, dim, keepdim)
    return Err(None, None, several if anywhere(several) else None)


@rule("prod")
def prod(ctx: BoundMode, y: Tensor, x: Tensor, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Err:
    """y = Πx: |y|·(Σ e/|x| + (N − 1)u) where no term may vanish, else Π(|x| + λe) − |y|; partial products may
    overflow: undetermined where Π max(|x|, 1) or Π min(|x|, 1) leaves the accumulator's range."""
    dims = axes(dim, x.dim())
    n = x.numel() // max(y.numel(), 1)
    size = x.abs()
    e = ctx.err(x)
    whole = e.total()
    logs = size.log2()
    over = logs.clamp(min=0.0).sum(dims, keepdim=keepdim) > 127
    under = (logs.clamp(max=0.0).sum(dims, keepdim=keepdim) < -126) & (over | (y.abs() > ctx.model.eta))
    c = None
    if whole is not None:
        grown = size + whole * ctx.lam
        for d in sorted(dims, reverse=True):
            grown = grown.prod(d, keepdim=keepdim)
        c = (grown - y.abs()).div_(ctx.lam)
    return Err(
        c, ctx.fresh(y, n / (1.0 if ctx.lam == 1.0 else 2.0)), either(largest_error(e, dims, keepdim).und, over | under)
    )


@rule("any", "all")
def any_all(ctx: BoundMode, y: Tensor, x: Tensor, dim: Any = None, keepdim: bool = False) -> Err:
    """A logical reduction may differ where a term may."""
    return largest_error(Err(None, None, ctx.err(x).und), axes(dim, x.dim()), keepdim)


@rule("cumsum")
def cumsum(ctx: BoundMode, y: Tensor, x: Tensor, dim: int, **kwargs: Any) -> Err:
    """y_k = Σ_{j<=k} x_j: u·sqrt(Σ_{j<=k} y_j²) with independent roundings (any scan tree adds no more terms than the
    sequential one); a sum that conspires, gamma_k·Σ|x|. Carried: Σc and sqrt(Σi²), cumulative."""
    if not y.is_floating_point():
        return Err(None, None, ctx.err(x).und)
    e, n = ctx.err(x), x.shape[dim] if x.dim() else 1
    c = None if e.c is None else e.c.cumsum(dim)
    i = None if e.i is None else (e.i * e.i).cumsum(dim)
    ctx.record("cumsum", "u·sqrt(Σ prefix²)", n)
    worst = ctx.lam == 1.0 or n <= 2
    if not worst and n > 16 and y.numel():
        worst = structured(sample_rows(x, (dim % x.dim(),)), n, ctx.u, float(y.abs().max()))
    if worst:
        c = plus(c, x.abs().cumsum(dim).mul_(ctx.model.factor(n) / ctx.lam))
    else:
        steps = (x * x).cumsum_(dim)
        steps = torch.maximum(steps, y * y, out=steps).cumsum_(dim)
        i = steps.mul_(ctx.u**2) if i is None else i.add_(steps, alpha=ctx.u**2)
    i = None if i is None else i.sqrt_()
    und = None if e.und is None else e.und.cumsum(dim) > 0
    return Err(c, i, und)


@rule("cumprod")
def cumprod(ctx: BoundMode, y: Tensor, x: Tensor, dim: int, **kwargs: Any) -> Err:
    """y_k = Π_{j<=k} x_j: |y_k|·(k·u + Σ e_j/(|x_j| − λe_j)); undetermined after a factor that may vanish."""
    e = ctx.err(x)
    whole = e.total()
    count = torch.arange(1, x.shape[dim] + 1, dtype=y.dtype, device=y.device)
    count = count.reshape([-1 if d == dim % x.dim() else 1 for d in range(x.dim())])
    fresh = y.abs() * count * ctx.u
    c, und = None, None if e.und is None else e.und.cumsum(dim) > 0
    if whole is not None:
        low = x.abs() - whole * ctx.lam
        c = (whole / low.clamp(min=0.0)).nan_to_num(0.0, torch.inf).cumsum(dim) * y.abs()
        und = either(und, ((low <= 0) & (whole > 0)).cumsum(dim) > 0)
    return Err(c, ctx.tiny(y, fresh), und)


@rule("cummax", "cummin")
def cumulative_extreme(ctx: BoundMode, y: Any, x: Tensor, dim: int) -> tuple[Err, Err]:
    """Values err by the largest error so far; indices are undetermined where the error is not zero."""
    e = ctx.err(x)
    whole = e.total()
    if whole is None:
        return Err(None, None, e.und), Err(None, None, e.und)
    return Err(whole.cummax(dim).values, None, e.und), Err(None, None, whole > 0)


@rule("topk", "sort", "kthvalue", "median")
def ordered(ctx: BoundMode, y: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """The k-th value errs by at most the largest error along the axis (sorting is 1-Lipschitz in the maximum norm);
    its index may be any whose term lies within the errors."""
    e = ctx.err(x)
    if not isinstance(y, tuple):  # the median of all terms
        return largest_error(e, axes(None, x.dim()), False)
    dim = _axis(ctx.current, args, kwargs)
    whole = e.total()
    value = Err(None, None, None if e.und is None else e.und.any(dim, keepdim=True).expand(y[0].shape))
    if x.dim() == 0:
        return e, Err()
    keep = y[0].dim() == x.dim()
    if whole is not None:
        top = whole.amax(dim, keepdim=keep)
        value = Err(top.expand(y[0].shape), None, value.und)
    source = x.unsqueeze(-1) if not keep else None
    best = y[0] if keep else y[0].unsqueeze(dim)
    if best.shape[dim] * x.shape[dim] > 1 << 22 or (source is not None and best.shape[dim] != 1):
        doubt = None if whole is None else (top if keep else top.unsqueeze(dim)).expand(best.shape) > 0
        doubt = None if doubt is None else doubt.reshape(y[1].shape)
    else:
        slack: Any = 0.0 if whole is None else 2 * whole.amax(dim, keepdim=True).unsqueeze(-1) * ctx.lam
        terms, wanted = x.movedim(dim, -1), best.movedim(dim, -1)
        gaps = (terms.unsqueeze(-2) - wanted.unsqueeze(-1)).abs_()
        limit = slack if whole is None else slack.movedim(dim, -2) if slack.dim() == gaps.dim() else slack
        count = (gaps <= limit).sum(-1).movedim(-1, dim)
        doubt = (count > 1) if keep else (count > 1).reshape(y[1].shape)
    ctx.choose(y[1], x, e, dim, keep)
    return value, Err(None, None, doubt)


def _axis(op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    if "dim" in kwargs:
        return int(kwargs["dim"])
    place = {"topk": 1, "sort": 0, "kthvalue": 1, "median": 0}[op]
    if op == "sort" and args and isinstance(args[0], bool):
        return -1
    return int(args[place]) if len(args) > place else -1
