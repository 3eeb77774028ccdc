"""Places that add to global memory: float atomics, and reductions through a descriptor.

Why: two rules ask about them, and the two forms give their address in two ways: a tensor of pointers, or the first
coordinates of a box. Adds in inline assembly are not read here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kcontract.ir.ttgir import Module, Operation, Value
from kcontract.passes.analysis.flow import is_float

_REDUCE = ("tt.descriptor_reduce", "ttng.async_tma_reduce")


class Sum(NamedTuple):
    """One place that adds to memory which others may add to. ``pointer``: coordinates; ``box``: of a descriptor."""

    operation: Operation
    coordinates: tuple[Value, ...]
    box: tuple[int, ...]
    value: Value
    mask: Value | None
    what: str


def atomics(module: Module) -> Iterator[Sum]:
    """Each float atomic add and descriptor reduction."""
    for operation in module.find("tt.atomic_rmw", *_REDUCE):
        kind = (operation.string("atomic_rmw_op") or operation.string("kind") or "").lower()
        if operation.name == "tt.atomic_rmw":
            pointer, value, *rest = operation.operands
            if kind == "fadd":
                mask = rest[0] if rest else None
                yield Sum(operation, (pointer,), (), value, mask, "atomic")
            continue
        descriptor = operation.operands[0]
        value = next((v for v in operation.operands[1:] if v.type.kind in ("tensor", "memdesc")), descriptor)
        indices = tuple(v for v in operation.operands[1:] if v is not value)
        if kind in ("add", "fadd") and is_float(value):
            box = descriptor.type.shape or value.type.shape
            yield Sum(operation, indices, box[-len(indices) :] if indices else box, value, None, "descriptor reduction")
