"""The tree a sum is added in, and its error bound as a formula in the sizes.

Why: the first-order error of a sum is (depth of its tree)·u·Σ|x|, and the depth is not in the source: the layout
decides how many elements one thread adds, how many lanes and warps share the rest. Example: 4096 values in
``sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4]`` are 32 a thread, then 5 steps over lanes, 2 over
warps.
Triton 3.6 adds the 32 one after the other (38 levels), Triton 3.9 pairwise (12 levels): the TTGIR is the same.

What is read here holds at the level of TTGIR, and these are known to lie below it:

- the order inside a thread (by compiler version; without one, the deeper order is taken);
- contraction: a multiply and an add may become one fused operation, which changes bits and not the bound;
- the order inside a tensor-core instruction, which is not documented: its K products count as K levels;
- PTX is not the machine's code: ptxas may contract again.

Two trees that print alike may differ in which elements meet: the depth says nothing about bitwise equality. For that,
``Tree.order`` holds what fixes the pairing: layout, extents, version, loop steps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kcontract.ir.launch import Trust
from kcontract.ir.ttgir import Operation, Value
from kcontract.passes.analysis.address import Addresses, Poly, add, constant
from kcontract.passes.analysis.flow import ADDS, DOTS, MMAS, Flow, allocation
from kcontract.passes.analysis.origin import CONVERSIONS, SHAPES, behind
from kcontract.passes.analysis.sums import UNIT_ROUNDOFF, Row
from kcontract.passes.base import Facts

_LISTS = re.compile(r"(\w+) = \[([\d, ]*)\]")
_BASES = re.compile(r"(\w+) = \[((?:\[[\d, ]*\](?:, )?)*)\]")
_SLICE = re.compile(r"#ttg\.slice<\{dim = (\d+), parent = (.*)\}>$")
_DEEPEST = 60
_DEEPEST_EXPRESSION = 250
#: Triton versions whose order inside a thread was measured (longest chain of adds in their PTX): True is pairwise.
_PAIRWISE = {(3, 6): False, (3, 9): True}


@dataclass(frozen=True, slots=True)
class Spread:
    """How many elements along one axis are in a thread's registers, across lanes, across warps."""

    registers: int
    lanes: int
    warps: int


@dataclass(frozen=True, slots=True)
class Level:
    """One part of a tree, from the leaves up. ``where``: thread, lanes, warps, chunks, loop, instruction, or terms.

    ``depth`` is the number of adds on the longest path, None where it is ``text``, a formula in the arguments.
    """

    where: str
    depth: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Tree:
    """A sum's tree. ``element`` is the type it is kept in; ``order`` what decides which elements meet."""

    levels: tuple[Level, ...]
    element: str
    order: tuple[str, ...]

    @property
    def depth(self) -> int | None:
        """Adds on the longest path, None where it depends on arguments."""
        depths = [level.depth for level in self.levels]
        return None if None in depths else sum(depth or 0 for depth in depths)

    @property
    def formula(self) -> str:
        """The depth as text: ``12``, ``ceil(K / 64)·64 + 7``."""
        fixed = sum(level.depth or 0 for level in self.levels)
        open_ends = [level.text for level in self.levels if level.depth is None]
        return " + ".join([*open_ends, str(fixed)] if fixed or not open_ends else open_ends)

    @property
    def bound(self) -> str:
        """The first-order bound of the sum's error: ``12·2^-24·Σ|x|`` (Higham 2002, section 4.2)."""
        roundoff = UNIT_ROUNDOFF.get(self.element)
        unit = "u" if roundoff is None else f"2^{roundoff.hex().partition('p')[2]}"
        formula = f"({self.formula})" if " " in self.formula else self.formula
        return f"{formula}·{unit}·Σ|x|"

    def __str__(self) -> str:
        steps = ", ".join(f"{level.text} {_WORDS[level.where]}" for level in self.levels) or "nothing to add"
        return f"{steps}: error at most {self.bound}"


_WORDS = {
    "thread": "in a thread",
    "lanes": "over lanes",
    "warps": "over warps",
    "chunks": "over chunks of a scan",
    "loop": "over trips of a loop",
    "instruction": "in matrix instructions",
    "terms": "in an order not known",
}


class Trees:
    """Trees of one module's sums. ``facts.get(Trees)`` shares them."""

    def __init__(self, facts: Facts) -> None:
        self._addresses = facts.get(Addresses)
        self._flow = facts.get(Flow)
        self._known: dict[Operation, list[Level]] = {}
        version = re.match(r"(\d+)\.(\d+)", str(facts.artifact.metadata.get("triton_version", "")))
        self.pairwise = _PAIRWISE.get((int(version[1]), int(version[2]))) if version else None
        self._version = version[0] if version else "unknown"

    def of(self, operation: Operation) -> Tree:
        """The tree of one accumulation: a reduction, scan, dot, MMA, or an add that a loop carries."""
        value = operation.results[0] if operation.results else operation.operands[2]
        if operation.name in MMAS:
            value = operation.operands[2]
        levels = self._of_operation(operation, 0)
        order = [f"triton {self._version}"]
        for found in (operation, *_inner(operation)):
            if found.operands and found.operands[0].layout:
                order.append(f"{found.operands[0].layout} {list(found.operands[0].type.shape)}")
        order += [level.text for level in levels if level.where == "loop"]
        return Tree(tuple(levels), value.type.element, tuple(order))

    def at(self, row: Row) -> Tree | None:
        """The tree of a row of the ledger; None for atomics, which have none, and for rows read from PTX."""
        return None if row.operation is None or row.kind == "atomic" else self.of(row.operation)

    def _of_operation(self, operation: Operation, depth: int) -> list[Level]:
        if operation.name in ("tt.reduce", "tt.scan"):
            source = operation.operands[0]
            below = self._of_value(source, depth + 1)
            return below + self._across(operation, source, operation.integer("axis") or 0)
        if operation.name in DOTS or operation.name in MMAS:
            return self._product(operation)
        loops = self._loops(operation)
        home = self._flow.component.get(operation.results[0])
        outside = [v for v in operation.operands if home is None or self._flow.component.get(v) != home]
        below = _deepest([self._of_term(value, depth + 1) for value in outside])
        if loops:
            return below + [self._trips(loop, self._adds_a_trip(loop, home)) for loop in loops]
        return _with_one_more(below) if operation.name in ("arith.addf", "arith.subf") else below

    def _adds_a_trip(self, loop: Operation, home: int | None) -> int:
        """Adds on the way of a carried sum round a loop, those of inner loops apart."""
        component = self._flow.component
        return sum(
            operation.name in ADDS
            and component.get(operation.results[0]) == home
            and next((o for o in operation.ancestors() if o.name in ("scf.for", "scf.while")), None) is loop
            for operation in loop.walk()
        )

    def _of_term(self, value: Value, depth: int) -> list[Level]:
        """Levels below a term of an add: of the sum it is, or of the expression it ends."""
        made = value.definition
        if made is None or made.name not in ("arith.addf", "arith.subf") or self._loops(made):
            return self._of_value(value, depth)
        if made not in self._known:
            too_deep = depth > _DEEPEST_EXPRESSION
            self._known[made] = [Level("terms", None, "many")] if too_deep else self._of_operation(made, depth)
        return self._known[made]

    def _of_value(self, value: Value, depth: int) -> list[Level]:
        """Levels below a value: of the sum it is, through conversions and a loop's result."""
        if depth > _DEEPEST:
            return []
        made = behind(value, SHAPES | CONVERSIONS).definition
        if made is None:
            return []
        if made.name == "scf.for":
            end = made.regions[0].blocks[0].terminator
            inner = end.operands[value.index].definition if end and value.index < len(end.operands) else None
            return [] if inner is None else self._of_operation(inner, depth + 1) if _adds(inner) else []
        if made.name == "ttng.tmem_load":
            home = allocation(made.operands[0])
            writers = [o for o in made.module.find(*MMAS) if allocation(o.operands[2]) is home]
            return self._product(writers[0]) if writers else []
        return self._of_operation(made, depth + 1) if _adds(made) and made.name != "arith.addf" else []

    def _across(self, operation: Operation, source: Value, axis: int) -> list[Level]:
        shape = source.type.shape
        extent = shape[axis] if axis < len(shape) else 1
        found = spread(source.layout or "", shape, axis)
        if found is None:
            return [Level("terms", extent - 1, str(extent - 1))] if extent > 1 else []
        if operation.name == "tt.scan":
            return _scan(extent, found, source.layout or "", axis)
        inside = _log2(found.registers) if self.pairwise else found.registers - 1
        parts = (("thread", inside), ("lanes", _log2(found.lanes)), ("warps", _log2(found.warps)))
        return [Level(where, depth, str(depth)) for where, depth in parts if depth]

    def _product(self, operation: Operation) -> list[Level]:
        return self._of_product(operation) + [
            level for other in self._others(operation) for level in self._of_product(other)
        ]

    def _others(self, operation: Operation) -> list[Operation]:
        """Further products that add into the same accumulator: copies that pipelining peeled off a loop."""
        if operation.name in MMAS:
            home = allocation(operation.operands[2])
            return [o for o in operation.module.find(*MMAS) if o is not operation and allocation(o.operands[2]) is home]
        found = []
        value = operation.operands[2]
        for _ in range(_DEEPEST):
            made = value.definition
            if made is None and value.block.parent.name == "scf.for" and value.index:
                value = value.block.parent.operands[value.index + 2]
            elif made is not None and made.name in DOTS:
                found.append(made)
                value = made.operands[2]
            elif made is not None and made.name == "ttng.warp_group_dot_wait":
                value = made.operands[min(value.index, len(made.operands) - 1)]
            else:
                break
        return found

    def _of_product(self, operation: Operation) -> list[Level]:
        a = operation.operands[0].type
        depth = a.shape[-1] if a.shape else 1
        loops = self._loops(operation)
        if not loops:
            return [Level("instruction", depth, str(depth))]
        trips = [self._trips(loop) for loop in loops]
        if all(level.depth is not None for level in trips):
            for level in trips:
                depth *= level.depth or 1
            return [Level("instruction", depth, str(depth))]
        text = "·".join([*(_grouped(level.text) for level in trips), str(depth)])
        return [Level("instruction", None, text)]

    def _loops(self, operation: Operation) -> list[Operation]:
        """Loops that carry the sum, innermost first."""
        if operation.name in MMAS:
            home = allocation(operation.operands[2])
            outside = {id(outer) for outer in home.block.parent.ancestors()} | {id(home.block.parent)}
            return [o for o in operation.ancestors() if o.name == "scf.for" and id(o) not in outside]
        component = self._flow.component
        home_number = component.get(operation.results[0])
        if home_number is None:
            return []
        return [
            outer
            for outer in operation.ancestors()
            if outer.name in ("scf.for", "scf.while")
            and any(component.get(value) == home_number for value in outer.regions[0].blocks[0].arguments)
        ]

    def _trips(self, loop: Operation, adds: int = 1) -> Level:
        """The trips of a loop, each with a number of adds."""
        if loop.name != "scf.for":
            return Level("loop", None, f"trips of the loop at line {loop.line}")
        start, stop, step = (self._addresses.of(value, ()) for value in loop.operands[:3])
        bounds = self._addresses.ranges.trips(loop)
        distance, divisor = add(stop, start, -1), constant(step)
        fixed = constant(distance)
        adds = max(adds, 1)
        if bounds is not None and bounds.low == bounds.high and bounds.trust is Trust.PROVED:
            return Level("loop", bounds.low * adds, str(bounds.low * adds))
        if fixed is not None and divisor:
            trips = max(-(-fixed // divisor), 0) * adds
            return Level("loop", trips, str(trips))
        count = self._text(distance)
        text = count if divisor == 1 else f"ceil({_grouped(count)} / {_grouped(self._text(step))})"
        return Level("loop", None, text if adds == 1 else f"{adds}·{_grouped(text)}")

    def _text(self, poly: Poly) -> str:
        """A polynomial in the names of arguments."""
        parts = []
        for monomial, factor in sorted(poly.items(), reverse=True):
            names = [self._name(number) for number in monomial]
            if factor != 1 or not names:
                names.insert(0, str(factor))
            parts.append("·".join(names))
        return " + ".join(parts).replace("+ -1·", "- ").replace("+ -", "- ") or "0"

    def _name(self, number: int) -> str:
        kind, key = self._addresses.atoms[number]
        if kind == "argument":
            return str(key.name.lstrip("%"))
        if kind in ("pid", "programs"):
            return f"{'program_id' if kind == 'pid' else 'num_programs'}({key})"
        if kind in ("div", "mod", "min", "max"):
            left, right = (self._text(dict(part)) for part in key)
            if kind in ("div", "mod"):
                return f"({_grouped(left)} {'//' if kind == 'div' else '%'} {_grouped(right)})"
            return f"{kind}({left}, {right})"
        return "trip" if kind == "trip" else str(key[0].name.lstrip("%")) if kind == "opaque" else kind


def spread(layout: str, shape: tuple[int, ...], axis: int) -> Spread | None:
    """Where the elements along an axis are, by the layout (all aliases replaced); None for one not understood."""
    if match := _SLICE.match(layout):
        dim = int(match[1])
        return spread(match[2], (*shape[:dim], 1, *shape[dim:]), axis + (axis >= dim))
    if axis >= len(shape):
        return None
    if layout.startswith("#ttg.linear<"):
        bases = {name: re.findall(r"\[([\d, ]*)\]", text) for name, text in _BASES.findall(layout)}
        counts = [
            2 ** sum(int(base.split(",")[axis]) != 0 for base in bases.get(name, ()) if base.count(",") >= axis)
            for name in ("register", "lane", "warp")
        ]
        return Spread(*counts)
    lists = {name: [int(n) for n in text.split(",") if n.strip()] for name, text in _LISTS.findall(layout)}
    per_thread, lanes, warps = _tile(layout, lists, axis)
    if not per_thread:
        return None
    left = shape[axis]
    per_thread = min(per_thread, left)
    left //= per_thread
    lanes = min(lanes, left)
    left //= lanes
    warps = min(warps, left)
    return Spread(per_thread * (left // warps), lanes, warps)


def _tile(layout: str, lists: dict[str, list[int]], axis: int) -> tuple[int, int, int]:
    """Elements a thread, lanes and warps of one tile of a layout, along an axis; zeros where it is not understood."""
    warps = lists.get("warpsPerCTA", [])
    if axis >= len(warps):
        return 0, 0, 0
    if layout.startswith("#ttg.blocked<"):
        return lists["sizePerThread"][axis], lists["threadsPerWarp"][axis], warps[axis]
    if layout.startswith("#ttg.nvidia_mma<") and len(warps) == 2:  # a 16 x 8 fragment: two rows, two columns a thread
        columns = lists["instrShape"][1] if len(lists["instrShape"]) == 3 else 8
        return (2, 8, warps[0]) if axis == 0 else (columns // 4, 4, warps[1])
    return 0, 0, 0


def _scan(extent: int, found: Spread, layout: str, axis: int) -> list[Level]:
    """A scan goes over lanes in step, then over all chunks of a warp's width one after the other."""
    lists = dict(_LISTS.findall(layout))
    sizes = [int(n) for n in lists.get("sizePerThread", "").split(",") if n.strip()]
    own = min(sizes[axis], found.registers) if axis < len(sizes) else found.registers
    chunks = max(extent // (own * found.lanes), 1)
    inside = own if own > 1 else 0  # the adds of a thread's own run, and one of the carry
    parts = (("thread", inside), ("lanes", _log2(found.lanes)), ("chunks", chunks - 1))
    return [Level(where, depth, str(depth)) for where, depth in parts if depth]


def _adds(operation: Operation) -> bool:
    return operation.name in (*DOTS, "tt.reduce", "arith.addf") and operation.results[0].type.element.startswith(
        ("f", "bf")
    )


def _inner(operation: Operation) -> list[Operation]:
    """Sums that directly feed a reduction."""
    made = behind(operation.operands[0], SHAPES | CONVERSIONS).definition if operation.operands else None
    return [made] if made is not None and _adds(made) else []


def _grouped(text: str) -> str:
    """In brackets where it has more than one term."""
    return f"({text})" if " " in text and not text.startswith("ceil(") else text


def _deepest(candidates: list[list[Level]]) -> list[Level]:
    """The levels with the greatest depth; a formula counts as more than any number."""
    if not candidates:
        return []
    return max(candidates, key=lambda levels: (sum(v.depth is None for v in levels), sum(v.depth or 0 for v in levels)))


def _with_one_more(levels: list[Level]) -> list[Level]:
    """Levels and one more add in the thread."""
    if levels and levels[-1].where == "thread" and levels[-1].depth is not None:
        depth = levels[-1].depth + 1
        return [*levels[:-1], Level("thread", depth, str(depth))]
    return [*levels, Level("thread", 1, "1")]


def _log2(count: int) -> int:
    return max(count, 1).bit_length() - 1
