"""Waiting for one's turn: spin loops on an atomic flag, and what they order.

Why: a float atomic behind ``while atomic_cas(flag, turn, turn) != turn`` adds in a fixed order although two programs
meet at its address, and a plain load, add and store behind ``while atomic_cas(lock, 0, 1) != 0`` adds in any order
although no atomic float add is there. A program waits for its turn where the awaited value depends on its id.

Nothing proves that the flag is raised after the add, nor that all programs wait on one flag.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

from kcontract.ir.ttgir import Operation, Value
from kcontract.passes.analysis.address import Addresses

_FLAGS = ("tt.atomic_cas", "tt.atomic_rmw")


class Wait(str, enum.Enum):
    """``turn``: the awaited value is this program's own; ``lock``: any program may be next."""

    TURN = "turn"
    LOCK = "lock"


def wait_before(operation: Operation, addresses: Addresses) -> Wait | None:
    """The wait that every path to an operation passes, the strongest where there are several."""
    found = {_kind(loop, addresses) for loop in _loops_before(operation)}
    return Wait.TURN if Wait.TURN in found else Wait.LOCK if Wait.LOCK in found else None


def _loops_before(operation: Operation) -> Iterator[Operation]:
    inner = operation
    for outer in operation.ancestors():
        for earlier in inner.block.operations:
            if earlier is inner:
                break
            if earlier.name == "scf.while":
                yield earlier
        inner = outer


def _kind(loop: Operation, addresses: Addresses) -> Wait | None:
    """How a loop that asks a flag again and again waits; None for any other loop."""
    condition = loop.regions[0].blocks[0].terminator
    if condition is None or not condition.operands:
        return None
    comparison = condition.operands[0].definition
    if comparison is None or comparison.name != "arith.cmpi":
        return None
    for value, awaited in (comparison.operands, reversed(comparison.operands)):
        flag = _flag(value, loop)
        if flag is not None:
            wanted = [awaited, *(flag.operands[1:2] if flag.name == "tt.atomic_cas" else ())]
            return Wait.TURN if any(s.kind == "pid" for s in addresses.sources(*wanted)) else Wait.LOCK
    return None


def _flag(value: Value, loop: Operation) -> Operation | None:
    """The atomic on a flag that a loop's condition reads, asked for in either half of the loop."""
    seen = {value}
    todo = [value]
    while todo:
        value = todo.pop()
        made = value.definition
        asks = made is not None and (
            made.name in _FLAGS or (made.name == "tt.load" and made.integer("isVolatile") == 1)
        )
        if made is not None and asks and loop in made.ancestors():
            return made
        feeders: list[Value] = []
        if made is None and value.block.parent is loop:
            end = loop.regions[1].blocks[0].terminator
            feeders = [value for value in (end.operands if end else ()) if value.type.element == "i32"]
        for feeder in feeders:
            if feeder not in seen:
                seen.add(feeder)
                todo.append(feeder)
    return None
