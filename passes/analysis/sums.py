"""What a row of the accumulation ledger says: the kind of a sum, its type, its number of terms."""

from __future__ import annotations

from dataclasses import dataclass, field

from kcontract.ir.launch import Trust
from kcontract.ir.ttgir import Operation
from kcontract.model import Place

#: Unit roundoff of an accumulator: half the distance from 1 to the next number (IEEE 754; tf32 has 11 bits).
UNIT_ROUNDOFF = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53, "tf32": 2.0**-11}


@dataclass(frozen=True, slots=True)
class Terms:
    """Bounds on the number of terms; ``high`` None where unbounded. ``trust``: the weakest fact they rest on."""

    low: int
    high: int | None
    trust: Trust = Trust.PROVED

    def __str__(self) -> str:
        if self.high is None or self.high >= 2**24:
            return f"{self.low} or more" if self.low > 1 else "an unknown number of"
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"


@dataclass(frozen=True, slots=True)
class Row:
    """One accumulation or what was judged to be none.

    ``kind``: dot, mma, loop sum, recurrence, chain (three terms or more in one expression), partial (a 16-bit add made
    only to enter a wider sum), reduce, scan, product, atomic (these are accumulations), or elementwise, combine, order
    (a reduction that only compares). ``element`` is the type the sum is kept in and ``inputs`` the type of what is
    added; ``narrowed`` tells that the printed type is wider than what survives each trip,
    ``exact`` that no rounding can touch the sum (see ``exact``). ``group``
    numbers accumulators: rows of one group add into one another. ``operation`` is None for a row read from PTX.
    """

    place: Place
    kind: str
    element: str
    inputs: str
    terms: Terms
    narrowed: bool = False
    exact: bool = False
    group: int = 0
    operation: Operation | None = field(default=None, repr=False)

    @property
    def accumulates(self) -> bool:
        """Whether a sum is formed at all."""
        return self.kind not in ("elementwise", "combine", "order")

    @property
    def narrow(self) -> bool:
        """Whether the sum is kept in 16 bits or fewer, and rounded."""
        return not self.exact and (self.narrowed or self.element not in ("f32", "f64", "tf32"))
