"""Where a float value comes from: the sum behind a mean, the value behind its shape and type.

Why: the same quantity is a tensor, a row of it, its broadcast, its conversion. Rules about what is summed look through
all of these. Example: in ``tl.sum(x * x, 0) / n`` the summand of the quotient is ``x * x``.

One chain of definitions is followed, through loops only where a loop adds to what it carries. Values that go through
memory are not followed.
"""

from __future__ import annotations

from kcontract.ir.ttgir import Operation, Value
from kcontract.model import Place
from kcontract.passes.analysis.address import Addresses

SHAPES = frozenset(
    "ttg.convert_layout tt.broadcast tt.expand_dims tt.splat tt.unsplat tt.reshape tt.trans ttg.local_alloc "
    "ttg.local_load ttg.memdesc_trans".split()
)
CONVERSIONS = frozenset("arith.extf arith.truncf tt.fp_to_fp".split())
_DEEPEST = 40


def place(operation: Operation) -> Place:
    """Where an operation stands."""
    return Place(operation.location, "ttgir", operation.line)


def behind(value: Value, names: frozenset[str] = SHAPES) -> Value:
    """The value behind operations that only pass on their first operand."""
    for _ in range(_DEEPEST):
        made = value.definition
        if made is None or made.name not in names or not made.operands:
            break
        value = made.operands[0]
    return value


def is_sum(operation: Operation) -> bool:
    """Whether it is a reduction that only adds."""
    if operation.name != "tt.reduce":
        return False
    body = operation.regions[0].blocks[0].operations[:-1]
    return bool(body) and all(inner.name in ("arith.addf", "arith.addi") for inner in body)


def summand(value: Value, summed: bool = False, depth: int = 0) -> Value | None:
    """What is added up in a sum or a multiple of one (a mean); None where the value is neither."""
    made = value.definition
    found = value if summed else None
    if made is None or depth > _DEEPEST:
        return found
    if is_sum(made):
        return summand(made.operands[min(value.index, len(made.operands) - 1)], True, depth + 1)
    if made.name == "scf.for":
        term = _added(made, value.index)
        return found if term is None else summand(term, True, depth + 1)
    if made.operands and (made.name in SHAPES or made.name in CONVERSIONS):  # an allocation may have none
        return summand(made.operands[0], summed, depth + 1)
    if made.name in ("arith.mulf", "arith.divf"):
        for factor in made.operands[: 2 if made.name == "arith.mulf" else 1]:
            inner = summand(factor, False, depth + 1)
            if inner is not None:
                return inner
    return found


def _added(loop: Operation, position: int) -> Value | None:
    """What a ``scf.for`` adds to one of its carried values on each trip."""
    block = loop.regions[0].blocks[0]
    end = block.terminator
    if end is None or position >= len(end.operands) or position + 1 >= len(block.arguments):
        return None
    made = end.operands[position].definition
    if made is None or made.name != "arith.addf":
        return None
    carried = block.arguments[position + 1]
    return next((term for term in made.operands if term is not carried), None) if carried in made.operands else None


def is_product(value: Value) -> bool:
    """Whether a value is made by a product of matrices."""
    made = behind(value, SHAPES | CONVERSIONS).definition
    return made is not None and made.name in (
        "tt.dot",
        "ttng.warp_group_dot",
        "ttng.warp_group_dot_wait",
        "ttng.tmem_load",
    )


def adds_to_itself(pointer: Value, value: Value, addresses: Addresses) -> bool:
    """Whether a stored value is a sum with what was loaded from the same address."""
    made = value.definition
    while made is not None and made.name in ("arith.truncf", "ttg.convert_layout"):
        made = made.operands[0].definition
    if made is None or made.name not in ("arith.addf", "math.fma"):
        return False
    terms = made.operands if made.name == "arith.addf" else made.operands[2:]
    for term in terms:
        source = term.definition
        while source is not None and source.name in ("arith.extf", "ttg.convert_layout"):
            source = source.operands[0].definition
        if source is not None and source.name == "tt.load":
            other = source.operands[0]
            if other is pointer or (
                other.type.shape == pointer.type.shape and addresses.of(other) == addresses.of(pointer)
            ):
                return True
    return False
