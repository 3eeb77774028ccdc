"""Layer, group and batch normalisation forward; RMS norm; their gradients go through torch's decompositions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from kcontract.dynamic.oracle.dtypes import Tensor
from kcontract.dynamic.oracle.registry import rule
from kcontract.dynamic.oracle.rules.algebra import clean
from kcontract.dynamic.oracle.rules.reductions import variance_error
from kcontract.dynamic.oracle.tables import Err, anywhere, either, plus

if TYPE_CHECKING:
    from kcontract.dynamic.oracle.mode import BoundMode


def rstd_error(ctx: BoundMode, var: Tensor, ev: Err, eps: float) -> Err:
    """r = (var + eps)^-1/2: e_var/2·(max(var − λe_var, 0) + eps)^-3/2 + 3u·r; undetermined where that is infinite."""
    whole = ev.total()
    assert whole is not None
    low = (var - whole * ctx.lam).clamp_(min=0.0).add_(eps)
    r = (var + eps).rsqrt()
    steep = low.pow(-1.5).mul_(0.5)
    # A bound by the mean value theorem is poor where eps holds the variance up: there take the difference itself.
    gain = torch.minimum(steep, (low.rsqrt() - r).div_(whole * ctx.lam).nan_to_num_(torch.inf))
    pole = ~torch.isfinite(gain)
    gain = gain.nan_to_num_(0.0, 0.0)
    c = None if ev.c is None else ev.c * gain
    i = None if ev.i is None else ev.i * gain
    return Err(c, plus(i, r * (3 * ctx.u)), either(ev.und, pole if anywhere(pole) else None))


def normalised(
    ctx: BoundMode, x: Tensor, e: Err, mean: Tensor, em: Err, r: Tensor, er: Err, w: Tensor | None, b: Tensor | None
) -> Err:
    """y = (x − m)·r·w + b, or x·(r·w) + (b − m·r·w): r|w|(e_x + e_m) + |x − m||w|(e_r + λ…) and the affine
    parameters' errors, + u·(4|x − m|r|w| + 2|m|r|w| + |b| + |y|). Mean and r are shared by the row: systematic."""
    size_w = None if w is None else w.abs()
    scale = r if size_w is None else r * size_w
    centred = (x - mean).abs_()
    reach_m, reach_r = em.total(), er.total()
    c_row = None if reach_m is None else reach_m * scale
    c = None if c_row is None else c_row
    if e.c is not None:
        c = e.c * scale if c is None else torch.addcmul(c, e.c, scale)
    if reach_r is not None:
        lift = reach_r if size_w is None else reach_r * size_w
        if c is None:
            c = centred * lift
        elif c.shape == x.shape:
            c = torch.addcmul(c, centred, lift)
        else:
            c = torch.addcmul(c.expand(x.shape), centred, lift)
        if e.c is not None or e.i is not None:
            c = torch.addcmul(c, e.total(), lift, value=ctx.lam)
    i = centred.mul_(4 * ctx.u).mul_(scale)
    i.add_(mean.abs() * scale, alpha=2 * ctx.u)
    if e.i is not None:
        i.addcmul_(e.i, scale.expand(x.shape))
    und = either(e.und, em.und, er.und)
    for t, gain in ((w, lambda: (x - mean).abs_() * r), (b, lambda: None)):
        if t is None:
            continue
        own = ctx.err(t).total()
        if own is not None:
            part = own if gain() is None else gain() * own
            c = plus(c, part)
    if b is not None:
        i.add_(b.abs(), alpha=2 * ctx.u)
    return Err(None if c is None else clean(c.expand(x.shape)), i.add_(ctx.model.eta), und)


@rule("native_layer_norm")
def layer_norm(
    ctx: BoundMode, y: Any, x: Tensor, shape: Any, w: Tensor | None, b: Tensor | None, eps: float
) -> tuple[Err, ...]:
    """Mean and variance as in ``variance_error`` (N the normalised length), then ``normalised``."""
    dims = tuple(range(x.dim() - len(shape), x.dim()))
    n = 1
    for d in dims:
        n *= x.shape[d]
    var = y[2].pow(-2).sub_(eps).clamp_(min=0.0)
    em, ev = variance_error(ctx, x, ctx.err(x), dims, y[1], var, n)
    er = rstd_error(ctx, var, ev, eps)
    return normalised(ctx, x, ctx.err(x), y[1], em, y[2], er, w, b), em, er


@rule("native_group_norm")
def group_norm(
    ctx: BoundMode, y: Any, x: Tensor, w: Tensor | None, b: Tensor | None, batch: int, channels: int, area: int,
    groups: int, eps: float,
) -> tuple[Err, ...]:  # fmt: skip
    """As ``layer_norm`` over each group of channels."""
    shaped = x.reshape(batch, groups, -1)
    e = Err(*(None if p is None else p.reshape(batch, groups, -1) for p in ctx.err(x)))
    mean, r = y[1].unsqueeze(-1), y[2].unsqueeze(-1)
    var = r.pow(-2).sub_(eps).clamp_(min=0.0)
    em, ev = variance_error(ctx, shaped, e, (2,), mean, var, shaped.shape[-1])
    er = rstd_error(ctx, var, ev, eps)
    full = (batch, groups, channels // groups, area)

    def spread(p: Tensor | None) -> Tensor | None:
        return None if p is None else p.unsqueeze(-1)

    def affine(t: Tensor | None) -> Tensor | None:
        if t is None:
            return None
        return t.reshape(1, groups, channels // groups, 1)

    out = normalised(
        ctx, x.reshape(full), Err(*(None if p is None else p.reshape(full) for p in ctx.err(x))), mean.unsqueeze(-1),
        Err(*map(spread, em)), r.unsqueeze(-1), Err(*map(spread, er)), affine(w), affine(b),
    )  # fmt: skip
    result = Err(*(None if p is None else p.reshape(x.shape) for p in out))
    squeezed = [Err(*(None if p is None else p.reshape(y[1].shape) for p in q)) for q in (em, er)]
    return result, squeezed[0], squeezed[1]


@rule("native_batch_norm", "cudnn_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training",
      "_batch_norm_with_update", "miopen_batch_norm")  # fmt: skip
def batch_norm(ctx: BoundMode, y: Any, x: Tensor, w: Tensor | None, b: Tensor | None, *rest: Any) -> tuple[Err, ...]:
    """Training: as ``layer_norm`` over batch and positions; evaluation: the running statistics are given, e_m = 0 and
    e_r = 3u·r."""
    running = len(rest) >= 2 and isinstance(rest[0], torch.Tensor)
    numbers = [r for r in rest if not isinstance(r, torch.Tensor) and r is not None]
    flags = [r for r in numbers if isinstance(r, bool)]
    eps = float([r for r in numbers if not isinstance(r, bool)][-1])
    op = ctx.current
    training = op == "_batch_norm_with_update" or (bool(flags[0]) if flags else False)
    if op == "_native_batch_norm_legit" and not running:
        training = bool(flags[0])
    shape = (1, -1) + (1,) * (x.dim() - 2)
    dims = (0, *range(2, x.dim()))
    affine = [None if t is None else t.reshape(shape) for t in (w, b)]
    if training:
        mean = x.mean(dims, keepdim=True)
        var = x.var(dims, correction=0, keepdim=True)
        em, ev = variance_error(ctx, x, ctx.err(x), dims, mean, var, x.numel() // x.shape[1])
    else:
        mean, var = rest[0].reshape(shape), rest[1].reshape(shape)
        em = Err(*(None if p is None else p.reshape(shape) for p in ctx.err(rest[0])))
        ev = Err(torch.zeros_like(var))
    er = rstd_error(ctx, var, ev, eps)
    out = normalised(ctx, x, ctx.err(x), mean, em, (var + eps).rsqrt(), er, affine[0], affine[1])
    errs = [out]
    for value, source in zip(y[1:], (em, er), strict=False):
        fits = isinstance(value, torch.Tensor) and value.numel() == mean.numel()
        errs.append(Err(*(None if p is None else p.reshape(value.shape) for p in source)) if fits else Err())
    return tuple(errs + [Err()] * (len(y) - len(errs)))
