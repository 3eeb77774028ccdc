"""Sums that no rounding can touch: of integers small enough that every partial sum is representable.

Why: counting with a 16-bit sum is common and right, up to a size. A sum of N terms that are integers of magnitude at
most m is exact in any order while N·m <= 2^p, p the accumulator's precision in bits (11 in float16, 8 in bfloat16).
Example: ``tl.sum((x > 0).to(tl.float16))`` over 2048 elements is exact, over 4096 it may not be.

Only magnitudes are followed, through conversions, selections, products and changes of shape; what is loaded from memory
is unknown.
"""

from __future__ import annotations

from kcontract.ir.ttgir import Value
from kcontract.passes.analysis.ranges import Ranges
from kcontract.passes.analysis.sums import UNIT_ROUNDOFF, Terms

_SAME = frozenset(
    "tt.splat tt.broadcast tt.expand_dims tt.reshape tt.trans ttg.convert_layout arith.extf arith.truncf "
    "ttg.local_alloc ttg.local_load ttg.memdesc_trans ttng.tmem_alloc".split()
)


def is_exact(factors: list[Value], terms: Terms, element: str, ranges: Ranges) -> bool:
    """Whether the sum of ``terms`` products of one element of each factor, kept in ``element``, is exact."""
    if terms.high is None or element not in UNIT_ROUNDOFF:
        return False
    largest = terms.high
    for factor in factors:
        magnitude = integer_magnitude(factor, ranges)
        if magnitude is None:
            return False
        largest *= magnitude
    return largest * UNIT_ROUNDOFF[element] <= 1


def integer_magnitude(value: Value, ranges: Ranges, depth: int = 0) -> int | None:
    """An upper bound of |value| where each element is known to be an integer, else None."""
    operation = value.definition
    if operation is None or depth > 32:
        return None
    name, operands = operation.name, operation.operands
    if name in ("arith.uitofp", "arith.sitofp"):
        bounds = ranges.of(operands[0])
        if name == "arith.uitofp" and bounds.low < 0:
            return None
        return max(abs(bounds.low), abs(bounds.high))
    if name == "arith.constant":
        return _constant(operation.attributes.get("value", ""))
    if name in _SAME and operands:
        return integer_magnitude(operands[0], ranges, depth + 1)
    if name in ("arith.select", "arith.mulf", "arith.maxnumf", "arith.minnumf"):
        parts = [integer_magnitude(operand, ranges, depth + 1) for operand in operands[-2:]]
        if parts[0] is None or parts[1] is None:
            return None
        return parts[0] * parts[1] if name == "arith.mulf" else max(parts[0], parts[1])
    return None


def _constant(text: str) -> int | None:
    try:
        number = float(text.removeprefix("dense<").partition(">")[0].partition(" :")[0])
    except ValueError:
        return None
    return abs(int(number)) if abs(number) < 2**53 and number.is_integer() else None
