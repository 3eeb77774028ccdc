"""Matrix products and everything bilinear: mm, bmm, mv, dot, addmm, baddbmm, convolution and its gradient."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from kcontract.dynamic.oracle.dtypes import Tensor
from kcontract.dynamic.oracle.factors import FAINT, FLUSHED, Operand, Term, in_memory, independent, term
from kcontract.dynamic.oracle.registry import rule
from kcontract.dynamic.oracle.rules.algebra import linear
from kcontract.dynamic.oracle.slices import bounds, chunk
from kcontract.dynamic.oracle.sums import ROWS, SAMPLE, SHORT, sum_terms, trend
from kcontract.dynamic.oracle.tables import Err, either, plus

if TYPE_CHECKING:
    from kcontract.dynamic.oracle.mode import BoundMode

Product = Callable[[Tensor, Tensor], Tensor]
MMA_DEPTH = 16
CHUNK = 1 << 17
"""Elements of a large product that are done at a time: smaller products of matrices run slower."""


def product(
    ctx: BoundMode,
    op: str,
    y: Tensor,
    mul: Product,
    one: Tensor | Operand,
    other: Tensor | Operand,
    n: int,
    shared: tuple[Tensor | None, Tensor | None] = (None, None),
    rows: Callable[[], Tensor] | None = None,
    along: tuple[int, int, int] | None = None,
) -> Err:
    """The error of y = mul(a, b), each element a sum of ``n`` products; ``mul`` is bilinear and monotone on >= 0.

    Fresh: the law of ``sums`` with S = ab, Q = a²b², A = |a||b|; where factors are cut to tf32, + u_f·2A (cut towards
    zero: systematic; entered twice, like every proven part, so that λ 4 suffices); where computed factors are rounded
    to u_o, + u_o/2·sqrt(Q) each, as for stored results; in a matrix unit that adds 16 products at a time towards zero,
    + u·N/8·|S| systematic and u·N/8·sqrt(S² + Q) independent: a cut loses up to 2u of the partial sum (an H200 needed
    λ = 4.9 of half that, float16, N = 4096, all terms of one sign).

    Carried, worst case: |a|c_b + c_a|b| + λ·e_a·e_b. Exchangeable: systematic errors have a common sign along the sum
    (a shifted mean), or the sign of the value (a scale), or neither: |c_a·b| + |(c_a·sgn a)·b| + 2·sqrt(c_a²b²)
    (a few choices that rounding makes have any signs: four of them at λ = 4), and sqrt(i_a²b² + a²i_b²) for the
    independent ones. ``shared`` gives what of the carried error all results of one row or column have in common (see
    ``common``): it counts as systematic. Error sums are formed in float32. ``rows`` gives the products of some results
    in their order: the law grows where they have a ``trend``. ``along`` (an axis of y, which factor has it, as which of
    its axes): a large y is done some of it at a time.
    """
    model = ctx.model
    left, right = (t if isinstance(t, Operand) else Operand(ctx, t) for t in (one, other))
    a, b, ea, eb = left.t, right.t, left.e, right.e
    rounded = ctx.computed(a) + ctx.computed(b) if model.u_operand else 0
    if ctx.lam == 1.0:
        ctx.record(op, "gamma_N·|a||b|", n)
        factor = 2 * model.u_factor + rounded * model.u_operand + model.factor(n)
        worst = _worst(ctx, mul, a, b, ea, eb, factor)
        return Err(worst + model.eta, None, _undetermined(mul, a, b, ea, eb))
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
    cut = 2 * model.u * n / MMA_DEPTH / ctx.lam if ctx.matrix_units and n > MMA_DEPTH else 0.0
    squares = independent(left, right, k)
    sizes = [term(part, right.factor) for part in left.systematic]
    sizes += [term(left.factor, part) for part in right.systematic]
    if extra:
        sizes.append(term(left.factor.sizes(), right.factor.sizes(), extra))
    c: Tensor | None = torch.empty_like(y) if sizes or cut else None
    i = torch.empty_like(y) if squares or s2 else None
    places: list[Any] = [None]
    if along is not None and y.numel() >= 2 * (size := chunk(y, CHUNK)):
        places = bounds(y.shape[along[0]], y.numel() // size, 1) or places
    for place in places:
        here = functools.partial(_narrow, dim=along[0], place=place) if along is not None else _narrow
        terms = [
            found if place is None else [t.narrow(along[1], along[2], place) for t in found]  # type: ignore[index]
            for found in (squares, sizes)
        ]
        if i is not None:
            _root(mul, here(y), here(i), terms[0], s2)
        if c is not None:
            _total(mul, here(y), here(c), terms[1], [here(p) for p in shared if p is not None], cut)
    if c is None:
        c = plus(*shared)
    und = _undetermined(mul, a, b, ea, eb)
    if c is not None and i is None:
        return Err(c.add_(model.eta) if c.shape == y.shape else c + model.eta, None, und)
    return Err(c, ctx.tiny(y, i), und)


def _narrow(t: Tensor, dim: int = 0, place: tuple[int, int] | None = None) -> Tensor:
    """Some of a result, or of what is broadcast against it."""
    return t if place is None or t.shape[dim] == 1 else t.narrow(dim, *place)


def _formed(mul: Product, terms: list[Term], absolute: bool) -> Iterator[tuple[Tensor, float]]:
    """Σ factor·mul(left, right), or its sizes, as a tensor and its factor for each type."""
    for kind in (torch.float32, torch.float64):
        mine = [t for t in terms if t.left.dtype is kind]
        largest = max((t.factor for t in mine), default=0.0)
        total: Tensor | None = None
        for one in mine:
            found = mul(one.left, one.right)
            if absolute:
                found.abs_()
            if one.least < FLUSHED and found.numel() and float(found.min()) < FAINT:  # products of small ones are lost
                found = mul(one.left.double(), one.right.double())
                found, total = found.abs_() if absolute else found, None if total is None else total.double()
            if total is None:
                total = found if one.factor == largest else found.mul_(one.factor / largest)
            else:
                total.add_(found, alpha=one.factor / largest)
        if total is not None:
            yield total, largest


def _root(mul: Product, y: Tensor, i: Tensor, terms: list[Term], s2: float) -> None:
    """i = sqrt(s2·y² + Σ terms)."""
    if s2:
        torch.mul(y, y, out=i).mul_(s2)
    for nth, (found, factor) in enumerate(_formed(mul, terms, False)):
        _put(i, found, factor, nth > 0 or bool(s2))
    i.clamp_(min=0.0).sqrt_()


def _total(mul: Product, y: Tensor, c: Tensor, terms: list[Term], shared: list[Tensor], cut: float) -> None:
    """c = Σ |terms| + shared + cut·|y|."""
    if cut:
        torch.abs(y, out=c).mul_(cut)
    for nth, (found, factor) in enumerate(_formed(mul, terms, True)):
        _put(c, found, factor, nth > 0 or bool(cut))
    for part in shared:
        c.add_(part)


def _put(total: Tensor, found: Tensor, factor: float, more: bool) -> None:
    if more:
        total.add_(found, alpha=factor)
    else:
        total.copy_(found).mul_(factor)


def _undetermined(mul: Product, a: Tensor, b: Tensor, ea: Err, eb: Err) -> Tensor | None:
    und = None
    if ea.und is not None:
        und = mul(ea.und.double(), torch.ones_like(b)) > 0.5
    if eb.und is not None:
        und = either(und, mul(torch.ones_like(a), eb.und.double()) > 0.5)
    return und


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


@np.errstate(invalid="ignore", over="ignore")
def _conspire(a: Tensor, b: Tensor, n: int, u: float) -> bool:
    """``structured``, asked of products of a sample of each factor (evenly spaced, not aligned)."""
    picked = []
    for t in (a, b):
        flat = in_memory(t)
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
    return product(ctx, "matmul", y, mul, a, b, a.shape[-1], shared, lambda: _rows_of(a, b), _rows_cut(a, b))


def _rows_cut(a: Tensor, b: Tensor) -> tuple[int, int, int] | None:
    """The rows, or the columns where they are more, of a product of two matrices."""
    if a.dim() != 2 or b.dim() != 2:
        return None
    return (0, 0, 0) if a.shape[0] >= b.shape[1] // 4 else (1, 1, 1)


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
    part = product(ctx, "matmul", inner, mul, a, b, a.shape[-1], shared, lambda: _rows_of(a, b), _rows_cut(a, b))
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
    step = CHUNK // 2 // total[0].numel()
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

    along = (1, 1, 0) if groups == 1 and not transposed else None
    part = product(ctx, "convolution", inner, mul, x, w, n, (row, None), None if transposed else rows, along)
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

    def back(g_: Tensor, x_: Tensor, w_: Tensor, mask: list[bool]) -> Any:
        return torch.ops.aten.convolution_backward(
            g_, x_, w_, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask
        )

    def of_x(p: Tensor, q: Tensor) -> Any:  # of the input its shape is looked at only
        channels = x.shape[1] if groups > 1 or transposed else q.shape[1]
        return back(p, p.new_empty((p.shape[0], channels, *x.shape[2:])), q, [True, False, False])[0]

    def of_w(p: Tensor, q: Tensor) -> Any:
        return back(p, q, p.new_empty(w.shape), [False, True, False])[1]

    to_x = to_w = to_bias = Err()
    given = Operand(ctx, g)
    if output_mask[0]:
        n = w.shape[0] // groups * w[0, 0].numel() if not transposed else w[0].numel()
        by_channels = groups == 1 and not transposed and x.shape[1] > x.shape[0]
        to_x = product(ctx, "convolution", y[0], of_x, given, w, n, along=(1, 1, 1) if by_channels else (0, 0, 0))
    if output_mask[1]:
        n = (g if not transposed else x).numel() // (g if not transposed else x).shape[1]
        to_w = product(ctx, "convolution", y[1], of_w, given, x, n)
    if output_mask[2]:
        dims = (0, *range(2, g.dim()))
        to_bias = sum_terms(ctx, "sum", g, ctx.err(g), y[2], dims, False)
    return to_x, to_w, to_bias
