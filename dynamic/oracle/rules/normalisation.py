"""Layer, group and batch normalisation, and their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from kcontract.dynamic.oracle.dtypes import Tensor
from kcontract.dynamic.oracle.registry import rule
from kcontract.dynamic.oracle.rules.algebra import clean, linear
from kcontract.dynamic.oracle.rules.reductions import variance_error
from kcontract.dynamic.oracle.sums import sum_terms
from kcontract.dynamic.oracle.tables import EXACT, Err, anywhere, either, plus

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


OFFSET = 1.0
"""The mean, in standard deviations, from which sums over x and over its mean are taken apart."""


class _Gradient:
    """What the gradients of y = x̂·w + b, x̂ = (x − m)·r, share; m and r (one shape) broadcast against x.

    With ρ = e_r/r, x̂ errs by (1 + λρ)e + ρ|x̂|, e = r(e_x + e_m) + u(4|x̂| + 4|m|r): it may be formed as x·r − m·r.
    Where steps are stored, so are x − m, x̂, gw and its products: u_step is added to 4u, and to 2u of each of them.
    """

    def __init__(self, ctx: BoundMode, g: Tensor, x: Tensor, mean: Tensor, em: Err, r: Tensor, er: Err) -> None:
        self.ctx, self.g, self.x, self.mean, self.r = ctx, g, x, mean, r
        self.eg, reach, moved = ctx.err(g), er.total(), em.total()
        self.xhat = (x - mean).mul_(r)
        shift = (mean * r).abs_()
        self.offset = float(shift.max()) > OFFSET
        self.rho = None if reach is None else reach / r
        self.grown = 1.0 if self.rho is None else self.rho * ctx.lam + 1
        ex = ctx.err(x)
        i = self.xhat.abs().add_(shift).mul_(4 * ctx.u + ctx.model.u_step)
        if ex.i is not None:
            i.addcmul_(ex.i, r)
        c = plus(ex.c, moved)
        self.e = Err(None if c is None else c * r, i, either(ex.und, em.und, er.und))

    def total(self, terms: Tensor, own: Err, dims: tuple[int, ...], beside: Tensor | None = None) -> tuple[Tensor, Err]:
        """Σ terms over ``dims`` (kept) and its error. ``beside``: the terms are that times x̂; where m is large Σ of
        it times x and m·Σ of it may be formed apart."""
        ctx, op = self.ctx, self.ctx.current
        s = terms.sum(dims, keepdim=True)
        e = sum_terms(ctx, op, terms, own, s, dims, True)
        if beside is not None and self.offset:
            for factor in (self.x, self.mean):
                part = beside * factor * self.r
                law = sum_terms(ctx, op, part, EXACT, part.sum(dims, keepdim=True), dims, True)
                e = Err(plus(e.c, law.c), plus(e.i, law.i), e.und)
        return s, e

    def product(self, factor: Tensor, e: Err) -> tuple[Tensor, Err]:
        """factor·x̂ and its error, but for that of r."""
        terms = factor * self.xhat
        size, whole = factor.abs(), e.total()
        if whole is not None:
            size.add_(whole, alpha=self.ctx.lam)
        fresh = terms.abs().mul_(2 * self.ctx.u)
        return terms, linear(self.ctx, terms, [(e, self.xhat.abs()), (self.e, size)], fresh)

    def moment(self, factor: Tensor, e: Err, dims: tuple[int, ...]) -> tuple[Tensor, Err]:
        """Σ factor·x̂ over ``dims`` (kept), along which r is one, and its error: ρ|Σ| for that of r."""
        s, found = self.total(*self.product(factor, e), dims, factor)
        if self.rho is None:
            return s, found
        size, whole = s.abs(), found.total()
        if whole is not None:
            size.add_(whole, alpha=self.ctx.lam)
        return s, Err(plus(found.c, size.mul_(self.rho)), found.i, found.und)

    def input(
        self, dims: tuple[int, ...], n: int, w: Tensor | None, scale: Tensor, reach: Tensor | None
    ) -> tuple[Err, Err, Err]:
        """dx = scale·(gw − s1 − x̂·s2), s1 and s2 the means of gw and gw·x̂ over the ``n`` elements of ``dims``:
        scale·(|w|e_g + e_1 + |x̂|e_2 + |s2|e_x̂ + λ·e_x̂·e_2) + ``reach``·(λ·that + |dx|/scale), + u·scale·(2|gw| + 2|s1|
        + 3|x̂·s2|) + 3u|dx|. Returns it and the errors of the two sums."""
        ctx, eg = self.ctx, self.eg
        gw = self.g if w is None else self.g * w
        if w is not None:
            ew, size, whole = ctx.err(w).total(), w.abs(), eg.total()
            eg = Err(None if eg.c is None else eg.c * size, None if eg.i is None else eg.i * size, eg.und)
            if ew is not None:
                far = self.g.abs() if whole is None else self.g.abs().add_(whole, alpha=ctx.lam)
                eg = Err(plus(eg.c, far.mul_(ew)), eg.i, eg.und)
        s1, first = self.total(gw, eg, dims)
        s2, second = self.moment(gw, eg, dims)
        s1, s2 = s1 / n, s2 / n
        size, e1, e2 = self.xhat.abs(), first.total(), second.total()
        turn = s2.abs() * self.grown
        i = gw.abs().add_(s1.abs()).addcmul_(size, s2.abs(), value=1.5).mul_(2 * ctx.u + ctx.model.u_step)
        i.addcmul_(self.e.i, turn)
        if eg.i is not None:
            i.add_(eg.i)
        c = torch.zeros_like(gw) if eg.c is None else eg.c.clone()
        if e1 is not None:
            c.add_(e1, alpha=1 / n)
        if self.e.c is not None:
            c.addcmul_(self.e.c, turn)
        if self.rho is not None:
            c.addcmul_(size, s2.abs() * self.rho)
        if e2 is not None:
            whole = self.e.i if self.e.c is None else self.e.c + self.e.i
            c.addcmul_(size.add_(whole, alpha=ctx.lam), self.grown * e2, value=1 / n)
        inner = torch.sub(gw, s1, out=size).addcmul_(self.xhat, s2, value=-1).abs_()
        gain = scale.abs()
        grown = gain if reach is None else gain.add(reach, alpha=ctx.lam)
        i.mul_(grown).addcmul_(inner, gain, value=3 * ctx.u).add_(ctx.model.eta)
        c.mul_(grown)
        if reach is not None:
            c.addcmul_(inner, reach)
        und = either(eg.und, self.e.und, first.und, second.und)
        return Err(clean(c), clean(i), None if und is None else und.expand(i.shape)), first, second


def _like(e: Err, y: Tensor | None) -> Err:
    return EXACT if y is None else _reshaped(e, y.shape)


def _reshaped(e: Err, shape: Any) -> Err:
    return Err(*(None if p is None else p.reshape(shape) for p in e))


@rule("native_layer_norm_backward")
def layer_norm_backward(
    ctx: BoundMode, y: Any, g: Tensor, x: Tensor, shape: Any, mean: Tensor, r: Tensor, w: Tensor | None,
    b: Tensor | None, mask: Any,
) -> tuple[Err, ...]:  # fmt: skip
    """See ``_Gradient``; the weight lies within the sums, its gradients add up the rows."""
    rows, dims = tuple(range(x.dim() - len(shape))), tuple(range(x.dim() - len(shape), x.dim()))
    shared = _Gradient(ctx, g, x, mean, ctx.err(mean), r, ctx.err(r))
    dx = shared.input(dims, x.numel() // r.numel(), w, r, ctx.err(r).total())[0] if mask[0] else EXACT
    dw, db = EXACT, shared.eg
    if mask[1]:
        terms, dw = shared.product(g, shared.eg)
        if shared.rho is not None:
            dw = Err(plus(dw.c, terms.abs().mul_(shared.rho)), dw.i, dw.und)
        dw = shared.total(terms, dw, rows, g)[1] if rows else dw
    if mask[2] and rows:
        db = shared.total(g, shared.eg, rows)[1]
    return dx, _like(dw, y[1]), _like(db, y[2])


@rule("native_group_norm_backward")
def group_norm_backward(
    ctx: BoundMode, y: Any, g: Tensor, x: Tensor, mean: Tensor, r: Tensor, w: Tensor | None, batch: int, channels: int,
    area: int, groups: int, mask: Any,
) -> tuple[Err, ...]:  # fmt: skip
    """As ``layer_norm_backward`` over each group of channels."""
    each = channels // groups
    full, row = (batch, groups, each, area), (batch, groups, 1, 1)
    em, er = (_reshaped(ctx.err(t), row) for t in (mean, r))
    cut = g.reshape(full), x.reshape(full)
    for t, whole in zip(cut, (g, x), strict=True):
        if t.untyped_storage()._cdata != whole.untyped_storage()._cdata:
            ctx.tables.put(t, _reshaped(ctx.err(whole), full))
    weight = None if w is None else w.reshape(1, groups, each, 1)
    shared = _Gradient(ctx, *cut, mean.reshape(row), em, r.reshape(row), er)
    dx = shared.input((2, 3), each * area, weight, shared.r, er.total())[0] if mask[0] else EXACT
    dw, db = EXACT, shared.total(cut[0], shared.eg, (0, 3))[1] if mask[2] else EXACT
    if mask[1]:
        sums, own = shared.moment(cut[0], shared.eg, (3,))
        dw = shared.total(sums, own, (0,))[1]
    return _like(dx, y[0]), _like(dw, y[1]), _like(db, y[2])


@rule("native_batch_norm_backward")
def batch_norm_backward(
    ctx: BoundMode, y: Any, g: Tensor, x: Tensor, w: Tensor | None, running_mean: Any, running_var: Any, mean: Any,
    r: Any, train: bool, eps: float, mask: Any,
) -> tuple[Err, ...]:  # fmt: skip
    """Training: see ``_Gradient``; the weight is a factor of the whole. Evaluation: dx = g·r·w, r of what is given."""
    shape = (1, -1) + (1,) * (x.dim() - 2)
    dims = (0, *range(2, x.dim()))
    if train:
        em, er = ctx.err(mean), ctx.err(r)
    else:
        mean, r = running_mean, (running_var + eps).rsqrt()
        em = ctx.err(mean)
        er = rstd_error(ctx, running_var, Err(torch.zeros_like(r)), eps)
    mean, r = mean.reshape(shape), r.reshape(shape)
    em, er = _reshaped(em, shape), _reshaped(er, shape)
    scale: Tensor = r
    moved = reach = er.total()
    if w is not None:
        wide, ew = w.reshape(shape), ctx.err(w).total()
        scale = r * wide
        reach = None if moved is None else moved * wide.abs()
        if ew is not None:
            reach = plus(reach, ew.reshape(shape) * (r if moved is None else r + moved * ctx.lam))
    shared = _Gradient(ctx, g, x, mean, em, r, er)
    if train:
        dx, db, dw = shared.input(dims, x.numel() // x.shape[1], None, scale, reach)
    else:
        dw, db = shared.moment(g, shared.eg, dims)[1], shared.total(g, shared.eg, dims)[1]
        grown = None if reach is None else scale.abs().add(reach, alpha=ctx.lam)
        parts = [(shared.eg, scale.abs() if grown is None else grown), (Err(reach), g.abs())]
        dx = linear(ctx, g, parts, (g * scale).abs_().mul_(3 * ctx.u).add_(ctx.model.eta), er.und)
    return _like(dx, y[0]), _like(dw, y[1]), _like(db, y[2])
