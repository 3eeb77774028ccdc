"""Symbolic addresses: what an integer or pointer is, as a polynomial over program ids, lanes, trips and arguments.

Why: whether two programs meet at one address is a question about how the address is made, not about its bounds.
Example: in ``out + pid * 1024 + range(0, 1024)`` the intervals of all programs overlap, yet the polynomial
``1024·pid + lane`` with ``lane < 1024`` gives every (pid, lane) an element of its own.

A polynomial maps a monomial (numbers of interned atoms, sorted) to its integer coefficient. Lanes are numbered by the
dimension of the tensor that was asked about, also where a factor was made in fewer dimensions. What is not linear
arithmetic (a loaded index, a select) is an opaque atom that knows what it depends on. Integer arithmetic is taken
not to overflow. A function that is called from several places gives opaque values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kcontract.ir.ttgir import Operation, Value
from kcontract.passes.analysis.ranges import Ranges
from kcontract.passes.base import Facts

Poly = dict[tuple[int, ...], int]
Dims = tuple[int, ...]

_SAME = frozenset("arith.extsi arith.extui arith.trunci arith.index_cast ttg.convert_layout tt.unsplat".split())
_POINTER_STEPS = _SAME | {"tt.addptr", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans"}
_DIVIDE = frozenset("arith.divsi arith.divui arith.floordivsi".split())
_REMAINDER = frozenset("arith.remsi arith.remui".split())
_LIMITS = {"arith.minsi": "min", "arith.minui": "min", "arith.maxsi": "max", "arith.maxui": "max"}
_LOADS = frozenset("tt.load tt.atomic_rmw tt.atomic_cas tt.gather tt.descriptor_load tt.descriptor_gather".split())
_MOST_TERMS = 48
_DEEPEST = 200


class Atom(NamedTuple):
    """One symbol. ``kind``: pid, lane, trip, argument, programs, div, mod, min, max, opaque; ``key`` tells which."""

    kind: str
    key: Any


class Source(NamedTuple):
    """Something a value depends on: (pid, axis), (programs, axis), (lane, dimension), (trip, loop), (load, operation)
    or (atomic, operation)."""

    kind: str
    key: Any


class Addresses:
    """Polynomials of one module's integers and pointers. ``facts.get(Addresses)`` shares them among rules."""

    def __init__(self, facts: Facts) -> None:
        self.ranges = facts.get(Ranges)
        self.facts = facts
        self.atoms: list[Atom] = []
        self._numbers: dict[Atom, int] = {}
        self._known: dict[tuple[Value, Dims], Poly] = {}
        self._depth = 0
        self._calls: dict[str, list[Operation]] = {}
        module = facts.artifact.module
        for call in module.find("tt.call") if module else ():
            self._calls.setdefault(call.string("callee") or "", []).append(call)

    def of(self, value: Value, dims: Dims | None = None) -> Poly:
        """The polynomial of an integer or a pointer; ``dims`` names the lane of each dimension (default: its own).

        A pointer is its base argument (an atom) plus a number of elements.
        """
        dims = tuple(range(len(value.type.shape))) if dims is None else dims
        key = value, dims
        if key not in self._known:
            if self._depth >= _DEEPEST:
                return self._opaque(value, dims)
            self._depth += 1
            self._known[key] = self._opaque(value, dims)  # what a cycle sees
            self._known[key] = self._compute(value, dims)
            self._depth -= 1
        return self._known[key]

    def atom(self, kind: str, key: Any) -> Poly:
        """The polynomial that is one symbol."""
        symbol = Atom(kind, key)
        if symbol not in self._numbers:
            self._numbers[symbol] = len(self.atoms)
            self.atoms.append(symbol)
        return {(self._numbers[symbol],): 1}

    def sources(self, *values: Value) -> frozenset[Source]:
        """All that values depend on, through loads (their addresses) and control flow inside loops and branches."""
        found: set[Source] = set()
        seen: set[Value] = set()
        todo = list(values)
        while todo:
            value = todo.pop()
            if value in seen:
                continue
            seen.add(value)
            todo.extend(self._feeders(value, found))
        return frozenset(found)

    def sources_of(self, poly: Poly) -> frozenset[Source]:
        """All that a polynomial depends on."""
        found: set[Source] = set()
        for monomial in poly:
            for number in monomial:
                found |= self.atom_sources(number)
        return frozenset(found)

    def atom_sources(self, number: int) -> frozenset[Source]:
        """What one symbol depends on; nothing for an argument, which all programs share."""
        kind, key = self.atoms[number]
        if kind in ("pid", "lane", "trip"):
            return frozenset({Source(kind, key)})
        if kind in ("div", "mod", "min", "max"):
            left, right = key
            return self.sources_of(dict(left)) | self.sources_of(dict(right))
        if kind == "opaque":
            value, dims = key
            lanes = {Source("lane", d) for d, n in zip(dims, value.type.shape, strict=False) if n > 1}
            return frozenset({s for s in self.sources(value) if s.kind != "lane"} | lanes)
        return frozenset()

    def _feeders(self, value: Value, found: set[Source]) -> Iterator[Value]:
        operation = value.definition
        if operation is None:
            parent = value.block.parent
            if parent.name == "scf.for":
                found.add(Source("trip", parent))
                yield from parent.operands[:3] if value.index == 0 else _carried(parent, value.index - 1)
            elif parent.name == "scf.while":
                found.add(Source("trip", parent))
                yield from _everything_passed(parent)
            elif parent.name == "tt.func":
                yield from self._passed(value)
            elif parent.name.startswith("ttg.warp_specialize"):
                yield _captured(value)
            return
        if operation.name == "tt.get_program_id":
            found.add(Source("pid", axis(operation)))
        elif operation.name == "tt.get_num_programs":
            found.add(Source("programs", axis(operation)))
        elif operation.name == "tt.make_range":
            found.add(Source("lane", None))
        elif operation.name in _LOADS:
            found.add(Source("atomic" if operation.name.startswith("tt.atomic") else "load", operation))
        if operation.name == "scf.for":
            found.add(Source("trip", operation))
            yield from operation.operands[:3]
            yield from _carried(operation, value.index)
        else:
            yield from _everything_passed(operation)

    def _passed(self, argument: Value) -> list[Value]:
        """What the calls of a function pass for an argument; nothing for the kernel's own."""
        calls = self._calls.get(argument.block.parent.string("sym_name") or "", ())
        return [call.operands[argument.index] for call in calls if argument.index < len(call.operands)]

    def _opaque(self, value: Value, dims: Dims) -> Poly:
        return self.atom("opaque", (value, dims))

    def _compute(self, value: Value, dims: Dims) -> Poly:
        operation = value.definition
        if operation is None:
            return self._argument(value, dims)
        name, operands = operation.name, operation.operands
        if name == "arith.constant":
            number = self.ranges.constant(value)
            return self._opaque(value, dims) if number is None else {(): number} if number else {}
        if name in _SAME or name == "tt.splat":
            return self.of(operands[0], dims if operands[0].type.shape else ())
        if name == "tt.broadcast":
            return self.of(operands[0], dims)
        if name == "tt.expand_dims":
            new = operation.integer("axis") or 0
            return self.of(operands[0], dims[:new] + dims[new + 1 :])
        if name == "tt.make_range":
            start = operation.integer("start") or 0
            return add(self.atom("lane", dims[0]), {(): start} if start else {})
        if name == "tt.get_program_id":
            return self.atom("pid", axis(operation))
        if name == "tt.get_num_programs":
            return self.atom("programs", axis(operation))
        if name in ("arith.addi", "tt.addptr"):
            return add(self.of(operands[0], dims), self.of(operands[1], dims))
        if name == "arith.subi":
            return add(self.of(operands[0], dims), self.of(operands[1], dims), -1)
        if name in ("arith.muli", "arith.shli"):
            right = self.of(operands[1], dims)
            if name == "arith.shli":
                shift = constant(right)
                right = {} if shift is None or not 0 <= shift < 63 else {(): 1 << shift}
            product = multiply(self.of(operands[0], dims), right) if right or name == "arith.muli" else None
            return self._opaque(value, dims) if product is None else product
        return self._division(operation, value, dims)

    def _division(self, operation: Operation, value: Value, dims: Dims) -> Poly:
        name = operation.name
        if len(operation.operands) != 2 or not (
            name in _DIVIDE or name in _REMAINDER or name in _LIMITS or name in ("arith.shrsi", "arith.andi")
        ):
            return self._opaque(value, dims)
        left, right = (self.of(operand, dims) for operand in operation.operands)
        number = constant(right)
        if name == "arith.shrsi":
            if number is None or not 0 <= number < 63:
                return self._opaque(value, dims)
            name, right = "arith.divsi", {(): 1 << number}
        elif name == "arith.andi":
            if number is None or number <= 0 or number & (number + 1):
                return self._opaque(value, dims)
            name, right = "arith.remsi", {(): number + 1}
        kind = _LIMITS.get(name) or ("div" if name in _DIVIDE else "mod")
        return self.atom(kind, (_freeze(left), _freeze(right)))

    def _argument(self, value: Value, dims: Dims) -> Poly:
        parent = value.block.parent
        if parent.name == "tt.func":
            passed = self._passed(value)
            if not passed:
                return self.atom("argument", value)
            return self.of(passed[0], dims) if len(passed) == 1 else self._opaque(value, dims)
        if parent.name.startswith("ttg.warp_specialize"):
            return self.of(_captured(value), dims)
        if parent.name != "scf.for" or len(parent.operands) < 3:
            return self._opaque(value, dims)
        trip = self.atom("trip", parent)
        if value.index == 0:
            step = multiply(self.of(parent.operands[2], ()), trip)
            return self._opaque(value, dims) if step is None else add(self.of(parent.operands[0], ()), step)
        terminator = parent.regions[0].blocks[0].terminator
        position = value.index + 2
        if terminator is None or position >= len(parent.operands):
            return self._opaque(value, dims)
        own = self._opaque(value, dims)
        moved = add(self.of(terminator.operands[value.index - 1], dims), own, -1)
        mine = next(iter(own))[0]
        if any(mine in monomial for monomial in moved) or Source("trip", parent) in self.sources_of(moved):
            return own
        step = multiply(moved, trip)
        return own if step is None else add(self.of(parent.operands[position], dims), step)


def pointer_argument(value: Value) -> Value | None:
    """The pointer argument that an address starts from; None where it was loaded or chosen."""
    for _ in range(_DEEPEST):
        made = value.definition
        if made is not None and made.name in _POINTER_STEPS:
            value = made.operands[0]
        elif made is not None:
            return None
        elif value.block.parent.name == "tt.func":
            return value
        elif value.block.parent.name.startswith("ttg.warp_specialize"):
            value = _captured(value)
        elif value.block.parent.name == "scf.for" and 0 < value.index < len(value.block.parent.operands) - 2:
            value = value.block.parent.operands[value.index + 2]
        else:
            return None
    return None


def add(left: Poly, right: Poly, sign: int = 1) -> Poly:
    """``left + sign·right``."""
    total = dict(left)
    for monomial, factor in right.items():
        factor = total.get(monomial, 0) + sign * factor
        if factor:
            total[monomial] = factor
        else:
            total.pop(monomial, None)
    return total


def multiply(left: Poly, right: Poly) -> Poly | None:
    """The product, None where it has too many terms to be of use."""
    if len(left) * len(right) > _MOST_TERMS:
        return None
    total: Poly = {}
    for a, x in left.items():
        for b, y in right.items():
            total = add(total, {tuple(sorted(a + b)): x * y})
    return total


def constant(poly: Poly) -> int | None:
    """Its value where it is a number."""
    return 0 if not poly else poly.get(()) if len(poly) == 1 else None


def _carried(loop: Operation, position: int) -> Iterator[Value]:
    """What an iteration argument of a ``scf.for`` is first given, and given again by each trip."""
    terminator = loop.regions[0].blocks[0].terminator
    yield from loop.operands[position + 3 : position + 4]
    if terminator is not None:
        yield from terminator.operands[position : position + 1]


def _captured(value: Value) -> Value:
    """What a partition of a warp-specialised region was given for one of its arguments."""
    parent = value.block.parent
    holder = parent if parent.operands else parent.parent
    return holder.operands[value.index]


def _everything_passed(operation: Operation) -> Iterator[Value]:
    yield from operation.operands
    for region in operation.regions:
        for block in region.blocks:
            if block.terminator is not None:
                yield from block.terminator.operands


def _freeze(poly: Poly) -> tuple[tuple[tuple[int, ...], int], ...]:
    return tuple(sorted(poly.items()))


def axis(operation: Operation) -> int:
    """The grid axis that ``tt.get_program_id`` or ``tt.get_num_programs`` asks for: 0, 1 or 2."""
    return max("xyz".find(operation.attributes.get("axis", "x")[:1]), 0)
