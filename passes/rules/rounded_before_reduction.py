"""Values rounded to 16 bits on their way into a 32-bit sum (ORD-01)."""

from __future__ import annotations

from collections.abc import Iterator

from kcontract.ir.artifact import Artifact
from kcontract.ir.ttgir import Operation, Value
from kcontract.model import Confidence, Finding, Level, Related, Settled
from kcontract.passes.analysis.flow import is_narrow
from kcontract.passes.analysis.origin import SHAPES, behind, is_product, is_sum, place
from kcontract.passes.base import Facts, Rule

_ELEMENTWISE = SHAPES | frozenset(
    "arith.mulf arith.addf arith.subf arith.divf arith.negf arith.select math.exp math.exp2 math.log math.fma".split()
)
_MOST = 64


class RoundedBeforeReduction(Rule):
    """Finds float32 results that are rounded to 16 bits and extended again before they are summed.

    ## Contract

    A reduction stays within the error bound derived from its inputs and length (gate ORD-01); the bound counts one
    rounding of the result to its type, not one of each term.

    ## Why it matters

    The sum looks like float32 in the source and in a profiler, yet each term has lost 13 to 16 bits. In a cross
    entropy the loss moves by a few hundredths of a per cent and its gradient by several per cent.

    ## Fires on

    A matrix product that is converted to float16 or bfloat16, back to float32, and then reaches a `tl.sum` through
    elementwise arithmetic: a hazard. Other float32 results on such a way are a note, since an element type that
    rounds to the type of the tensors around it is often meant.

    ## Silent on

    16-bit inputs that are loaded and extended; results rounded after their sum is complete; operands of `tl.dot`.

    ## Limits

    Logits that one kernel stores in 16 bits and another sums are not seen: the second kernel has 16-bit inputs.

    ## Source

    Reported case: linkedin/Liger-Kernel issue 1432.
    """

    slug = "rounded-before-reduction"
    gate = "ORD-01"
    since = "0.1"

    def check(self, artifact: Artifact, facts: Facts) -> Iterator[Finding | Settled]:
        """Follow each sum's terms back; settle the obligation where none was rounded on the way."""
        if artifact.module is None:
            return
        clean = True
        said = set()
        narrowing = [o for o in artifact.module.find("arith.truncf") if is_narrow(o.results[0])]
        for operation in artifact.module.find("tt.reduce") if narrowing else ():
            rounding = _rounding(operation) if is_sum(operation) else None
            if rounding is None or (rounding.location or rounding) in said:
                continue
            said.add(rounding.location or rounding)
            product = is_product(rounding.operands[0])
            clean = clean and not product
            element = rounding.results[0].type.element
            yield Finding(
                self.slug,
                self.gate,
                Level.HAZARD if product else Level.NOTE,
                f"terms of a float32 sum rounded to {element} first, wanted float32 up to the sum",
                place(rounding),
                Confidence.READ,
                "each term carries a rounding of its own, which no error bound of the sum covers",
                "keep the float32 value for the sum and round what is stored",
                "compare gradients, not only the loss, with a float64 reference" if product else "",
                related=(Related("the sum", place(operation)),),
                evidence={"element": element, "product": product},
            )
        if clean:
            yield Settled(self.gate, "roundings", "ttgir", "no matrix product rounded before a sum")


def _rounding(operation: Operation) -> Operation | None:
    """The truncation that some term of a 32-bit sum went through."""
    todo = [value for value in operation.operands if value.type.element == "f32"]
    seen: set[Value] = set()
    while todo and len(seen) < _MOST:
        value = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        made = value.definition
        if made is None:
            continue
        if made.name == "arith.extf":
            inner = behind(made.operands[0]).definition
            if inner is not None and inner.name == "arith.truncf" and _computed(inner.operands[0]):
                return inner
        elif made.name in _ELEMENTWISE:
            todo += made.operands
    return None


def _computed(value: Value) -> bool:
    """Whether a float32 value is more than an extended 16-bit one."""
    made = behind(value).definition
    return made is not None and made.name not in ("arith.extf", "arith.constant", "tt.load")
