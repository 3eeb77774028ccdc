"""Replays a 16-bit sum as its kernel adds it, in exact arithmetic, on terms chosen so that the answer comes out wrong.

Why: a violation must be shown, not argued. ``N·u >= 1/2`` bounds the error of the worst order; a GPU adds in a tree.
Example: 1024 bfloat16 terms over 4 warps meet in 10 steps. Where terms may have either sign, ``M, 1, 1, …, 1, -M``
with M and -M in the first lane of the first warp and the last lane of the last one meets at the root only: each half
has swallowed its ones by then, the sum is 0 and should be 1022. Where no term is negative nothing can cancel, and the
most a tree of depth D loses is about D·u of the sum: 1 at the leaf, and at each step a neighbour of u that rounds away.

The order: a thread's own elements first (Triton 3.9 pairwise in packed halves, 3.6 one after the other), then lanes
and warps by butterflies. ``test_witness`` holds it against what the compiled kernel does in the simulator, bit by bit.
Sums in 16 bits over one axis of a blocked layout are all it knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from kcontract.errors import InputError
from kcontract.ir.artifact import Artifact
from kcontract.ir.ttgir import Operation, Value
from kcontract.model import Finding

#: bits of precision, least exponent of a normal number, largest finite number
FORMATS = {
    "f16": (11, -14, Fraction(65504)),
    "bf16": (8, -126, Fraction(2**8 - 1) * 2**120),
    "f32": (24, -126, Fraction(2**24 - 1) * 2**104),
}
_BLOCKED = re.compile(
    r"#ttg\.blocked<\{sizePerThread = \[(\d+)\], threadsPerWarp = \[(\d+)\], warpsPerCTA = \[(\d+)\], order = \[0\]\}>"
)
_CHANGES_NO_SIGN = ("tt.reshape", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.trans", "ttg.convert_layout")


@dataclass(frozen=True, slots=True)
class Order:
    """How one program adds N terms: ``owner[i]`` is term i's (warp, lane, register); ``pairwise`` inside a thread."""

    owner: tuple[tuple[int, int, int], ...]
    pairwise: bool

    @property
    def depth(self) -> int:
        """Additions on the longest path."""
        registers, lanes, warps = (len({place[n] for place in self.owner}) for n in (2, 1, 0))
        inside = _log2(registers) if self.pairwise else registers - 1
        return inside + _log2(lanes) + _log2(warps)


@dataclass(frozen=True, slots=True)
class Shown:
    """A replayed sum: the terms in words, what the kernel gives, what a 32-bit sum gives, the exact value."""

    terms: str
    depth: int
    given: Fraction
    single: Fraction
    exact: Fraction
    signed: bool

    @property
    def error(self) -> Fraction:
        """Relative to the exact value."""
        return abs(self.given - self.exact) / abs(self.exact)

    def __str__(self) -> str:
        return (
            f"{self.terms}, added in {self.depth} steps: {_decimal(self.given)} where {_decimal(self.exact)} is right "
            f"({float(100 * self.error):.3g} % off; a float32 sum {_decimal(self.single)})"
        )


def show(artifact: Artifact, finding: Finding) -> Shown:
    """The witness of a violation of ``half-precision-accumulator``. Raises ``InputError`` where no replay is known."""
    module = artifact.module
    operations = module.find("tt.reduce") if module else []
    operation = next((o for o in operations if o.line == finding.place.ir_line), None)
    if operation is None:
        raise InputError(f"{artifact.kernel}: no replay is known for this violation: {finding.message}")
    source = operation.operands[0]
    order = order_of(operation, str(artifact.metadata.get("triton_version", "")))
    signed = not non_negative(source)
    terms, words = (cancelling if signed else swallowed)(order, source.type.element)
    return Shown(
        words,
        order.depth,
        replay(terms, order, source.type.element),
        replay(terms, order, "f32"),
        sum(terms, Fraction(0)),
        signed,
    )


def order_of(operation: Operation, version: str) -> Order:
    """The order of a sum over one axis in a blocked layout. Raises ``InputError`` for another layout or version."""
    source = operation.operands[0]
    match = _BLOCKED.match(source.layout or "")
    if match is None or not version.startswith(("3.6", "3.9")):
        raise InputError(f"the order of a sum in {source.layout} by Triton {version} is not known here")
    per_thread, lanes, warps = map(int, match.groups())
    tile = per_thread * lanes * warps
    places = (
        (i // per_thread // lanes % warps, i // per_thread % lanes, i % per_thread + per_thread * (i // tile))
        for i in range(source.type.shape[0])
    )
    return Order(tuple(places), version.startswith("3.9"))


def replay(terms: Sequence[Fraction], order: Order, element: str) -> Fraction:
    """The sum of ``terms`` in that order, rounded to ``element`` after each addition."""

    def add(left: Fraction, right: Fraction) -> Fraction:
        return rounded(left + right, element)

    threads: dict[tuple[int, int], dict[int, Fraction]] = {}
    for term, (warp, lane, register) in zip(terms, order.owner, strict=True):
        threads.setdefault((warp, lane), {})[register] = term
    lanes: dict[int, dict[int, Fraction]] = {}
    for (warp, lane), held in threads.items():
        values = [held[register] for register in sorted(held)]
        lanes.setdefault(warp, {})[lane] = (_pairs if order.pairwise else _in_turn)(values, add)
    partial = [_butterfly([held[lane] for lane in sorted(held)], add) for _, held in sorted(lanes.items())]
    return _butterfly(partial, add)


def _pairs(values: list[Fraction], add: Callable[[Fraction, Fraction], Fraction]) -> Fraction:
    """In two halves of a packed register, even and odd elements, which meet last; each pairwise."""
    halves = [values[0::2], values[1::2]] if len(values) > 1 else [values]
    while len(halves[0]) > 1:
        halves = [[add(*half[i : i + 2]) for i in range(0, len(half), 2)] for half in halves]
    return _in_turn([half[0] for half in halves], add)


def _in_turn(values: list[Fraction], add: Callable[[Fraction, Fraction], Fraction]) -> Fraction:
    total = values[0]
    for value in values[1:]:
        total = add(total, value)
    return total


def _butterfly(values: list[Fraction], add: Callable[[Fraction, Fraction], Fraction]) -> Fraction:
    """Half the width first."""
    while len(values) > 1:
        half = len(values) // 2
        values = [add(values[i], values[i + half]) for i in range(half)]
    return values[0]


def cancelling(order: Order, element: str) -> tuple[list[Fraction], str]:
    """M, small ones, -M: the first and the last term meet at the root, after each has swallowed its half."""
    count = len(order.owner)
    precision, _, largest = FORMATS[element]
    ratio = 2 ** (precision + 1 + _log2(count))
    small = Fraction(1)
    while small * ratio > largest:
        small /= 2
    large = small * ratio
    shown = f"{_power(large)}, {count - 2} times {_power(small)}, -{_power(large)}"
    return [large, *[small] * (count - 2), -large], f"terms {shown}"


def swallowed(order: Order, element: str) -> tuple[list[Fraction], str]:
    """1 in the first place, and a neighbour of half its last bit in each subtree that it meets."""
    precision = FORMATS[element][0]
    half_bit = Fraction(1, 2**precision)
    terms = [Fraction(0)] * len(order.owner)
    terms[0] = Fraction(1)
    where = {place: i for i, place in enumerate(order.owner)}
    warps, lanes, registers = (len({place[n] for place in order.owner}) for n in range(3))
    inside = [2**k for k in range(_log2(registers))] if order.pairwise else range(1, registers)
    met = [(0, 0, register) for register in inside]
    met += [(0, 2**k, 0) for k in range(_log2(lanes))] + [(2**k, 0, 0) for k in range(_log2(warps))]
    for place in met:
        terms[where[place]] = half_bit
    return terms, f"terms 1, {len(met)} times {_power(half_bit)}, {len(terms) - len(met) - 1} times 0"


def non_negative(value: Value, depth: int = 0) -> bool:
    """Whether no element can be below zero: squares, magnitudes, exponentials, and what is made of those."""
    made = value.definition
    if made is None or depth > 32:
        return False
    if made.name in ("math.absf", "math.exp", "math.exp2", "math.sqrt", "arith.uitofp"):
        return True
    if made.name == "arith.mulf" and made.operands[0] is made.operands[1]:
        return True
    if made.name in ("arith.mulf", "arith.addf"):
        return all(non_negative(operand, depth + 1) for operand in made.operands)
    if made.name == "arith.constant":
        return not re.search(r"(?<![eE])-\d|0x[89A-F]", made.attributes.get("value", ""))
    return made.name in _CHANGES_NO_SIGN and non_negative(made.operands[0], depth + 1)


def rounded(exact: Fraction, element: str) -> Fraction:
    """To the nearest number of ``element``, ties to even. Raises ``InputError`` where it overflows."""
    precision, least, largest = FORMATS[element]
    if exact == 0:
        return exact
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, least) - precision + 1)
    result = round(exact / unit) * unit  # Python rounds a Fraction's half to even
    if abs(result) > largest:
        raise InputError(f"{float(exact):g} overflows {element}")
    return result


def _log2(count: int) -> int:
    return count.bit_length() - 1


def _power(value: Fraction) -> str:
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return str(value) if value.denominator == 1 and value < 2**10 else f"2^{exponent}"


def _decimal(value: Fraction) -> str:
    return f"{float(value):.6g}"
