"""Intervals of integer values: how many trips a loop makes, how far an index reaches.

Why: most questions about sizes ("does this loop add 1024 terms?") are settled by the bounds of a few values, and an
interval costs microseconds where a solver costs milliseconds. Example: ``range(0, K, 64)`` with K specialised to
4096 makes exactly 64 trips.

An interval holds for every element of a tensor. Bounds rest on constants, on the types, and on what the contract or
the launches seen say of arguments; nothing relates two values to each other (``x - x`` is not 0 here).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from kcontract.ir.launch import Trust
from kcontract.ir.ttgir import Operation, Value
from kcontract.passes.base import Facts

_CONSTANT = re.compile(r"^(?:dense<)?(-?\d+|true|false)>?(?: :.*)?$")
_SAME = frozenset(
    "tt.splat tt.broadcast tt.expand_dims tt.reshape tt.trans ttg.convert_layout arith.extsi arith.index_cast "
    "tt.unsplat tt.cat tt.join".split()
)

_DEEPEST = 150  # values looked through one after the other; beyond, only the type's bounds are known


class Range(NamedTuple):
    """Inclusive bounds; ``trust`` is the weakest fact they rest on."""

    low: int
    high: int
    trust: Trust = Trust.PROVED


_ORDER = (Trust.PROVED, Trust.TRUSTED, Trust.OBSERVED)


class Ranges:
    """Ranges of one module's values, each computed once. ``facts.get(Ranges)`` shares them among rules."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._known: dict[Value, Range] = {}
        self._depth = 0

    def of(self, value: Value) -> Range:
        """Bounds of an integer value; those of its type where nothing more is known."""
        if value not in self._known:
            self._known[value] = _of_type(value)  # what a cycle sees
            if self._depth < _DEEPEST:
                self._depth += 1
                self._known[value] = self._compute(value)
                self._depth -= 1
        return self._known[value]

    def constant(self, value: Value) -> int | None:
        """The value where only one is possible by the IR alone."""
        found = self.of(value)
        return found.low if found.low == found.high and found.trust is Trust.PROVED else None

    def trips(self, loop: Operation) -> Range | None:
        """How often the body of an ``scf.for`` runs; None for other loops."""
        if loop.name != "scf.for" or len(loop.operands) < 3:
            return None
        start, stop, step = (self.of(value) for value in loop.operands[:3])
        if step.low <= 0:
            return Range(0, _of_type(loop.operands[1]).high, Trust.PROVED)
        trust = _weakest(start, stop, step)
        return Range(_trips(start.high, stop.low, step.high), _trips(start.low, stop.high, step.low), trust)

    def _compute(self, value: Value) -> Range:
        operation = value.definition
        if operation is None:
            return self._of_argument(value)
        widest = _of_type(value)
        if operation.name == "arith.constant":
            match = _CONSTANT.match(operation.attributes.get("value", ""))
            if match is None:
                return widest
            number = {"true": 1, "false": 0}.get(match[1])
            number = int(match[1][:40]) if number is None else number
            return Range(number, number)
        if operation.name == "arith.extui" or (
            operation.name == "arith.extsi" and operation.operands[0].type.bits == 1
        ):
            inner, bits = self.of(operation.operands[0]), operation.operands[0].type.bits or 64
            if operation.name == "arith.extsi":  # true is -1
                return Range(-inner.high, -inner.low, inner.trust)
            return inner if inner.low >= 0 else Range(0, 2**bits - 1)
        if operation.name in _SAME:
            parts = [self.of(operand) for operand in operation.operands]
            return _union(parts) if parts else widest
        if operation.name == "tt.make_range":
            start, end = operation.integer("start"), operation.integer("end")
            return widest if start is None or end is None else Range(start, end - 1)
        if operation.name == "tt.get_program_id":
            return self._of_program(operation, 0)
        if operation.name == "tt.get_num_programs":
            return self._of_program(operation, 1)
        if operation.name == "arith.select":
            return _union([self.of(operation.operands[1]), self.of(operation.operands[2])])
        rule = _ARITHMETIC.get(operation.name)
        if rule is None or len(operation.operands) != 2:
            return widest
        left, right = (self.of(operand) for operand in operation.operands)
        bounds = rule(left, right)
        if bounds is None or bounds[0] < widest.low or bounds[1] > widest.high:
            return widest
        return Range(*bounds, _weakest(left, right))

    def _of_argument(self, value: Value) -> Range:
        widest = _of_type(value)
        parent = value.block.parent
        if parent.name == "scf.for" and value.index == 0:
            start, stop = self.of(parent.operands[0]), self.of(parent.operands[1])
            return Range(start.low, max(start.low, stop.high - 1), _weakest(start, stop))
        if parent.name != "tt.func":
            return widest
        name = value.name.lstrip("%")
        if (stated := self.facts.contract.ranges.get(name)) is not None:
            return Range(stated[0], stated[1], Trust.TRUSTED)
        seen = [launch.arguments[name] for launch in self.facts.launches if name in launch.arguments]
        if seen and len(seen) == len(self.facts.launches):
            return Range(min(fact.low for fact in seen), max(fact.high for fact in seen), Trust.OBSERVED)
        return widest

    def _of_program(self, operation: Operation, shift: int) -> Range:
        axis = "xyz".find(operation.attributes.get("axis", "x")[:1])
        limits = self.facts.artifact.target.grid or (2**31 - 1, 65535, 65535)
        extents = [launch.grid[axis] for launch in self.facts.launches]
        high = max(extents) if extents else limits[axis]
        return Range(shift, max(high - 1 + shift, shift), Trust.OBSERVED if extents else Trust.PROVED)


def _trips(start: int, stop: int, step: int) -> int:
    return max(0, -((start - stop) // step))


def _of_type(value: Value) -> Range:
    bits = value.type.bits or 64
    return Range(0, 1) if bits == 1 else Range(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _weakest(*ranges: Range) -> Trust:
    return max((r.trust for r in ranges), key=_ORDER.index)


def _union(ranges: list[Range]) -> Range:
    return Range(min(r.low for r in ranges), max(r.high for r in ranges), _weakest(*ranges))


def _products(left: Range, right: Range) -> tuple[int, int]:
    corners = [a * b for a in left[:2] for b in right[:2]]
    return min(corners), max(corners)


def _quotients(left: Range, right: Range) -> tuple[int, int] | None:
    if right.low <= 0:
        return None
    corners = [
        int(a / b) if abs(a) < 2**52 else (abs(a) // b) * (1 if a >= 0 else -1) for a in left[:2] for b in right[:2]
    ]
    return min(corners), max(corners)


def _remainders(left: Range, right: Range) -> tuple[int, int] | None:
    if right.low <= 0:
        return None
    return (0 if left.low >= 0 else 1 - right.high), min(right.high - 1, max(left.high, 0))


_ARITHMETIC: dict[str, Callable[[Range, Range], tuple[int, int] | None]] = {
    "arith.addi": lambda a, b: (a.low + b.low, a.high + b.high),
    "arith.subi": lambda a, b: (a.low - b.high, a.high - b.low),
    "arith.muli": _products,
    "arith.divsi": _quotients,
    "arith.remsi": _remainders,
    "arith.minsi": lambda a, b: (min(a.low, b.low), min(a.high, b.high)),
    "arith.maxsi": lambda a, b: (max(a.low, b.low), max(a.high, b.high)),
}
