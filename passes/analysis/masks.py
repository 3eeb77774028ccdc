"""How many lanes of a reduction hold a real term, where a mask or a selection fills the others with a constant.

Why: ``tl.sum(tl.load(x + i, mask=i < n, other=0.0))`` over a block of 1024 has n terms, not 1024, and n is often known
only at launch. ``tl.sum(tl.where(i == k, x, 0.0))`` has one. What counts as a term decides a finding's level.

Understood are comparisons of a lane index with a value that is the same for all lanes (``<``, ``==``); a mask of any
other form leaves the number of terms between 0 and the block's size. Loads without ``other`` count as masked too.
"""

from __future__ import annotations

from kcontract.ir.ttgir import Value
from kcontract.passes.analysis.ranges import Ranges
from kcontract.passes.analysis.sums import Terms

_SAME = frozenset("tt.splat tt.broadcast tt.expand_dims tt.reshape tt.trans ttg.convert_layout tt.unsplat".split())
_MOST = 64


def kept_terms(value: Value, axis: int, count: int, ranges: Ranges) -> Terms:
    """Terms of a sum of ``value`` over ``axis`` with ``count`` lanes."""
    terms = Terms(count, count)
    for mask in _masks(value):
        found = _kept(mask, axis, count, ranges)
        high = min(terms.high or count, found.high or count)
        trust = found.trust if found.low < terms.low else terms.trust
        terms = Terms(min(terms.low, found.low), high, trust)
    return terms


def _masks(value: Value) -> list[Value]:
    """Conditions that decide which lanes of a value hold a real term, through elementwise operations."""
    found: list[Value] = []
    todo, seen = [value], set[Value]()
    while todo and len(seen) < _MOST:
        value = todo.pop()
        made = value.definition
        if value in seen or made is None:
            continue
        seen.add(value)
        if made.name == "tt.load":
            found += [operand for operand in made.operands[1:2] if operand.type.element == "i1"]
        elif made.name == "arith.select":
            arms = made.operands[1:3]
            constant = [arm.definition is not None and arm.definition.name == "arith.constant" for arm in arms]
            found += made.operands[:1] if any(constant) else []
            todo += arms
        elif made.name.startswith(("arith.", "math.")) or made.name in _SAME:
            todo += made.operands
    return found


def _kept(mask: Value, axis: int, count: int, ranges: Ranges) -> Terms:
    """Lanes along the axis that one mask keeps."""
    made = mask.definition
    while made is not None and made.name in _SAME:
        mask = made.operands[0]
        made = mask.definition
    if made is None:
        return Terms(0, count)
    if made.name == "arith.constant":
        text = made.attributes.get("value", "")
        return Terms(count, count) if "true" in text else Terms(0, count)
    if made.name == "arith.andi":
        parts = [_kept(operand, axis, count, ranges) for operand in made.operands]
        return Terms(max(0, sum(part.low for part in parts) - count), min(part.high or count for part in parts))
    if made.name != "arith.cmpi" or not _is_lane_index(made.operands[0]) or not _is_uniform(made.operands[1]):
        return Terms(0, count)
    shape = made.operands[0].type.shape
    along = shape[0] if len(shape) == 1 else shape[axis] if axis < len(shape) else 0
    if along != count or made.operands[0].type.numel != count:  # it masks another axis, or a part of a flattened one
        return Terms(0, count)
    bound = ranges.of(made.operands[1])
    predicate = made.string("predicate")
    if predicate == "eq":
        return Terms(0, 1)
    if predicate in ("slt", "ult", "sle", "ule"):
        more = predicate in ("sle", "ule")
        low, high = (max(0, min(count, edge + more)) for edge in (bound.low, bound.high))
        return Terms(low, high, bound.trust)
    return Terms(0, count)


def _is_lane_index(value: Value) -> bool:
    """A range that starts at 0, in some shape: no two lanes of the axis hold the same number."""
    made = value.definition
    while made is not None and (made.name in _SAME or made.name.startswith("arith.ext")):
        made = made.operands[0].definition
    return made is not None and made.name == "tt.make_range" and made.integer("start") == 0


def _is_uniform(value: Value) -> bool:
    """The same for all lanes."""
    made = value.definition
    while made is not None and made.name in _SAME - {"tt.splat"}:
        made = made.operands[0].definition
    return made is not None and (made.name == "tt.splat" or (made.name == "arith.constant"))
