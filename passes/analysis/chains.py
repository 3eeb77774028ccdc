"""Sums written out as one expression, or unrolled: how many terms, and whether they are rounded on the way.

Why: ``for k in tl.static_range(256): acc = (acc.to(tl.float32) + x_k).to(tl.bfloat16)`` leaves no loop in TTGIR, only
256 adds with a rounding between each two. One walk over the module, in order, counts the terms behind every value.

A term is what no add of the chain made. Conversions, multiples by a constant, numerators, selections and changes of
shape are seen through; products of two values, loads, loops and reductions start a new chain.
"""

from __future__ import annotations

from kcontract.ir.ttgir import Value
from kcontract.passes.analysis.flow import ADDS, is_narrow
from kcontract.passes.base import Facts

_THROUGH = frozenset(
    "arith.extf arith.truncf arith.negf arith.mulf arith.divf arith.select math.absf tt.splat "
    "tt.broadcast tt.expand_dims tt.reshape tt.trans tt.split tt.join tt.gather ttg.convert_layout "
    "tt.unsplat".split()
)
_MOST = 2**30


def _is_constant(value: Value) -> bool:
    made = value.definition
    while made is not None and made.name in ("tt.splat", "arith.extf", "arith.truncf", "ttg.convert_layout"):
        made = made.operands[0].definition
    return made is not None and made.name == "arith.constant"


class Chains:
    """Terms behind each value of one module. ``facts.get(Chains)`` shares it among rules."""

    def __init__(self, facts: Facts) -> None:
        self._known: dict[Value, tuple[int, str | None]] = {}
        module = facts.artifact.module
        for operation in module.walk() if module else ():
            name = operation.name
            if name not in ADDS and name not in _THROUGH:
                continue
            operands = operation.operands[:1] if name == "arith.divf" else operation.operands
            if name == "arith.mulf" and not any(_is_constant(operand) for operand in operands):
                continue  # each factor is data, not a running value
            parts = [self.of(operand) for operand in operands]
            rounded = next((narrow for _, narrow in parts if narrow), None)
            if name in ADDS:
                count = min(sum(terms for terms, _ in parts), _MOST)
            else:
                count = max((terms for terms, _ in parts), default=1)
            if count == 1 and rounded is None:
                continue
            for result in operation.results:
                narrow = result.type.element if count > 1 and is_narrow(result) else rounded
                self._known[result] = (count, narrow)

    def of(self, value: Value) -> tuple[int, str | None]:
        """(terms, the 16-bit type that part of the sum was rounded to, or None)."""
        return self._known.get(value, (1, None))
