"""The ledger: every floating-point accumulation of a module, classified, with the type its sum is kept in.

Why: a rule that knows some patterns passes what it does not know. The ledger starts from the other end: each float
add, fused multiply-add, dot, MMA, reduction, scan and atomic is a row, and each row has a class. What is not an
accumulation is a row too (``elementwise``, or ``combine`` inside a reduction's own region).

Terms: how many values a row's sum has, as an interval. A dot of depth K in a loop of T trips sums K·T terms; peeled
copies of one dot add up, since they share an accumulator. A bound of None is unknown.

Inline assembly is read for its adds. Where there is no TTGIR, the rows come from the PTX (see ``assembly``). A call
into another function counts as part of the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from kcontract.ir.launch import Trust
from kcontract.ir.target import Target
from kcontract.ir.ttgir import Operation, Region, Value
from kcontract.model import Place
from kcontract.passes.analysis.chains import Chains
from kcontract.passes.analysis.exact import integer_magnitude, is_exact
from kcontract.passes.analysis.flow import ADDS, DOTS, LOOPS, MMAS, Flow, allocation, inside, is_float, is_narrow
from kcontract.passes.analysis.masks import kept_terms
from kcontract.passes.analysis.ranges import Ranges
from kcontract.passes.analysis.sums import UNIT_ROUNDOFF, Row, Terms
from kcontract.passes.base import Facts

ATOMICS = ("tt.atomic_rmw", "tt.descriptor_reduce", "ttng.async_tma_reduce")
#: in a reduction's region these may add, for all that is known
_COMBINING = ("tt.call", "tt.elementwise_inline_asm", "tt.extern_elementwise", "arith.divf")
ASSEMBLY = "tt.elementwise_inline_asm"
SINKS = (*DOTS, *MMAS, *ADDS, "tt.reduce", "tt.scan", *ATOMICS, ASSEMBLY)


class Ledger:
    """Rows of one module, in order. ``facts.get(Ledger)`` shares it among rules."""

    def __init__(self, facts: Facts) -> None:
        self._flow = facts.get(Flow)
        self._ranges = facts.get(Ranges)
        self._chains = facts.get(Chains)
        module = facts.artifact.module
        self.rows: tuple[Row, ...]
        if module is None:
            from kcontract.passes.analysis.assembly import rows as assembly_rows

            self.rows = tuple(assembly_rows(facts.artifact.program)) if facts.artifact.program else ()
        else:
            rows = [self._row(operation) for operation in module.find(*SINKS)]
            self.rows = tuple(self._grouped([row for row in rows if row is not None]))

    def sums(self) -> Iterator[Row]:
        """One row an accumulator: the terms of rows that add into one another together, at the longest of them."""
        groups: dict[int, list[Row]] = {}
        for row in self.rows:
            if row.accumulates:
                groups.setdefault(row.group, []).append(row)
        for rows in groups.values():
            rows = [row for row in rows if row.narrow] or rows  # one that rounds spoils the whole sum
            longest = max(rows, key=lambda row: (row.terms.low, row.terms.high or float("inf")))
            # each row of a chain counts the terms of the whole expression up to there
            # and of rows read from PTX nothing tells how often each is run
            alone = longest.kind == "chain" or longest.operation is None
            yield longest if alone else replace(longest, terms=_total(row.terms for row in rows))

    def _grouped(self, rows: list[Row]) -> Iterator[Row]:
        """Give rows that add into one another the same group number."""
        parent: dict[object, object] = {}

        def find(node: object) -> object:
            while parent.setdefault(node, node) is not node:
                parent[node] = parent[parent[node]]
                node = parent[node]
            return node

        makers = {row.operation: row for row in rows}
        for row in rows:
            operation = row.operation
            if operation is None:
                continue
            if operation.name in MMAS:
                parent[find(operation)] = find(allocation(operation.operands[2]))
            elif row.kind in ("loop sum", "recurrence"):
                parent[find(operation)] = find(self._flow.component.get(operation.results[0]))
            elif row.kind in ("dot", "chain", "elementwise"):
                for operand in operation.operands[2:3] if row.kind == "dot" else operation.operands:
                    source = _through_loops(operand)
                    if source in makers and makers[source].kind in (row.kind, "elementwise", "chain"):
                        parent[find(operation)] = find(source)
        numbers: dict[object, int] = {}
        for row in rows:
            yield replace(row, group=numbers.setdefault(find(row.operation), len(numbers)))

    def _row(self, operation: Operation) -> Row | None:
        name = operation.name
        if name in MMAS:
            return self._mma(operation) if is_float(operation.operands[2]) else None
        if name in DOTS:
            return self._dot(operation) if is_float(operation.results[0]) else None
        if name in ("tt.reduce", "tt.scan"):
            return self._reduction(operation)
        if name in ATOMICS:
            return _atomic(operation)
        if name == ASSEMBLY:
            return self._assembly(operation)
        if not is_float(operation.results[0]):
            return None
        return self._add(operation)

    def _mma(self, operation: Operation) -> Row:
        a, _, destination = operation.operands[:3]
        depth = _depth(a)
        home = allocation(destination)
        loops = _loops_around(operation, home, self._flow.component)
        terms = self._times(Terms(depth, depth), loops)
        narrowed = self._flow.narrowest(home)
        element = narrowed or destination.type.element
        return _row(operation, "mma", element, a.type.element, terms, bool(narrowed))

    def _dot(self, operation: Operation) -> Row:
        a, accumulator, result = operation.operands[0], operation.operands[2], operation.results[0]
        depth = _depth(a)
        carried = accumulator in self._flow.carried(operation)
        terms = self._times(Terms(depth, depth), self._carrying_loops(operation) if carried else [])
        narrowed = self._flow.narrowest(result) if carried else None
        exact = not carried and is_exact(operation.operands[:2], terms, result.type.element, self._ranges)
        return _row(operation, "dot", narrowed or result.type.element, a.type.element, terms, bool(narrowed), exact)

    def _reduction(self, operation: Operation) -> Row | None:
        values = [operand for operand in operation.operands if is_float(operand)]
        if not values:
            return None
        inner = [op for region in operation.regions for op in _inside(region)]
        adds = [op for op in inner if op.name in _COMBINING or (op.name in (*ADDS, "arith.mulf") and _is_float(op))]
        kind = operation.name.removeprefix("tt.")
        axis = operation.integer("axis") or 0
        shape = values[0].type.shape
        count = shape[axis] if axis < len(shape) else 1
        # what is kept between two combinations has the types of the operands, whatever the region computes in
        kept = _summed(operation, adds) or values
        element = max((value.type.element for value in kept), key=lambda name: UNIT_ROUNDOFF.get(name, 1.0))
        terms = kept_terms(values[0], axis, count, self._ranges)
        exact = terms.high == 1 or is_exact(values[:1], Terms(count, count), element, self._ranges)
        if adds and all(op.name == "arith.mulf" for op in adds):
            kind = "product"
        return _row(operation, kind if adds else "order", element, values[0].type.element, terms, exact=exact)

    def _add(self, operation: Operation) -> Row:
        result = operation.results[0]
        element = result.type.element
        inputs = ", ".join(dict.fromkeys(operand.type.element for operand in operation.operands))
        if any(outer.name in ("tt.reduce", "tt.scan") for outer in operation.ancestors()):
            return _row(operation, "combine", element, inputs, Terms(2, 2))
        loops = self._carrying_loops(operation)
        if not loops:
            length, rounded = self._chains.of(result)
            kind = "partial" if self._feeds_wider_sum(operation) else "chain" if length >= 3 else "elementwise"
            narrowed = rounded if kind == "chain" and not is_narrow(result) else None
            return _row(operation, kind, narrowed or element, inputs, Terms(length, length), bool(narrowed))
        kind = "recurrence" if self._scaled(operation) else "loop sum"
        terms = self._times(Terms(1, 1), loops)
        if any(outer.name == "scf.if" and loops[-1] in outer.ancestors() for outer in operation.ancestors()):
            terms = replace(terms, low=0)
        narrowed = self._flow.narrowest(result)
        added = [operand for operand in operation.operands if operand not in self._flow.carried(operation)]
        if (
            len(added) == 1
            and integer_magnitude(added[0], self._ranges) is not None
            and _starts_whole(loops, self._ranges)
        ):
            exact = is_exact(added, terms, narrowed or element, self._ranges)
            return _row(operation, kind, narrowed or element, inputs, terms, bool(narrowed), exact)
        return _row(operation, kind, narrowed or element, inputs, terms, bool(narrowed))

    def _assembly(self, operation: Operation) -> Row | None:
        from kcontract.passes.analysis.assembly import added_types, atomic_in

        text = operation.string("asm_string") or ""
        types = added_types(text)
        if not types:
            return None
        element = max(types, key=UNIT_ROUNDOFF.__getitem__)
        if atomic_in(text):
            return _row(operation, "atomic", element, element, Terms(1, None))
        loops = self._carrying_loops(operation)
        if not loops:
            return _row(operation, "elementwise", element, element, Terms(2, 2))
        return _row(operation, "loop sum", element, element, self._times(Terms(1, 1), loops))

    def _feeds_wider_sum(self, operation: Operation) -> bool:
        """Whether a 16-bit add exists only to be extended and added into a loop's wider sum."""
        if not is_narrow(operation.results[0]):
            return False
        extended = operation.results[0].users
        return bool(extended) and all(
            user.name == "arith.extf"
            and any(use.name in ADDS and self._carrying_loops(use) for use in user.results[0].users)
            for user in extended
        )

    def _carrying_loops(self, operation: Operation) -> list[Operation]:
        """Loops around the operation that carry its result back to one of its operands."""
        home = self._flow.component.get(operation.results[0])
        if home is None:
            return []
        component = self._flow.component
        return [
            outer
            for outer in operation.ancestors()
            if outer.name in LOOPS
            and any(component.get(value) == home for value in outer.regions[0].blocks[0].arguments)
        ] or [outer for outer in operation.ancestors() if outer.name in LOOPS][:1]

    def _scaled(self, operation: Operation) -> bool:
        """Whether the carried value is also multiplied on its way round (a decay), seen from this add."""
        component = self._flow.component
        home = component.get(operation.results[0])
        return any(
            operand.definition is not None
            and operand.definition.name in ("arith.mulf", "arith.divf")
            and component.get(operand) == home
            for operand in operation.operands
        )

    def _times(self, terms: Terms, loops: Iterable[Operation]) -> Terms:
        for loop in loops:
            trips = self._ranges.trips(loop)
            low = trips.low if trips else 0  # a loop may not run at all: peeled copies are rows of their own
            unbounded = trips is None or trips.high >= 2**31 - 1 or terms.high is None
            trust = trips.trust if trips and trips.trust is not Trust.PROVED else terms.trust
            high = None if unbounded or trips is None or terms.high is None else terms.high * max(trips.high, 1)
            terms = Terms(terms.low * low, high, trust)
        return terms


def imprecise_terms(row: Row, target: Target) -> int | None:
    """How many fp8 products Hopper's tensor core adds with fewer than 24 bits, None where at most 128 or elsewhere.

    128 is the interval at which DeepGEMM moves partial sums out (deepseek-ai/DeepGEMM, README).
    """
    operation = row.operation
    if target.capability != 90 or operation is None or operation.name not in DOTS or not row.inputs.startswith("f8"):
        return None
    limit = operation.integer("maxNumImpreciseAcc") or 0
    most = limit if row.terms.high is None else min(limit, row.terms.high)
    return limit if most > 128 else None


def _row(
    operation: Operation,
    kind: str,
    element: str,
    inputs: str,
    terms: Terms,
    narrowed: bool = False,
    exact: bool = False,
) -> Row:
    place = Place(operation.location, "ttgir", operation.line)
    return Row(place, kind, element, inputs, terms, narrowed, exact, operation=operation)


def _inside(region: Region) -> Iterator[Operation]:
    for block in region.blocks:
        for operation in block.operations:
            yield from operation.walk()


def _summed(operation: Operation, adds: list[Operation]) -> list[Value]:
    """Of the values reduced together, those whose combined value an add (or a call) is part of."""
    block = operation.regions[0].blocks[0] if operation.regions and operation.regions[0].blocks else None
    returned = block.terminator.operands if block and block.terminator else []
    found = []
    for operand, value in zip(operation.operands, returned, strict=False):
        todo, seen = [value.definition], set[Operation]()
        while todo:
            made = todo.pop()
            if made is None or made in seen:
                continue
            seen.add(made)
            todo += [inner.definition for inner in made.operands]
        if is_float(operand) and not seen.isdisjoint(adds):
            found.append(operand)
    return found


def _is_float(operation: Operation) -> bool:
    return bool(operation.results) and is_float(operation.results[0])


def _starts_whole(loops: list[Operation], ranges: Ranges) -> bool:
    """Whether all that the loops carry is known to start at -1, 0 or 1, as a count does."""
    starts = [operand for loop in loops if loop.name == "scf.for" for operand in loop.operands[3:] if is_float(operand)]
    sizes = [integer_magnitude(start, ranges) for start in starts]
    return bool(sizes) and all(size is not None and size <= 1 for size in sizes)


def _depth(a: Value) -> int:
    return a.type.shape[-1] if a.type.shape else 1


def _loops_around(operation: Operation, home: Value, component: Mapping[Value, int]) -> list[Operation]:
    """Loops the operation stands in and the allocation does not, up to where the allocation is written anew.

    A store of what was loaded from the allocation before (a rescaled accumulator) is no new beginning.
    """
    writers = [
        user
        for view in _views(home)
        for user in view.users
        if user.name == "ttng.tmem_store"
        and not (home in component and component.get(user.operands[-2]) == component[home])
    ]
    loops = []
    for outer in operation.ancestors():
        if outer.name not in LOOPS:
            continue
        if (inside(home, outer) and home not in component) or any(outer in writer.ancestors() for writer in writers):
            break
        loops.append(outer)
    return loops


def _views(home: Value) -> Iterator[Value]:
    yield home
    for user in home.users:
        if user.name.startswith(("ttg.memdesc_", "ttng.tmem_subslice")):
            yield from user.results


def _atomic(operation: Operation) -> Row | None:
    kind = (operation.string("atomic_rmw_op") or operation.string("kind") or "").lower()
    value = next((operand for operand in reversed(operation.operands) if is_float(operand)), None)
    if value is None or kind not in ("fadd", "add"):
        return None
    return _row(operation, "atomic", value.type.element, value.type.element, Terms(1, None))


def _through_loops(value: Value) -> Operation | None:
    """The operation that made a value, seen through loop arguments, loop results and identities."""
    for _ in range(64):
        operation = value.definition
        if operation is None:
            parent = value.block.parent
            if parent.name != "scf.for" or value.index == 0 or value.index + 2 >= len(parent.operands):
                return None
            value = parent.operands[value.index + 2]
        elif operation.name in ("ttng.warp_group_dot_wait", "ttg.convert_layout"):
            value = operation.operands[min(value.index, len(operation.operands) - 1)]
        elif operation.name == "scf.for":
            terminator = operation.regions[0].blocks[0].terminator
            if terminator is None or value.index >= len(terminator.operands):
                return None
            value = terminator.operands[value.index]
        else:
            return operation
    return None


def _total(terms: Iterable[Terms]) -> Terms:
    low, high, trust = 0, 0, Trust.PROVED
    unbounded = False
    for term in terms:
        low += term.low
        unbounded |= term.high is None
        high += term.high or 0
        trust = term.trust if term.trust is not Trust.PROVED else trust
    return Terms(max(low, 1), None if unbounded else high, trust)
