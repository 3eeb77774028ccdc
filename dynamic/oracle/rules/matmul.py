"""Matrix products and everything bilinear: mm, bmm, mv, dot, addmm, baddbmm, convolution and its gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from kcontract.dynamic.oracle.dtypes import Tensor
from kcontract.dynamic.oracle.registry import rule
from kcontract.dynamic.oracle.rules.algebra import linear
from kcontract.dynamic.oracle.sums import ROWS, SAMPLE, SHORT, trend
from kcontract.dynamic.oracle.tables import Err, anywhere, either, plus

if TYPE_CHECKING:
    from kcontract.dynamic.oracle.mode import BoundMode

Product = Callable[[Tensor, Tensor], Tensor]
MMA_DEPTH = 16
NARROW = 1e-25
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
        for found in _independent(ctx, mul, a, b, ea, eb, k):
            i = _gather(i, found)
        i = None if i is None else i.clamp_(min=0.0).sqrt_()
        if ea.c is not None:
            c = _signed(c, ea.c, a, _narrow(mul, b, 1))
        if eb.c is not None:
            c = _signed(c, eb.c, b, _narrow(mul, a, 0))
        if extra:
            c = _gather(c, _narrow(mul, b.abs(), 1)(a.abs().mul_(extra)))
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


def _independent(ctx: BoundMode, mul: Product, a: Tensor, b: Tensor, ea: Err, eb: Err, k: float) -> Iterator[Scaled]:
    """The parts of (k·a² + i_a² + 4c_a²)·(|b| + λe_b)² + a²·(i_b² + 4c_b²).

    Formed in units of sqrt(k) (of u where k is 0), so that float32 holds the squares.
    """
    unit = k or ctx.u**2
    left = torch.mul(a, a) if k else None
    left, right = _squares(left, ea, unit), _squares(None, eb, unit)
    if left is not None:
        e = eb.total()
        size = b if e is None else torch.add(b.abs(), e, alpha=ctx.lam)
        yield _squared(mul, left, size), unit
    if right is not None:
        yield _squared(lambda p, q: mul(q, p), right, a), unit


def _squared(mul: Product, p: Tensor, root: Tensor) -> Tensor:
    """mul(p, root²) in float32 where neither leaves its range, else in float64."""
    narrow, square = p.float(), torch.mul(root, root, out=root.new_empty(root.shape, dtype=torch.float32))
    if torch.count_nonzero(narrow) == torch.count_nonzero(p) and torch.count_nonzero(square) == torch.count_nonzero(
        root
    ):
        found = mul(narrow, square)
        if bool(torch.isfinite(found.sum())):
            return found
    return mul(p, root * root)


def _squares(start: Tensor | None, e: Err, unit: float) -> Tensor | None:
    for part, share in ((e.i, 1.0), (e.c, 4.0)):
        if part is not None:
            share /= unit
            start = (part * part).mul_(share) if start is None else start.addcmul_(part, part, value=share)
    return start


def _signed(total: Tensor | None, c: Tensor, value: Tensor, apply: Callable[[Tensor], Scaled]) -> Tensor:
    """total + |c·| + |(c·sgn value)·|: one product where no value is negative."""
    for part in (c,) if not value.numel() or float(value.min()) >= 0.0 else (c, torch.copysign(c, value)):
        found, factor = apply(part)
        total = _gather(total, (found.abs_(), factor))
    return total


def _narrow(mul: Product, fixed: Tensor, at: int) -> Callable[[Tensor], Scaled]:
    """The product with ``fixed`` as its argument ``at``, in float32 after scaling both to at most 1; in float64 where
    the range of either is too wide."""
    fixed_top, small = _scaled_down(fixed)

    def apply(p: Tensor) -> Scaled:
        top, other = _scaled_down(p) if small is not None else (0.0, None)
        if small is None or other is None:
            return (mul(fixed, p) if at == 0 else mul(p, fixed)), 1.0
        return (mul(small, other) if at == 0 else mul(other, small)), top * fixed_top

    return apply


def _scaled_down(t: Tensor) -> tuple[float, Tensor | None]:
    """Its largest size, and t over it in float32; None where that loses small values, or nothing is there."""
    if not t.numel():
        return 0.0, None
    low, high = torch.aminmax(t)
    least, top = float(low), max(-float(low), float(high))
    if not 0.0 < top < float("inf"):
        return top, None
    if least < NARROW * top:
        size = t.abs()
        if anywhere((size < NARROW * top) & (size > 0)):
            return top, None
    return top, torch.mul(t, 1 / top, out=t.new_empty(t.shape, dtype=torch.float32))


@np.errstate(invalid="ignore", over="ignore")
def _conspire(a: Tensor, b: Tensor, n: int, u: float) -> bool:
    """``structured``, asked of products of a sample of each factor (evenly spaced, not aligned)."""
    picked = []
    for t in (a, b):
        flat = (t.t() if t.dim() == 2 and not t.is_contiguous() else t).detach().reshape(-1)
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
