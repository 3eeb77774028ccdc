"""The error of one sum of N terms under an accumulation model: the formula every reduction and product shares.

The laws (S = Σx, A = Σ|x|, Q = Σx², N terms, u the accumulator's unit roundoff):

* worst case, any order: gamma_N·A (Higham, Accuracy and Stability, 2nd ed., section 4.2);
* short sums, N <= 16: gamma_2N·A, which is below the next and leaves room for one more rounding a term;
* exchangeable order: u·sqrt((S² + Q)(N/3 + 1)), from the second moment of Σ u·|partial sum|: a partial sum of k
  exchangeable terms has E s_k² = Q·k(N − k)/(N(N − 1)) + S²·k(k − 1)/(N(N − 1)), and Σ_k gives N/3 for S² and N/6 for
  Q. That is a mean: the integral of a squared bridge fluctuates by as much again, hence N/3 for Q too (on an H200 N/6
  needed λ = 4.1 among half a million sums of 64 terms).

The last is only used where a sample of the terms looks exchangeable (see ``structured``), and grows where sums of
sampled rows, in their own order, have larger partial sums than that: see ``trend``.

Terms that are nothing beside the rest do not count. Rounded to nearest, an addition errs by at most the size of either
operand, so of all additions that take in negligible terms only (of mass m) the errors add up to m: with N the number
of the others, every law above gets + m. Terms below u·A/N are taken as such: m <= u·A.

Terms on a lattice, or of few different sizes, may round mostly one way: see ``drift`` and ``distinct``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch

from kcontract.dynamic.oracle.dtypes import Tensor
from kcontract.dynamic.oracle.tables import Err, anywhere, plus

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kcontract.dynamic.oracle.mode import BoundMode

SHORT = 16
SAMPLE = 128
ROWS = 8
DISTINCT = 64
FEW = 256
SMALL = 0.01
PIECE = 1 << 18
"""Elements of which a copy is made at a time."""
TREND = 2.0


@np.errstate(invalid="ignore", over="ignore")
def structured(rows: NDArray[np.float64], n: int, u: float, largest: float) -> bool:
    """True where terms conspire with rounding, so that only the worst case is safe. ``rows`` samples some sums.

    Repeated (fewer than 64 distinct sizes: every addition may round the same way), nearly constant (standard
    deviation below an ulp of the sum, 2·N·u·|mean|: the mean rounding error of a step, ulp/2·exp(−2π²(σ/ulp)²),
    is not small), wide (of up to 256 terms a quarter below 4u times the ``largest`` partial sum: they are swallowed; of
    more see ``drift``), or trending (a prefix exceeds |S| + 4·sqrt(Q): sorted or in sign blocks).
    """
    size = np.abs(rows)
    size = size[np.isfinite(size) & (size > 0)]
    if size.size < 8:
        return False
    if len(np.unique(size)) < min(DISTINCT, size.size // 3):
        return True
    if n <= FEW and np.count_nonzero(size < 4 * u * largest) > size.size / 4:
        return True
    mean, deviation = rows.mean(axis=1), rows.std(axis=1)
    if bool((deviation < 2 * n * u * np.abs(mean)).any()):
        return True
    prefix = np.abs(np.cumsum(rows, axis=1)).max(axis=1)
    return bool((prefix > np.abs(rows.sum(axis=1)) + 4 * np.sqrt((rows * rows).sum(axis=1))).any())


def sample_rows(x: Tensor, dims: tuple[int, ...]) -> NDArray[np.float64]:
    """Up to ROWS × SAMPLE evenly spaced terms of ``x``, a row for each of some sums over ``dims``."""
    reduced = [d for d in range(x.dim()) if d in dims]
    kept = [d for d in range(x.dim()) if d not in dims]
    wanted = {d: (SAMPLE if len(reduced) == 1 else 16) for d in reduced}
    room = ROWS
    for d in kept:
        wanted[d] = max(1, min(x.shape[d], room))
        room = max(1, room // wanted[d])
    cut = tuple(slice(None, None, max(1, x.shape[d] // wanted[d])) for d in range(x.dim()))
    part = x[cut].permute(*kept, *reduced)
    rows = part.reshape(-1, int(np.prod([part.shape[len(kept) + k] for k in range(len(reduced))], dtype=int)))
    found: NDArray[np.float64] = rows[:ROWS].detach().to("cpu", torch.float64).numpy()
    return found


def trend(rows: Tensor) -> float:
    """How much larger the partial sums of some sums are than the exchangeable law takes them; 1 below ``TREND``.

    ``rows`` (sums × terms) holds all terms in their order. The root of the mean square of the prefixes (at most about
    2048 of them) over sqrt((S² + Q)/3): 0.7 to 1 for exchangeable terms (over 2 in one sum of some thousand); of smooth
    ones it grows with N.
    """
    n = rows.shape[1]
    block = max(1, n // 1024)
    steps = rows[:, : n // block * block].unflatten(1, (-1, block)).sum(-1) if block > 1 else rows
    law = rows.sum(1).square_() + rows.square().sum(1)
    ratio = steps.cumsum(1).square_().mean(1).mul_(3).div_(law).nan_to_num_(0.0, 0.0)
    largest = float(ratio.max()) ** 0.5 if ratio.numel() else 0.0
    return largest if largest > TREND else 1.0


def whole_rows(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """All terms of up to ROWS evenly spaced sums of ``x`` over ``dims``."""
    kept = [d for d in range(x.dim()) if d not in dims]
    room, cut = ROWS, [slice(None)] * x.dim()
    for d in kept:
        cut[d] = slice(None, None, -(-x.shape[d] // room))
        room = max(1, room // len(range(x.shape[d])[cut[d]]))
    part = x[tuple(cut)].permute(*kept, *dims)
    return part.reshape(-1, part.shape[len(kept) :].numel())


def fresh_sum(
    ctx: BoundMode,
    op: str,
    s: Tensor,
    n: int,
    squares: Callable[[], Tensor],
    sizes: Callable[[], Tensor],
    sample: Callable[[], NDArray[np.float64]],
    whole_sums: Callable[[], Tensor],
    exact: Callable[[Tensor], bool] | None = None,
) -> Err:
    """The error of adding up ``n`` terms a result ``s``; Q, A, a sample of terms and whole sums are computed when
    needed.

    ``exact`` tells, from Σ|x|, whether no partial sum can round (see ``on_lattice``).
    """
    model = ctx.model
    if n <= 1:
        return Err()
    if model.lam == 1.0:
        ctx.record(op, "gamma_N·Σ|x|", n)
        return Err(sizes() * model.factor(n), None, None)
    if n <= SHORT:
        ctx.record(op, "gamma_2N·Σ|x|", n)
        return Err(sizes() * (model.factor(2 * n) / ctx.lam), None, None)
    q = squares()
    variance = torch.mul(s, s).mul_((n / 3 + 1) * model.u**2)
    k = (n / 3 + 1) * model.u**2
    if model.block:
        b = min(n, model.block)
        k += (b * b / 3 + b + b / 3 + 1) * model.u_block**2
    if model.parts:
        p = model.parts
        variance += s * s * ((p / 3 + 1) * model.u_part**2)
        k += n / p * (p / 3 + 1) * model.u_part**2
    i = variance.add_(q, alpha=k).sqrt_()
    ctx.record(op, "u·sqrt((S² + Q)(N/3 + 1))·trend", n)
    largest = float(torch.maximum(s * s, q).nan_to_num(0.0, 0.0).max().sqrt()) if s.numel() else 0.0
    if structured(sample(), n, model.u, largest):
        whole = sizes()
        if exact is not None and exact(whole):
            ctx.record(op, "exact on a lattice", n)
            return Err()
        ctx.record(op, "gamma_N·Σ|x|", n)
        found = Err(whole * (model.factor(n) / ctx.lam), None, None)
    else:
        found = Err(None, i.mul_(trend(whole_sums())), None)
    size = math.sqrt(float(torch.linalg.vector_norm(s)) ** 2 + float(q.sum()))
    ctx.alone_of(found.total(), s, size)
    return found


def norm(x: Tensor, p: int, dims: tuple[int, ...], keepdim: bool = False) -> Tensor:
    """The 1- or 2-norm over ``dims``: torch's own kernel is 5 to 30 times slower where the last axis is kept."""
    if x.dim() - 1 in dims or not x.dim():
        return torch.linalg.vector_norm(x, p, dims, keepdim=keepdim)
    sums = [
        (part.abs() if p == 1 else part.square()).sum(dims, keepdim=True)
        for part in x.split(max(1, PIECE // max(1, x[0].numel())))
    ]
    found = torch.stack(sums).sum(0) if 0 in dims else torch.cat(sums)
    if not keepdim:
        found = found.reshape([n for d, n in enumerate(x.shape) if d not in dims])
    return found if p == 1 else found.sqrt_()


def on_lattice(x: Tensor, whole: Tensor, u: float) -> bool:
    """True where every term is a multiple of one power of two g and Σ|x| <= g/u: then any partial sum, in any order,
    is a multiple of g of at most 1/u steps, hence exact."""
    top = float(whole.max()) if whole.numel() else 0.0
    if not 0.0 < top < float("inf"):
        return top == 0.0
    steps = x * 2.0 ** -np.ceil(np.log2(top * u))
    return bool((steps == steps.round()).all())


def sum_terms(ctx: BoundMode, op: str, x: Tensor, e: Err, s: Tensor, dims: tuple[int, ...], keepdim: bool) -> Err:
    """The error of s = Σ x over ``dims``: what the terms carry, Σc and sqrt(Σi²), and what adding them costs."""
    if not dims:
        dims = tuple(range(x.dim()))
    n = 1
    for d in dims:
        n *= x.shape[d]
    if n == 0 or x.numel() == 0:
        return Err()
    few, mass = x, None
    if n > FEW and _mostly_small(x, ctx.u / n):
        small = x.abs()
        small.masked_fill_(small > norm(x, 1, dims, keepdim=True).mul_(ctx.u / n), 0.0)
        few = torch.where(small > 0, 0.0, x)
        n = max(1, int(torch.count_nonzero(few, dims).max()))
        mass = small.sum(dims, keepdim=keepdim).div_(ctx.lam) if anywhere(small > 0) else None
    rows = functools.cache(lambda: sample_rows(few, dims))
    new = fresh_sum(
        ctx,
        op,
        s,
        n,
        lambda: norm(x, 2, dims, keepdim=keepdim).square_(),
        lambda: norm(x, 1, dims, keepdim=keepdim),
        rows,
        lambda: whole_rows(few, dims),
        (lambda whole: on_lattice(x, whole, ctx.u)) if e.exact and not (ctx.model.block or ctx.model.parts) else None,
    )
    c, i = new.c if new.exact and n > 1 else plus(new.c, mass), new.i
    if n > FEW and i is not None:
        biased = drift(ctx, few, s, dims, keepdim, rows())
        values = distinct(rows())
        if biased is None and values < n:
            ctx.record(op, "u·N·sqrt((S² + Q)/distinct)/8", n)
            biased = i * (n / 8 / (values * (n / 3 + 1)) ** 0.5)
        c = plus(c, biased)
    if e.c is not None:
        c = plus(c, e.c.sum(dims, keepdim=keepdim))
    if e.i is not None:
        carried = norm(e.i, 2, dims, keepdim=keepdim)
        i = carried if i is None else torch.hypot(i, carried)
    und = None
    if e.und is not None:
        und = e.und
        for d in sorted(dims, reverse=True):
            und = und.any(d, keepdim=keepdim)
    return Err(c, i, und)


def distinct(rows: NDArray[np.float64]) -> float:
    """About how many different sizes a sum's terms have, from the pairs m²/2D that a sample of m has in common.

    Each of D values rounds its own way at every partial sum of one binade, so N terms drift by about
    0.29·2u·|S|·N/sqrt(D) where N random ones would by that over sqrt(N): the law adds u·N·sqrt((S² + Q)/D)/8.
    """
    sizes = np.sort(np.abs(rows), axis=1)
    pairs = float(((np.diff(sizes, axis=1) == 0) & (sizes[:, 1:] > 0)).sum(axis=1).mean()) if rows.size else 0.0
    return float(rows.shape[1] ** 2 / 2 / pairs) if pairs else float("inf")


def drift(
    ctx: BoundMode, x: Tensor, s: Tensor, dims: tuple[int, ...], keepdim: bool, rows: NDArray[np.float64]
) -> Tensor | None:
    """What rounding adds up to in one direction, over λ and doubled: terms on a lattice (squares of 16-bit values)
    leave residues of an ulp of the sum that are not spread evenly, nor do terms of the size of an ulp.

    While partial sums stay in one binade, a rounded addition errs by what rounding the term itself to a multiple of
    their ulp does: |Σ (round(x/ulp) − x/ulp)|·ulp; taken for the sum's binade and the one below (of small terms of
    both signs also the one above), where the terms are multiples of ulp/1024 or one in a hundred is below 4 ulp (a
    float32 loop over 800,000 Huber losses needed λ = 13 without it).
    """
    size = torch.maximum(s.abs(), norm(x, 2, dims, keepdim=keepdim))
    top = float(size.max())
    if not 0.0 < top < float("inf"):
        return None
    unit = 2.0 ** np.floor(np.log2(top)) * 2 * ctx.u
    steps = rows / (unit / 1024)
    small = np.count_nonzero((rows != 0) & (np.abs(rows) < 4 * unit)) > SMALL * rows.size
    if not small and not bool((steps == np.rint(steps)).all()):
        return None
    ulp = torch.exp2(size.clamp_(min=1e-300).log2_().floor_()).mul_(2 * ctx.u)
    for d in () if keepdim else sorted(dims):
        ulp = ulp.unsqueeze(d)
    worst: Tensor | None = None
    for level in (ulp, ulp / 2, *((ulp * 2,) if small and rows.min() < 0 < rows.max() else ())):
        terms = x / level
        found = torch.round(terms).sub_(terms).sum(dims, keepdim=True).abs_().mul_(level)
        worst = found if worst is None else torch.maximum(worst, found)
    return worst.reshape(s.shape).mul_(2 / ctx.lam)  # type: ignore[union-attr]


def _mostly_small(x: Tensor, share: float) -> bool:
    """True where over a quarter of a sample is below ``share`` of its largest value."""
    size = x[tuple(slice(None, None, max(1, k // 8)) for k in x.shape)].abs()
    return float((size <= size.max() * share).double().mean()) > 0.25


def axes(dim: object, rank: int) -> tuple[int, ...]:
    """``dim`` as aten gives it (None, an int or a list) as non-negative axes; all of them for None or []."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return tuple(range(rank))
    listed = dim if isinstance(dim, (list, tuple)) else (dim,)
    return tuple(int(d) % max(rank, 1) for d in listed) if rank else ()
