"""Conditions under which an operation acts: its mask, the branches around it, the jumps that led to it.

Why: ``if program_id == 0`` around an atomic makes one writer of many. A condition comes with the lanes that its
dimensions are, since a mask is often made in fewer dimensions than the access it covers.

Loops are no conditions here: that a body runs at all says that its bounds allow a trip, which nothing asks yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kcontract.ir.ttgir import Operation, Value


class Condition(NamedTuple):
    """A boolean, the lanes its dimensions are, and whether it holds (None: not known)."""

    value: Value
    dims: tuple[int, ...]
    holds: bool | None


def conditions(operation: Operation, mask: Value | None) -> Iterator[Condition]:
    """Conditions that hold where the operation acts: its mask and the branches to it, ``and``s taken apart."""
    todo = [Condition(value, (), holds) for value, holds in _branches(operation)]
    if mask is not None:
        todo.append(Condition(mask, tuple(range(len(mask.type.shape))), True))
    for condition in todo:
        yield from parts(*condition)


def parts(value: Value, dims: tuple[int, ...] | None = None, holds: bool | None = True) -> Iterator[Condition]:
    """The comparisons a boolean is the conjunction of, with the lanes of each."""
    todo = [Condition(value, tuple(range(len(value.type.shape))) if dims is None else dims, holds)]
    while todo:
        value, dims, holds = todo.pop()
        made = value.definition
        if made is not None and made.name == "arith.andi" and holds:
            todo += [Condition(operand, dims, True) for operand in made.operands]
        elif made is not None and made.name in ("tt.broadcast", "tt.splat", "ttg.convert_layout"):
            todo.append(Condition(made.operands[0], dims if made.operands[0].type.shape else (), holds))
        elif made is not None and made.name == "tt.expand_dims":
            new = made.integer("axis") or 0
            todo.append(Condition(made.operands[0], dims[:new] + dims[new + 1 :], holds))
        elif made is None or made.name != "arith.constant":
            yield Condition(value, dims, holds)


def _branches(operation: Operation) -> Iterator[tuple[Value, bool | None]]:
    """Conditions of the branches that lead to an operation, and which way they went (None: one of several ways)."""
    inner = operation
    for outer in operation.ancestors():
        if outer.name == "scf.if":
            yield outer.operands[0], inner.block.region is outer.regions[0]
        elif outer.name == "tt.func":
            yield from _jumps(inner)
            name = outer.string("sym_name")
            calls = [call for call in operation.module.find("tt.call") if call.string("callee") == name]
            for call in calls:
                yield from ((value, holds if len(calls) == 1 else None) for value, holds in _branches(call))
        inner = outer


def _jumps(operation: Operation) -> Iterator[tuple[Value, bool | None]]:
    block = operation.block
    blocks = block.region.blocks
    while block is not blocks[0]:
        ways = [
            (branch, number)
            for branch, successors in operation.module.successors.items()
            for number, successor in enumerate(successors)
            if successor.block is block
        ]
        if len(ways) != 1:
            for other in blocks:
                if other.terminator is not None and other.terminator.name == "cf.cond_br":
                    yield other.terminator.operands[0], None
            return
        branch, number = ways[0]
        if branch.name == "cf.cond_br":
            yield branch.operands[0], number == 0
        block = branch.block
