"""What a kernel's author declares: scope, preconditions, policies, tolerance."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class Accumulator(str, enum.Enum):
    """Type that sums of 16-bit values are promised to be kept in."""

    FLOAT32 = "float32"
    INPUT = "input"


class NanPolicy(str, enum.Enum):
    """``propagate``: a NaN reaches the output as in the reference; ``ignore``: max and min may drop it."""

    PROPAGATE = "propagate"
    IGNORE = "ignore"


class Subnormals(str, enum.Enum):
    """``preserve`` subnormal values, or allow them to be flushed to zero."""

    PRESERVE = "preserve"
    FLUSH = "flush"


class Determinism(str, enum.Enum):
    """``bitwise``: two runs give the same bytes; ``bounded``: two runs agree within the error bound."""

    BITWISE = "bitwise"
    BOUNDED = "bounded"


@dataclass(frozen=True, slots=True)
class Contract:
    """The declared part of a kernel's promise. A field left None is not declared.

    ``ranges`` maps an argument name to its inclusive range of values, ``divisible`` to a divisor its value
    is promised to have. ``targets`` are the compute targets in scope (``sm_90``). ``tolerance`` overrides
    the derived bound, as an absolute allowance an element. ``waivers`` map a rule or gate to a reason.
    """

    targets: tuple[str, ...] = ()
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    divisible: Mapping[str, int] = field(default_factory=dict)
    reference: str | None = None
    accumulator: Accumulator | None = None
    nan: NanPolicy | None = None
    subnormals: Subnormals | None = None
    determinism: Determinism | None = None
    tolerance: float | None = None
    waivers: Mapping[str, str] = field(default_factory=dict)
