"""The factors of products in the forms that their error sums take: float32 over the largest size, squares, signs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch

from kcontract.dynamic.oracle.dtypes import Tensor

if TYPE_CHECKING:
    from kcontract.dynamic.oracle.mode import BoundMode

LOWEST, HIGHEST = 1e-12, 1e30
"""Between these a tensor's largest value lets float32 hold all that counts beside it."""
TINY = 1.4e-45
"""The smallest size in float32."""
FLUSHED, FAINT = 1e-37, 1e-30
"""Products below the first are lost in float32, and a sum that only they make is below the second."""


class Term(NamedTuple):
    """A product to be formed, mul(left, right)·factor; in float32 where both are. ``least``: the smallest of its
    products that is not 0."""

    left: Tensor
    right: Tensor
    factor: float
    least: float = 1.0

    def narrow(self, at: int, dim: int, place: tuple[int, int]) -> Term:
        """With some of the first (``at`` 0) or second of the two."""
        if at == 0:
            return self._replace(left=self.left.narrow(dim, *place))
        return self._replace(right=self.right.narrow(dim, *place))


def in_memory(t: Tensor) -> Tensor:
    """The elements in the order of memory, where they have no gaps (many kernels are slow on a transposed tensor)."""
    span = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    dense = span == t.numel() and 0 not in t.stride()
    return t.as_strided((span,), (1,), t.storage_offset()) if dense else t.reshape(-1)


def least_of(t: Tensor) -> float:
    """The smallest size that is not 0: as whole numbers, less 1, floats keep their order, and 0 becomes the largest."""
    kind, most = (torch.int32, 0x7FFFFFFF) if t.dtype is torch.float32 else (torch.int64, 0x7FFFFFFFFFFFFFFF)
    bits = t.view(kind).bitwise_and(most).sub_(1).bitwise_and_(most).min().add_(1)
    return float(bits.view(t.dtype))


class Factor:
    """A factor of products in float32, over its largest size: ``small``, and its squares; None where float32 loses
    small values of it."""

    def __init__(self, t: Tensor | Callable[[], Tensor]) -> None:
        self._t = t

    @functools.cached_property
    def t(self) -> Tensor:
        """In float64."""
        return self._t() if callable(self._t) else self._t

    @functools.cached_property
    def top(self) -> float:
        """The largest size; 0 for none, or where it is not finite."""
        if not self.t.numel():
            return 0.0
        low, high = torch.aminmax(in_memory(self.t))
        top = max(-float(low), float(high))
        return top if 0.0 < top < float("inf") else 0.0

    @functools.cached_property
    def _scaled(self) -> Tensor:
        plain = LOWEST < self.top < HIGHEST
        return self.t.float().mul_(1 / self.top) if plain else (self.t * (1 / self.top)).float()

    @functools.cached_property
    def narrow(self) -> Tensor | None:
        """``small`` of what is not negative and will not be squared."""
        if not self.top:
            return None
        flat = in_memory(self._scaled)
        return self._scaled if float(flat.min()) > 0 or least_of(in_memory(self.t)) > 2 * TINY * self.top else None

    @functools.cached_property
    def small(self) -> Tensor | None:
        return None if self.square is None else self._scaled

    @functools.cached_property
    def square(self) -> Tensor | None:
        """The squares of ``small``."""
        return self._squares if self.top and self.least > 2 * TINY**0.5 else None

    @functools.cached_property
    def _squares(self) -> Tensor:
        return self._scaled.square()

    @functools.cached_property
    def least(self) -> float:
        """The smallest size in ``small`` that is not 0."""
        lowest = float(in_memory(self._squares).min())
        return lowest**0.5 if lowest > 0 else least_of(in_memory(self._scaled))

    def with_sign_of(self, other: Factor) -> Factor:
        """The same sizes with another's signs."""
        found = Factor(lambda: torch.copysign(self.t, other.t))
        if self.small is not None and other.small is not None:
            found.__dict__.update(top=self.top, least=self.least, small=torch.copysign(self.small, other.small))
        return found

    def sizes(self) -> Factor:
        """Without signs."""
        found = Factor(self.t.abs)
        if self.small is not None:
            found.__dict__.update(top=self.top, least=self.least, small=self.small.abs())
        return found


def term(p: Factor, q: Factor, factor: float = 1.0) -> Term:
    """p·q, in float32 where that holds both."""
    if p.small is None or q.small is None:
        return Term(p.t, q.t, factor)
    return Term(p.small, q.small, factor * p.top * q.top, p.least * q.least)


class Operand:
    """A factor with its error, in the forms that products take, made once."""

    def __init__(self, ctx: BoundMode, t: Tensor) -> None:
        self.t, self.e, self._ctx, self.factor = t, ctx.err(t), ctx, Factor(t)

    @functools.cached_property
    def spread(self) -> Factor | None:
        """(i² + 4c²)/u²."""
        start: Tensor | None = None
        for part, share in ((self.e.i, 1.0), (self.e.c, 4.0)):
            if part is not None:
                share /= self._ctx.u**2
                start = (part * part).mul_(share) if start is None else start.addcmul_(part, part, value=share)
        return None if start is None else Factor(start)

    @functools.cached_property
    def reach(self) -> Factor:
        """|t| + λe."""
        e = self.e.total()
        return self.factor if e is None else Factor(torch.add(self.t.abs(), e, alpha=self._ctx.lam))

    @functools.cached_property
    def systematic(self) -> list[Factor]:
        """c and c·sgn t; the first only where no value is negative."""
        if self.e.c is None:
            return []
        e = Factor(self.e.c)
        return [e] if not self.t.numel() or float(self.t.min()) >= 0.0 else [e, e.with_sign_of(self.factor)]

    def squares(self, k: float) -> tuple[Tensor, float]:
        """k·t² + i² + 4c² as a tensor and its factor, in float32 where that holds it."""
        unit, spread = self._ctx.u**2, self.spread
        own = self.factor.square if k else None
        if spread is None:
            return (own, k * self.factor.top**2) if own is not None else (self.t * self.t, k)
        if k == 0.0:
            return (spread.narrow, unit * spread.top) if spread.narrow is not None else (spread.t, unit)
        if own is None or spread.narrow is None:
            return torch.mul(self.t, self.t).mul_(k).add_(spread.t, alpha=unit), 1.0
        one, two = k * self.factor.top**2, unit * spread.top
        most = max(one, two)
        return torch.mul(own, one / most).add_(spread.narrow, alpha=two / most), most


def independent(a: Operand, b: Operand, k: float) -> list[Term]:
    """(k·a² + i_a² + 4c_a²)·(|b| + λe_b)² and a²·(i_b² + 4c_b²), where there are such."""
    terms = []
    if k or a.spread is not None:
        terms.append(Term(*_squared(*a.squares(k), b.reach)))
    if b.spread is not None:
        right, left, factor, least = _squared(*b.squares(0.0), a.factor)
        terms.append(Term(left, right, factor, least))
    return terms


def _squared(p: Tensor, factor: float, root: Factor) -> tuple[Tensor, Tensor, float, float]:
    """factor·p·root² in float32 where that holds both, else in float64."""
    if p.dtype is torch.float32 and root.square is not None:
        lowest = float(in_memory(p).min())
        return p, root.square, factor * root.top**2, (lowest if lowest > 0 else least_of(in_memory(p))) * root.least**2
    return p.double(), root.t * root.t, factor, 1.0
