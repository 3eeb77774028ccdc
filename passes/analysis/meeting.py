"""Whether two programs, or two lanes of one program, can meet at one address.

Why: an atomic float add is deterministic where each address has one writer. Two copies of the address (see
``address``) are set equal and the rest is arithmetic. Example: ``row·stride + column`` with ``column < 64`` is equal
in two copies only if row and column are.

Terms whose factors of arguments differ (``stride·row`` and ``1·column``) are compared one by one: strides are taken to
keep rows apart, as they do in every tensor that is not expanded. Grid axes that a kernel never reads are taken to have
extent 1, and integer arguments that z3 is asked about to be positive. Bounds come first, then small values; z3 is
asked only about what they leave open and no loaded index decides.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kcontract.ir.ttgir import Operation, Value
from kcontract.passes.analysis.address import Addresses, Poly, Source, add, axis
from kcontract.passes.analysis.conditions import Condition, conditions
from kcontract.passes.analysis.sampling import collision
from kcontract.passes.analysis.solver import SolverTime
from kcontract.passes.base import Facts

if TYPE_CHECKING:
    import z3

_PARAMETERS = ("argument", "programs")
_DERIVED = ("div", "mod", "min", "max")
_UNBOUNDED = 2**31 - 1


class Meeting(str, enum.Enum):
    """Two writers of one address: never, always possible, or not known."""

    APART = "apart"
    MEET = "meet"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Answer:
    """``who``: programs or lanes. ``reason`` is a clause for a message; ``example`` two writers that meet."""

    meeting: Meeting
    who: str = ""
    reason: str = ""
    example: tuple[str, str] | None = None


class Meetings:
    """Answers about one module. ``facts.get(Meetings)`` shares them among rules."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.addresses = facts.get(Addresses)
        module = facts.artifact.module
        read = module.find("tt.get_program_id") if module else []
        self.axes = sorted({axis(operation) for operation in read if self._extent(axis(operation)) > 1})
        self.time = facts.get(SolverTime)
        self._known: dict[Operation, Answer] = {}

    def at(
        self, operation: Operation, coordinates: tuple[Value, ...], box: tuple[int, ...], mask: Value | None
    ) -> Answer:
        """Can two writers meet at this operation's address?

        ``coordinates`` is one tensor of pointers, or the first coordinates of a descriptor's ``box`` of elements.
        """
        if operation not in self._known:
            self._known[operation] = self._decide(operation, coordinates, box, mask)
        return self._known[operation]

    def _extent(self, direction: int) -> int:
        limits = self.facts.artifact.target.grid or (_UNBOUNDED, 65535, 65535)
        return max((launch.grid[direction] for launch in self.facts.launches), default=limits[direction])

    def _decide(
        self, operation: Operation, coordinates: tuple[Value, ...], box: tuple[int, ...], mask: Value | None
    ) -> Answer:
        polys = [self.addresses.of(value) for value in coordinates]
        shape = box or coordinates[0].type.shape
        if box:
            polys = [add(poly, self.addresses.atom("lane", d)) for d, poly in enumerate(polys)]
        query = _Query(self, polys, shape, list(conditions(operation, mask)))
        for who, differ in (
            ("programs", [Source("pid", a) for a in self.axes]),
            ("lanes", [Source("lane", d) for d, extent in enumerate(shape) if extent > 1]),
        ):
            equal = frozenset(Source("pid", a) for a in self.axes) if who == "lanes" else frozenset()
            answer = query.answer(who, differ, equal)
            if answer.meeting is not Meeting.APART:
                return answer
        return Answer(Meeting.APART, "", "each address has one writer")


class _Query:
    def __init__(
        self, meetings: Meetings, polys: list[Poly], shape: tuple[int, ...], conditions: list[Condition]
    ) -> None:
        self.meetings = meetings
        self.addresses = meetings.addresses
        self.shape = shape
        self.conditions = conditions
        self.parts = [part for poly in polys for part in self._by_parameters(poly)]
        self.sources = frozenset(s for poly in polys for s in self.addresses.sources_of(poly))
        self.guards = self.addresses.sources(*(condition.value for condition in conditions))

    def answer(self, who: str, differ: list[Source], equal: frozenset[Source]) -> Answer:
        free = self._undetermined(differ, equal)
        if not free:
            return Answer(Meeting.APART)
        unused = [source for source in free if source not in self.sources]
        guarded = {s.kind for s in self.guards}
        for source in unused:
            blind = source not in self.guards and not (source.kind == "lane" and "lane" in guarded)
            if blind:
                return Answer(Meeting.MEET, who, self._why(source), _pair(source, differ))
        if any(source.kind in ("load", "atomic") for source in self.sources):
            return Answer(Meeting.UNKNOWN, who, "the address depends on values that are loaded")
        if any(self.addresses.atoms[n].kind == "opaque" and self._moving(n) for part in self.parts for n in part or ()):
            return Answer(Meeting.UNKNOWN, who, "the address is computed in a way that is not followed")
        return self._solve(who, differ, equal)

    def _why(self, source: Source) -> str:
        if source.kind == "pid":
            return f"the address does not depend on program_id({source.key})"
        return f"the address is the same along dimension {source.key} of the value"

    def _by_parameters(self, poly: Poly) -> Iterator[dict[int, int] | None]:
        """Linear forms over variables, one a product of arguments; None for one that is not linear."""
        groups: dict[tuple[int, ...], dict[int, int]] = {}
        bad = set()
        for monomial, factor in poly.items():
            fixed = tuple(n for n in monomial if self.addresses.atoms[n].kind in _PARAMETERS)
            moving = [n for n in monomial if self.addresses.atoms[n].kind not in _PARAMETERS]
            if len(moving) == 1:
                groups.setdefault(fixed, {})[moving[0]] = factor
            elif moving:
                bad.add(fixed)
        yield from (None if key in bad else group for key, group in groups.items())

    def _undetermined(self, differ: list[Source], equal: frozenset[Source]) -> list[Source]:
        """Sources that two equal addresses leave free, by bounds alone."""
        atoms = self.addresses.atoms
        known = set(equal)
        fixed: set[int] = set()
        used: set[int] = set()
        forms = [dict(part) for part in self.parts if part]
        forms += [form for form in self._pinned() if form]
        progress = True
        while progress:
            progress = False
            for form in forms:
                for number in list(form):
                    if number in fixed or self._moving(number) <= known:
                        del form[number]
                        progress = True
                for number in self._leading(form):
                    fixed.add(number)
                    kind, key = atoms[number]
                    if kind in ("pid", "lane", "trip"):
                        known.add(Source(kind, key))
                    progress = True
            forms += self._quotients(fixed, used)
        return [source for source in differ if source not in known]

    def _moving(self, number: int) -> set[Source]:
        """What can make a variable differ between two copies: two loads of one address give one value."""
        return {s for s in self.addresses.atom_sources(number) if s.kind not in ("load", "programs")}

    def _leading(self, form: dict[int, int]) -> Iterator[int]:
        """Variables that an equal sum fixes: each outweighs all smaller ones together."""
        order = sorted(form, key=lambda n: -abs(form[n]))
        spans = {n: self._span(n) for n in order}
        for position, number in enumerate(order):
            rest = sum(abs(form[n]) * spans[n] for n in order[position + 1 :])
            if abs(form[number]) <= rest:
                return
            yield number

    def _quotients(self, fixed: set[int], used: set[int]) -> Iterator[dict[int, int]]:
        """Where x // y and x % y are both fixed, so is x. ``used`` quotients were told before."""
        for number in fixed - used:
            kind, key = self.addresses.atoms[number]
            if kind == "div" and next(iter(self.addresses.atom("mod", key)))[0] in fixed:
                used.add(number)
                yield from (part for part in self._by_parameters(dict(key[0])) if part)

    def _pinned(self) -> Iterator[dict[int, int] | None]:
        """What an equality in the mask fixes (``program_id(0) == 0``)."""
        for left, right, predicate in self._comparisons():
            if predicate == "eq":
                difference = add(left, right, -1)
                yield from self._by_parameters(difference)

    def _comparisons(self) -> Iterator[tuple[Poly, Poly, str]]:
        for value, dims, holds in self.conditions:
            operation = value.definition
            if operation is not None and operation.name == "arith.cmpi" and len(operation.operands) == 2:
                predicate = operation.string("predicate") or ""
                predicate = predicate if holds else "" if holds is None else _NEGATED.get(predicate, "")
                left, right = (self.addresses.of(operand, dims) for operand in operation.operands)
                yield left, right, predicate

    def _span(self, number: int) -> int:
        """Greatest difference of two values of a variable."""
        kind, key = self.addresses.atoms[number]
        if kind == "pid":
            return self.meetings._extent(key) - 1
        if kind == "lane":
            return self.shape[key] - 1 if isinstance(key, int) and key < len(self.shape) else _UNBOUNDED
        if kind == "trip" and isinstance(key, Operation):
            trips = self.addresses.ranges.trips(key)
            return _UNBOUNDED if trips is None else max(trips.high - 1, 0)
        if kind == "mod":
            divisor = dict(key[1])
            return divisor[()] - 1 if list(divisor) == [()] and divisor[()] > 0 else _UNBOUNDED
        if kind == "opaque":
            found = self.addresses.ranges.of(key[0])
            return found.high - found.low
        return 2 * _UNBOUNDED

    def _solve(self, who: str, differ: list[Source], equal: frozenset[Source]) -> Answer:
        found = self._sample(differ, equal)
        if found is not None:
            return Answer(Meeting.MEET, who, "two copies of the address are equal", found)
        undecided = Answer(Meeting.UNKNOWN, who, "the address was not decided in time")
        seconds = self.meetings.time.query()
        if seconds <= 0:
            return undecided
        import z3

        solver = z3.Solver()
        solver.set("timeout", max(int(seconds * 1000), 1))
        copies = _Copies(self, solver, equal)
        for part in self.parts:
            if part is not None:
                solver.add(copies.linear(part, 0) == copies.linear(part, 1))
        solver.add(z3.Or([copies.source(source, 0) != copies.source(source, 1) for source in differ]))
        for left, right, predicate in self._comparisons():
            for copy in (0, 1):
                copies.compare(left, right, predicate, copy)
        with self.meetings.time.spent():
            result = solver.check()
        if result == z3.unsat:
            return Answer(Meeting.APART)
        if result != z3.sat:
            return undecided
        if copies.inexact or None in self.parts or not self._all_read():
            return Answer(Meeting.UNKNOWN, who, "nothing in the kernel keeps the addresses apart")
        model = solver.model()
        names = [
            ", ".join(f"{_name(s)} = {model.eval(copies.source(s, copy), model_completion=True)}" for s in differ)
            for copy in (0, 1)
        ]
        return Answer(Meeting.MEET, who, "two copies of the address are equal", (names[0], names[1]))

    def _sample(self, differ: list[Source], equal: frozenset[Source]) -> tuple[str, str] | None:
        """Two writers found by trying small values, where every part of the address and the mask is understood."""
        comparisons = list(self._comparisons())
        parts = [part for part in self.parts if part is not None]
        if len(parts) < len(self.parts) or not self._all_read() or any(p not in _NEGATED for _, _, p in comparisons):
            return None
        extents = {Source("pid", a): self.meetings._extent(a) for a in range(3)}
        extents |= {Source("lane", d): extent for d, extent in enumerate(self.shape)}
        found = collision(self.addresses, parts, comparisons, extents, differ, equal)
        if found is None:
            return None
        first, second = (", ".join(f"{_name(s)} = {at[s]}" for s in differ) for at in found)
        return first, second

    def _all_read(self) -> bool:
        """Whether each condition of the mask was understood."""
        return len(list(self._comparisons())) == len(self.conditions)


_NEGATED = {"eq": "ne", "ne": "eq", "slt": "sge", "sge": "slt", "sgt": "sle", "sle": "sgt"}


class _Copies:
    """z3 integers for two copies of the variables; arguments are shared."""

    def __init__(self, query: _Query, solver: z3.Solver, equal: frozenset[Source]) -> None:
        self.query = query
        self.solver = solver
        self.equal = equal
        self.inexact = False
        self._made: dict[tuple[int, int], Any] = {}

    def source(self, source: Source, copy: int) -> Any:
        """The integer that a program id or lane is in one copy."""
        return self.variable(next(iter(self.query.addresses.atom(source.kind, source.key)))[0], copy)

    def linear(self, form: dict[int, int], copy: int) -> Any:
        """A linear form in one copy."""
        return sum(factor * self.variable(number, copy) for number, factor in form.items())

    def poly(self, poly: Poly, copy: int) -> Any:
        """A polynomial in one copy."""
        total: Any = 0
        for monomial, factor in poly.items():
            term: Any = factor
            for number in monomial:
                term = term * self.variable(number, copy)
            total = total + term
        return total

    def compare(self, left: Poly, right: Poly, predicate: str, copy: int) -> None:
        """Assert one comparison of the mask."""
        a, b = self.poly(left, copy), self.poly(right, copy)
        found = {"eq": a == b, "ne": a != b, "slt": a < b, "sle": a <= b, "sgt": a > b, "sge": a >= b}.get(predicate)
        if found is None:
            self.inexact = True
        elif not isinstance(found, bool):
            self.solver.add(found)

    def variable(self, number: int, copy: int) -> Any:
        """The integer of one symbol in one copy, made with its bounds at first use."""
        import z3

        kind, key = self.query.addresses.atoms[number]
        shared = kind in _PARAMETERS or Source(kind, key) in self.equal or not self.query._moving(number)
        copy = 0 if shared else copy
        if (number, copy) in self._made:
            return self._made[number, copy]
        made = self._made[number, copy] = z3.Int(f"v{number}_{copy}")
        if kind in _DERIVED:
            self._derived(kind, key, made, copy)
        elif kind == "argument" and isinstance(key, Value):
            bounds = self.query.addresses.ranges.of(key)
            self.solver.add(made >= max(bounds.low, 1), made <= bounds.high)  # sizes and strides
        elif kind == "programs":
            self.solver.add(made >= 1)
        elif kind == "opaque":
            self.inexact = True
        else:
            self.solver.add(made >= 0, made <= self.query._span(number))
            if kind == "trip" and isinstance(key, Operation) and key.name == "scf.for":
                start, stop, step = (self.poly(self.query.addresses.of(v, ()), copy) for v in key.operands[:3])
                self.solver.add(start + step * made < stop)
        return made

    def _derived(self, kind: str, key: Any, made: Any, copy: int) -> None:
        import z3

        left, right = (self.poly(dict(part), copy) for part in key)
        if kind in ("min", "max"):
            smaller = left <= right
            self.solver.add(made == z3.If(smaller, *((left, right) if kind == "min" else (right, left))))
            return
        self.solver.add(right >= 1, left >= 0)  # index arithmetic: C division equals floor division there
        other = z3.FreshInt()
        quotient, rest = (made, other) if kind == "div" else (other, made)
        self.solver.add(left == right * quotient + rest, quotient >= 0, rest >= 0, rest < right)


def _name(source: Source) -> str:
    return f"program_id({source.key})" if source.kind == "pid" else f"lane {source.key}"


def _pair(source: Source, differ: list[Source]) -> tuple[str, str]:
    first, second = (", ".join(f"{_name(s)} = {copy if s == source else 0}" for s in differ) for copy in (0, 1))
    return first, second
