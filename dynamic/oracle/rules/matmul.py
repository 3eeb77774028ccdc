"""Matrix products and everything bilinear: mm, bmm, mv, dot, addmm, baddbmm, convolution and its gradient."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from kcontract.dynamic.oracle.dtypes import Tensor
from kcontract.dynamic.oracle.registry import rule
from kcontract.dynamic.oracle.rules.algebra import linear
from kcontract.dynamic.oracle.sums import ROWS, SAMPLE, SHORT, trend
from kcontract.dynamic.oracle.tables import Err, either, plus

if TYPE_CHECKING:
    from kcontract.dynamic.oracle.mode import BoundMode

Product = Callable[[Tensor, Tensor], Tensor]
MMA_DEPTH = 16
LOWEST, HIGHEST = 1e-12, 1e30
"""Between these a tensor's largest value lets float32 hold all that counts beside it."""
CHUNK = 1 << 18
"""From so many elements on memory is looked after, some rows at a time."""


def product(
    ctx: BoundMode,
    op: str,
    y: Tensor,
    mul: Product,
    a: Tensor,
    b: Tensor,
    n: int,
    shared: tuple[Tensor | None, Tensor | None] = (None, None),
    rows: Callable[[], Tensor] | None = None,
    own: bool = False,
) -> Err:
    """The error of y = mul(a, b), each element a sum of ``n`` products; ``mul`` is bilinear and monotone on >= 0.

    Fresh: the law of ``sums`` with S = ab, Q = a²b², A = |a||b|; where factors are cut to tf32, + u_f·2A (cut towards
    zero: systematic; entered twice, like every proven part, so that λ 4 suffices); where computed factors are rounded
    to u_o, + u_o/2·sqrt(Q) each, as for stored results; in a matrix unit that adds 16
    products
    at a time towards zero, + u·N/8·|S| systematic and u·N/8·sqrt(S² + Q) independent: a cut loses up to 2u of the
    partial sum (an H200 needed λ = 4.9 of half that, float16, N = 4096, all terms of one sign).

    Carried, worst case: |a|c_b + c_a|b| + λ·e_a·e_b. Exchangeable: systematic errors have a common sign along the sum
    (a shifted mean), or the sign of the value (a scale), or neither: |c_a·b| + |(c_a·sgn a)·b| + 2·sqrt(c_a²b²)
    (a few choices that rounding makes have any signs: four of them at λ = 4), and sqrt(i_a²b² + a²i_b²) for the
    independent ones. ``shared`` gives what of the carried error all results of one row
    or column have in common (see ``common``): it counts as systematic. Error sums are formed in float32. ``rows`` gives
    the products of some results in their order: the law grows where they have a ``trend``. ``own``: y may be
    overwritten.
    """
    model, ea, eb = ctx.model, ctx.err(a), ctx.err(b)
    c = i = None
    rounded = ctx.computed(a) + ctx.computed(b) if model.u_operand else 0
    if ctx.lam == 1.0:
        ctx.record(op, "gamma_N·|a||b|", n)
        c = _worst(ctx, mul, a, b, ea, eb, 2 * model.u_factor + rounded * model.u_operand + model.factor(n))
    else:
        k, extra = (n / 3 + 1) * model.u**2, 4 * model.u_factor / ctx.lam
        s2 = k
        if n <= SHORT or _conspire(a, b, n, model.u):
            ctx.record(op, "gamma_N·|a||b|", n)
            ctx.alone(model.factor(n))
            extra += model.factor(2 * n if n <= SHORT else n) / ctx.lam
            k = s2 = 0.0
        else:
            ctx.record(op, "u·sqrt((S² + Q)(N/3 + 1))·trend", n)
            if model.block:
                size = min(n, model.block)
                k += (size * size / 3 + size + size / 3 + 1) * model.u_block**2
            if model.parts:
                k += n / model.parts * (model.parts / 3 + 1) * model.u_part**2
                s2 += (model.parts / 3 + 1) * model.u_part**2
            if ctx.matrix_units and n > MMA_DEPTH:
                ctx.record(op, "u·N/8·sqrt(S² + Q)", n)
                cut = (2 * model.u * n / MMA_DEPTH / ctx.lam) ** 2
                k, s2 = k + cut, s2 + cut
            larger = 1.0 if rows is None or not y.numel() else trend(rows())
            k, s2 = k * larger**2, s2 * larger**2
        k += rounded * (model.u_operand / 2) ** 2
        i = None
        if s2:
            i = y.mul_(y) if own and not ctx.matrix_units else torch.mul(y, y)
            i.mul_(s2)
        fa, fb = _Factor(a), _Factor(b)
        for found in _independent(ctx, mul, fa, fb, ea, eb, k):
            i = _gather(i, found)
        i = None if i is None else i.clamp_(min=0.0).sqrt_()
        if ea.c is not None:
            c = _signed(c, ea.c, fa, lambda p: _narrow(mul, p, fb))
        if eb.c is not None:
            c = _signed(c, eb.c, fb, lambda p: _narrow(mul, fa, p))
        if extra:
            sizes, factor = _narrow(mul, fa.sizes(), fb.sizes())
            c = _gather(c, (sizes, factor * extra))
        for part in shared:
            if part is not None:
                c = plus(c, part) if c is None or c.shape != y.shape else c.add_(part)
        if ctx.matrix_units and n > MMA_DEPTH:
            cut = 2 * model.u * n / MMA_DEPTH / ctx.lam
            c = (
                y.abs().mul_(cut)
                if c is None
                else torch.add(c, y.abs(), alpha=cut, out=c if c.shape == y.shape else None)
            )
    if c is not None and i is None:
        c = c.add_(model.eta) if c.shape == y.shape else c + model.eta
    else:
        i = ctx.tiny(y, i)
    und = None
    if ea.und is not None:
        und = mul(ea.und.double(), torch.ones_like(b)) > 0.5
    if eb.und is not None:
        und = either(und, mul(torch.ones_like(a), eb.und.double()) > 0.5)
    return Err(c, i, und)


def _worst(ctx: BoundMode, mul: Product, a: Tensor, b: Tensor, ea: Err, eb: Err, factor: float) -> Tensor:
    left, right = a.abs(), b.abs()
    e_a, e_b = ea.total(), eb.total()
    c = None if e_b is None else mul(left, e_b)
    left = left.mul_(factor)
    if e_a is not None:
        left += e_a
    if e_b is not None:
        right = right + e_b
    return plus(c, mul(left, right)).abs_()  # type: ignore[union-attr]


Scaled = tuple[Tensor, float]
"""A tensor, often float32, and the factor it is to be multiplied by."""


def _gather(total: Tensor | None, found: Scaled) -> Tensor:
    """total + found in float64; in place, since both are the rule's own."""
    part, factor = found
    if total is None:
        return part.double().mul_(factor)
    if total.shape != part.shape:
        return total.add_(part, alpha=factor)
    for row, new in _rows_beside(total, part):  # a sum of two types copies one of them
        row.add_(new, alpha=factor)
    return total


def _flat(t: Tensor) -> Tensor:
    """The elements in the order of memory, where they have no gaps (many kernels are slow on a transposed tensor)."""
    span = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    dense = span == t.numel() and 0 not in t.stride()
    return t.as_strided((span,), (1,), t.storage_offset()) if dense else t.reshape(-1)


def _nothing_lost(narrow: Tensor, t: Tensor) -> bool:
    """True where ``narrow``, not negative, is 0 only where ``t`` is."""
    if not narrow.numel() or float(narrow.min()) > 0.0:
        return True
    return bool(torch.count_nonzero(narrow) == torch.count_nonzero(t))


class _Factor:
    """A factor of products in float32, over its largest size: ``small``, and its squares; None where float32 loses
    small values of it."""

    def __init__(self, t: Tensor) -> None:
        self.t = t

    @functools.cached_property
    def top(self) -> float:
        """The largest size; 0 for none, or where it is not finite."""
        if not self.t.numel():
            return 0.0
        low, high = torch.aminmax(_flat(self.t))
        top = max(-float(low), float(high))
        return top if 0.0 < top < float("inf") else 0.0

    @functools.cached_property
    def small(self) -> Tensor | None:
        return None if self.square is None else self._small

    @functools.cached_property
    def square(self) -> Tensor | None:
        """The squares of ``small``."""
        if self.top == 0.0:
            return None
        plain = LOWEST < self.top < HIGHEST
        self._small = self.t.float().mul_(1 / self.top) if plain else (self.t * (1 / self.top)).float()
        square = self._small.square()
        return square if _nothing_lost(_flat(square), _flat(self.t)) else None

    def with_sign_of(self, other: _Factor) -> _Factor:
        """The same sizes with another's signs."""
        if self.small is None or other.small is None:
            return _Factor(torch.copysign(self.t, other.t))
        found = _Factor(self.t)
        found.__dict__.update(top=self.top, small=torch.copysign(self.small, other.small))
        return found

    def sizes(self) -> _Factor:
        """Without signs."""
        if self.small is None:
            return _Factor(self.t.abs())
        found = _Factor(self.t)
        found.__dict__.update(top=self.top, small=self.small.abs())
        return found


def _narrow(mul: Product, p: _Factor, q: _Factor) -> Scaled:
    """mul(p, q), in float32 where that holds both."""
    if p.small is None or q.small is None:
        return mul(p.t, q.t), 1.0
    return mul(p.small, q.small), p.top * q.top


def _independent(ctx: BoundMode, mul: Product, a: _Factor, b: _Factor, ea: Err, eb: Err, k: float) -> Iterator[Scaled]:
    """The parts of (k·a² + i_a² + 4c_a²)·(|b| + λe_b)² + a²·(i_b² + 4c_b²).

    Formed in units of sqrt(k) (of u where k is 0), so that float32 holds the squares.
    """
    unit, e = k or ctx.u**2, eb.total()
    size = b if e is None else _Factor(torch.add(b.t.abs(), e, alpha=ctx.lam))
    left, right = _squares(ea, unit), _squares(eb, unit)
    if k and left is None:
        if a.square is not None and size.square is not None:
            yield mul(a.square, size.square), k * (a.top * size.top) ** 2
        else:
            yield mul(a.t * a.t, size.t * size.t), k
    elif left is not None:
        yield _squared(mul, left.addcmul_(a.t, a.t) if k else left, size, unit)
    if right is not None:
        yield _squared(lambda p, q: mul(q, p), right, a, unit)


def _squared(mul: Product, p: Tensor, root: _Factor, unit: float) -> Scaled:
    """unit·mul(p, root²) in float32 where neither leaves its range, else in float64."""
    narrow = p.float()
    if root.square is not None and _nothing_lost(narrow, p):
        found = mul(narrow, root.square)
        if bool(torch.isfinite(found.sum())):
            return found, unit * root.top**2
    return mul(p, root.t * root.t), unit


def _squares(e: Err, unit: float) -> Tensor | None:
    start: Tensor | None = None
    for part, share in ((e.i, 1.0), (e.c, 4.0)):
        if part is not None:
            share /= unit
            start = (part * part).mul_(share) if start is None else start.addcmul_(part, part, value=share)
    return start


def _signed(total: Tensor | None, c: Tensor, value: _Factor, apply: Callable[[_Factor], Scaled]) -> Tensor:
    """total + |c·| + |(c·sgn value)·|: one product where no value is negative."""
    e = _Factor(c)
    for part in (e,) if not value.t.numel() or float(value.t.min()) >= 0.0 else (e, e.with_sign_of(value)):
        found, factor = apply(part)
        total = _gather(total, (found.abs_(), factor))
    return total  # type: ignore[return-value]


@np.errstate(invalid="ignore", over="ignore")
def _conspire(a: Tensor, b: Tensor, n: int, u: float) -> bool:
    """``structured``, asked of products of a sample of each factor (evenly spaced, not aligned)."""
    picked = []
    for t in (a, b):
        flat = _flat(t)
        picked.append(flat[:: max(1, flat.numel() // (4 * SAMPLE))][: 4 * SAMPLE].to("cpu").numpy())
    left, right = picked
    m = min(len(left), len(right))
    if m < 8:
        return True
    if _repeats(left) and _repeats(right):
        return True
    largest = float(np.sqrt(n) * np.sqrt(np.mean(left**2) * np.mean(right**2)))
    top = float(np.abs(left).max() * np.abs(right).max())
    wide = np.abs(left[:m]) * np.abs(right[:m])
    wide = wide[wide > 0]
    return bool(wide.size >= 8 and np.count_nonzero(wide < 4 * u * max(largest, top)) > wide.size / 4)


def _repeats(values: Any) -> bool:
    size = np.abs(values)
    size = size[size > 0]
    if size.size < 8:
        return True
    return len(np.unique(size)) < min(64, size.size // 3) or float(size.std()) < 1e-4 * float(size.mean())


def common(ctx: BoundMode, a: Tensor, b: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """What the results of one row of a @ b (and of one column) share of the factors' independent errors.

    e_y[m, :] = e_a[m, :] @ b; with b = mean over columns + rest, the mean's part is the same for every column:
    sqrt(i_a² @ mean²), and likewise down a column from i_b. Only the shared part must add up linearly later.
    """
    ia, ib = ctx.err(a).i, ctx.err(b).i
    row = column = None
    if ia is not None:
        mean = b.mean(-1, keepdim=True)
        row = torch.matmul(ia * ia, mean * mean).sqrt_()
    if ib is not None:
        mean = a.mean(-2, keepdim=True)
        column = torch.matmul(mean * mean, ib * ib).sqrt_()
    return row, column


def _rows_of(a: Tensor, b: Tensor) -> Tensor:
    """The products of 16 results of a @ b (of one matrix of a batch), in their order."""
    if a.dim() == 3:
        a, b = a[a.shape[0] // 2], b[b.shape[0] // 2]
    left = a.reshape(-1, a.shape[-1])
    left = left[:: max(1, -(-left.shape[0] // 4))]
    right = b.reshape(b.shape[0], -1).t()
    right = right[:: max(1, -(-right.shape[0] // 4))]
    return (left.unsqueeze(1) * right.unsqueeze(0)).flatten(0, 1)


@rule("mm", "bmm", "mv", "dot", "vdot")
def products(ctx: BoundMode, y: Tensor, a: Tensor, b: Tensor) -> Err:
    """y = ab: see ``product``, N the inner length (Higham, section 3.5)."""
    shared = common(ctx, a, b) if a.dim() > 1 and b.dim() > 1 else (None, None)
    mul = torch.bmm if a.dim() == 3 else torch.mm if b.dim() == 2 else torch.mv if a.dim() == 2 else torch.dot
    return product(ctx, "matmul", y, mul, a, b, a.shape[-1], shared, lambda: _rows_of(a, b))


@rule("addmm", "baddbmm", "addmv")
def with_addend(
    ctx: BoundMode, y: Tensor, start: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1
) -> Err:
    """y = β·start + α·ab: the product's error times |α|, the addend's times |β|, + u(|y| + |β·start|); where
    steps are stored, the product is one."""
    mul = torch.bmm if a.dim() == 3 else torch.mm if b.dim() == 2 else torch.mv
    inner = y if beta == 0 else torch.sub(y, start, alpha=beta)
    if alpha not in (0, 1):
        inner = inner / alpha
    shared = common(ctx, a, b) if b.dim() > 1 else (None, None)
    own = inner is not y and not ctx.model.u_step
    part = product(ctx, "matmul", inner, mul, a, b, a.shape[-1], shared, lambda: _rows_of(a, b), own)
    if alpha != 1:
        c, i = (None if p is None else p * abs(alpha) for p in (part.c, part.i))
        part = Err(c, i, part.und)
    part = _stored(ctx, y, inner, part, abs(alpha))
    if not beta:
        return part
    (part.c if part.i is None else part.i).add_(start.abs(), alpha=ctx.u * abs(beta))  # type: ignore[union-attr]
    return linear(ctx, y, [(Err(part.c, None, part.und), 1), (ctx.err(start), abs(beta), start)], part.i)


def _stored(ctx: BoundMode, y: Tensor, inner: Tensor, part: Err, alpha: float = 1.0) -> Err:
    """``part``, which is written to, with a rounding of y, and of the product where steps are stored."""
    total: Tensor = part.c if part.i is None else part.i
    if total.shape != y.shape:
        total = total + torch.zeros_like(y)
    for new, factor in ((y, ctx.u), (inner, alpha * ctx.model.u_step / 2)):
        for row, size in _rows_beside(total, new) if factor else ():
            row.add_(size.abs(), alpha=factor)
    return Err(total, None, part.und) if part.i is None else Err(part.c, total, part.und)


def _rows_beside(total: Tensor, new: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Both whole, or some slices along the first axis (of one of them, the next) at a time where they are large."""
    if total.numel() < CHUNK or total.dim() < 2:
        yield total, new
        return
    step = CHUNK // 4 // total[0].numel()
    for one, other in zip(total.split(max(1, step)), new.split(max(1, step)), strict=True):
        if step:
            yield one, other
        else:
            yield from _rows_beside(one[0], other[0])


@rule("convolution")
def convolution(
    ctx: BoundMode, y: Tensor, x: Tensor, w: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,
) -> Err:  # fmt: skip
    """A convolution is a sum of N = C/groups·k products (transposed: C_in/groups·k at most): see ``product``."""

    def mul(p: Tensor, q: Tensor) -> Tensor:
        return torch.ops.aten.convolution(p, q, None, stride, padding, dilation, transposed, output_padding, groups)

    n = w[0].numel() if not transposed else w.shape[0] // groups * w[0, 0].numel()
    shape = (-1,) + (1,) * (y.dim() - 2)
    inner = y if bias is None else y - bias.reshape(shape)
    ia = ctx.err(x).i
    row = None
    if ia is not None and groups == 1:
        mean = w.mean(1 if transposed else 0, keepdim=True)
        row = mul(ia * ia, mean * mean).clamp_(min=0.0).sqrt_()

    def rows() -> Tensor:
        rank = y.dim() - 2
        steps, edges, gaps = (list(v) * (rank if len(v) == 1 else 1) for v in (stride, padding, dilation))
        padded = torch.nn.functional.pad(x, [k for edge in reversed(edges) for k in (edge, edge)])
        found = []
        for j in range(ROWS):
            item, channel, *place = (k * (2 * j + 1) // (2 * ROWS) for k in (y.shape[0], *y.shape[1:]))
            first = channel * groups // y.shape[1] * w.shape[1]
            window = [slice(first, first + w.shape[1])]
            for at, s, gap, k in zip(place, steps, gaps, w.shape[2:], strict=True):
                window.append(slice(at * s, at * s + gap * (k - 1) + 1, gap))
            found.append((padded[item][tuple(window)] * w[channel]).reshape(-1))
        return torch.stack(found)

    own = bias is not None and not ctx.model.u_step
    part = product(ctx, "convolution", inner, mul, x, w, n, (row, None), None if transposed else rows, own)
    if bias is None:
        return part
    eb = ctx.err(bias).systematic()
    carried = Err(
        None if eb.c is None else eb.c.reshape(shape), None, None if eb.und is None else eb.und.reshape(shape)
    )
    part = _stored(ctx, y, inner, part)
    return linear(ctx, y, [(Err(part.c, None, part.und), 1), (carried, 1)], part.i)


@rule("convolution_backward")
def convolution_backward(
    ctx: BoundMode, y: Any, g: Tensor, x: Tensor, w: Tensor, bias_sizes: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, output_mask: Any,
) -> tuple[Err, ...]:  # fmt: skip
    """Gradients of a convolution: bilinear in (g, w) with N = k·C_out/groups, and in (g, x) with N =
    batch·positions."""
    from kcontract.dynamic.oracle.sums import sum_terms

    def back(g_: Tensor, x_: Tensor, w_: Tensor, mask: list[bool]) -> Any:
        return torch.ops.aten.convolution_backward(
            g_, x_.to(g_), w_.to(g_), bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask
        )

    to_x = to_w = to_bias = Err()
    if output_mask[0]:
        n = w.shape[0] // groups * w[0, 0].numel() if not transposed else w[0].numel()
        to_x = product(ctx, "convolution", y[0], lambda p, q: back(p, x, q, [True, False, False])[0], g, w, n)
    if output_mask[1]:
        n = (g if not transposed else x).numel() // (g if not transposed else x).shape[1]
        to_w = product(ctx, "convolution", y[1], lambda p, q: back(p, q, w, [False, True, False])[1], g, x, n)
    if output_mask[2]:
        dims = (0, *range(2, g.dim()))
        to_bias = sum_terms(ctx, "sum", g, ctx.err(g), y[2], dims, False)
    return to_x, to_w, to_bias
