"""Parts of one sum that are rounded to 16 bits before they are added up (ORD-03)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kcontract.ir.artifact import Artifact
from kcontract.ir.ttgir import Operation, Value
from kcontract.model import Confidence, Finding, Level, Related, Settled
from kcontract.passes.analysis.address import Addresses, Poly
from kcontract.passes.analysis.conditions import parts
from kcontract.passes.analysis.flow import DOTS, MMAS, Flow, allocation, is_narrow
from kcontract.passes.analysis.meeting import Meeting, Meetings
from kcontract.passes.analysis.memory_sums import Sum, atomics
from kcontract.passes.analysis.origin import CONVERSIONS, SHAPES, adds_to_itself, behind, is_sum, place
from kcontract.passes.base import Facts, Rule

_THROUGH = SHAPES | CONVERSIONS | {"ttng.warp_group_dot_wait"}
_SCALES = ("arith.mulf", "arith.divf")


class HalfPrecisionPartials(Rule):
    """Finds parts of one sum that are rounded to 16 bits and then added to each other.

    ## Contract

    A sum survives adversarial orders of its terms (gate ORD-03): it is rounded to the output's type once, after its
    last part is added.

    ## Why it matters

    Where a sum over K is split among programs, parts may be large and cancel. Each part rounded to bfloat16 carries an
    error of 2^-9 of its own size, not of the result's: a relative error of 0.4 where one rounding gives 0.004.

    ## Fires on

    - a 16-bit atomic add or descriptor reduction of a dot product or another sum, at which two programs can meet;
    - a 16-bit load, add and store of a sum at an address that two programs share (under a lock);
    - a 16-bit store of a sum whose reduced index and whose place both depend on one program id: a partial result of
      split-K, which another kernel adds up.

    Each is a hazard.

    ## Silent on

    Whole sums, stored once in 16 bits; partial results in float32; 16-bit atomics of values that are no sums (the
    accumulator rule covers those).

    ## Limits

    That a program id cuts the reduced index is read from the mask that bounds the index, from the start of the loop, or
    from a loop that steps over the other programs' share. `x[pid * BLOCK + i]` without any of these may as well be a
    row, and is silent; so are parts whose bounds are loaded, or whose strides are all compile-time constants, and sums
    over rows that a loop carries without a product, and stores through a descriptor. A part that
    enters through a second product is not seen. Splits whose number is one are not told apart.

    ## Source

    Reported cases: modular/modular issue 7165 (512 x 4096 x 14336), flagos-ai/FlagGems PR 5876,
    apple/ml-cross-entropy issue 14.
    """

    slug = "half-precision-partials"
    gate = "ORD-03"
    since = "0.1"

    def check(self, artifact: Artifact, facts: Facts) -> Iterator[Finding | Settled]:
        """Judge each 16-bit store and atomic of a sum; settle the obligation where none is a part of a longer one."""
        module = artifact.module
        if module is None:
            return
        clean = True
        added = {found.operation: found for found in atomics(module)}
        for operation in (*added, *module.find("tt.store")):
            found = added.get(operation)
            pointer, value, *rest = operation.operands
            value = value if found is None else found.value
            sums = list(_sums_in(value)) if is_narrow(value) else []
            if not sums:
                continue
            if found is not None:
                met = _met(found, facts)
                what = "atomic add of a partial sum in {}" if met else ""
            elif adds_to_itself(pointer, value, facts.get(Addresses)):
                met = _met(Sum(operation, (pointer,), (), value, rest[0] if rest else None, ""), facts)
                what = "partial sum added to memory in {}" if met else ""
            else:
                what = "partial sum of a split stored in {}" if _is_split(pointer, sums, facts) else ""
            if not what:
                continue
            clean = False
            element = value.type.element
            yield Finding(
                self.slug,
                self.gate,
                Level.HAZARD,
                f"{what.format(element)}, wanted float32 until the last part is added",
                place(operation),
                Confidence.READ,
                "each part is rounded by its own size, which exceeds the result's where parts cancel",
                "keep parts in a float32 buffer and round once at the end",
                "run it with slices of K that cancel: A, then -A plus something small",
                related=tuple(Related("a sum", place(part)) for part in sums[:2]),
                evidence={"element": element},
            )
        if clean:
            yield Settled(self.gate, "partials", "ttgir", "no part of a sum in 16 bits")


def _met(found: Sum, facts: Facts) -> bool:
    answer = facts.get(Meetings).at(found.operation, found.coordinates, found.box, found.mask)
    return answer.meeting is not Meeting.APART


def _sums_in(value: Value) -> Iterator[Operation]:
    """Sums that a value is a multiple of, or a sum with others."""
    todo = [value]
    seen: set[Value] = set()
    while todo and len(seen) < 32:
        value = behind(todo.pop(), _THROUGH)
        made = value.definition
        if made is None or value in seen:
            continue
        seen.add(value)
        if made.name in DOTS or is_sum(made):
            yield made
        elif made.name == "scf.for":
            end = made.regions[0].blocks[0].terminator
            if end is not None and value.index < len(end.operands):
                todo.append(end.operands[value.index])
        elif made.name == "ttng.tmem_load":
            home = allocation(made.operands[0])
            yield from (o for o in made.module.find(*MMAS) if allocation(o.operands[2]) is home)
        elif made.name in _SCALES or made.name in ("arith.addf", "arith.select"):
            todo += made.operands[1:] if made.name == "arith.select" else made.operands


def _is_split(pointer: Value, sums: list[Operation], facts: Facts) -> bool:
    """Whether one index made of program ids picks the place of a result and cuts what its sum runs over."""
    addresses = facts.get(Addresses)
    slots = _slots(addresses.of(pointer), addresses)
    flow = facts.get(Flow)
    return bool(slots) and any(slots & _cuts(found, bool(flow.carried(found)), addresses) for found in sums)


def _slots(poly: Poly, addresses: Addresses) -> set[int]:
    """Indices made of program ids that step over whole results, by a stride that moves no lane."""
    found: set[int] = set()
    for form in _forms(poly, addresses):
        if not any(addresses.atoms[n].kind == "lane" for n in form):
            found |= {n for n in form if _is_program(n, addresses)}
    return found


def _cuts(operation: Operation, carried: bool, addresses: Addresses) -> set[int]:
    """Indices made of program ids that say which part of a sum's terms a program adds."""
    found: set[int] = set()
    product = operation.name in (*DOTS, *MMAS)
    for outer in operation.ancestors():
        if outer.name == "scf.for" and product:
            found |= _programs(addresses.of(outer.operands[0], ()), addresses)
    for value in operation.operands[:1] if product else operation.operands:
        reduced = len(value.type.shape) - 1 if product else operation.integer("axis") or 0
        for load, dimension in _loads(value, reduced):
            pointer = load.operands[0]
            if dimension < len(pointer.type.shape):
                if product and carried:
                    found |= _interleaved(addresses.of(pointer), dimension, pointer.type.shape, addresses)
                found |= _by_mask([v for v in load.operands[1:] if v.type.element == "i1"], dimension, addresses)
    return found


def _forms(poly: Poly, addresses: Addresses) -> Iterator[dict[int, int]]:
    """Linear forms over what is no argument, one a product of arguments."""
    groups: dict[tuple[int, ...], dict[int, int]] = {}
    for monomial, factor in poly.items():
        fixed = tuple(n for n in monomial if addresses.atoms[n].kind in ("argument", "programs"))
        moving = [n for n in monomial if n not in fixed]
        if len(moving) == 1:
            groups.setdefault(fixed, {})[moving[0]] = factor
    yield from groups.values()


def _is_program(number: int, addresses: Addresses) -> bool:
    sources = addresses.atom_sources(number)
    return bool(sources) and all(source.kind == "pid" for source in sources)


def _programs(poly: Poly, addresses: Addresses) -> set[int]:
    return {number for monomial in poly for number in monomial if _is_program(number, addresses)}


def _interleaved(poly: Poly, reduced: int, shape: tuple[int, ...], addresses: Addresses) -> set[int]:
    """Program indices next to the reduced lane whose loop steps over the other programs' share."""
    lane = next(iter(addresses.atom("lane", reduced)))[0]
    for form in _forms(poly, addresses):
        tile = abs(form.get(lane, 0)) * shape[reduced]
        steps = [abs(f) for n, f in form.items() if addresses.atoms[n].kind == "trip"]
        if tile and any(step > tile for step in steps):
            return {n for n, f in form.items() if abs(f) == tile and _is_program(n, addresses)}
    return set()


def _by_mask(masks: list[Value], reduced: int, addresses: Addresses) -> set[int]:
    """Program indices that a mask compares together with the reduced lane: ``pid · BLOCK + lane < n``."""
    found: set[int] = set()
    lane = next(iter(addresses.atom("lane", reduced)))[0]
    for mask in masks:
        for value, dims, _ in parts(mask):
            made = value.definition
            if made is not None and made.name == "arith.cmpi":
                poly = addresses.of(made.operands[0], dims)
                if any(lane in monomial for monomial in poly):
                    found |= _programs(poly, addresses)
    return found


def _loads(value: Value, reduced: int) -> Iterator[tuple[Operation, int]]:
    """Loads that a summed value is made of, elementwise, and where each has the reduced dimension."""
    todo = [(value, reduced)]
    seen: set[Value] = set()
    while todo and len(seen) < 48:
        value, reduced = todo.pop()
        made = value.definition
        if value in seen:
            continue
        seen.add(value)
        if made is None:
            parent = value.block.parent
            if parent.name == "scf.for" and value.index > 0:
                todo += [(v, reduced) for v in parent.operands[value.index + 2 : value.index + 3]]
        elif made.name == "tt.load":
            yield made, reduced
        elif made.name == "scf.for":
            end = made.regions[0].blocks[0].terminator
            todo += [(v, reduced) for v in end.operands[value.index : value.index + 1]] if end else []
        elif made.name in ("tt.trans", "ttg.memdesc_trans"):
            order = [int(n) for n in re.findall(r"\d+", made.attributes.get("order", "").partition(":")[2])]
            if reduced < len(order):
                todo.append((made.operands[0], order[reduced]))
        elif made.name == "tt.expand_dims":
            new = made.integer("axis") or 0
            todo += [(made.operands[0], reduced - (reduced > new))] if reduced != new else []
        elif made.name == "ttg.memdesc_index":
            todo.append((made.operands[0], reduced))
        elif made.name == "ttg.local_alloc" and not made.operands:
            copies = (user for user in _users(value) if user.name == "ttg.async_copy_global_to_local")
            yield from ((copy, reduced) for copy in copies)
        elif made.name not in ("arith.constant", "tt.reduce", "tt.reshape", "tt.dot", "ttng.warp_group_dot"):
            todo += [(operand, reduced) for operand in made.operands]


def _users(value: Value) -> Iterator[Operation]:
    """Uses of an allocation and of its views."""
    for user in value.users:
        yield user
        if user.name.startswith("ttg.memdesc_"):
            for result in user.results:
                yield from result.users
