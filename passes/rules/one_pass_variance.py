"""Variances computed as a difference of two large numbers (ORD-01)."""

from __future__ import annotations

from collections.abc import Iterator

from kcontract.ir.artifact import Artifact
from kcontract.ir.ttgir import Operation, Value
from kcontract.model import Confidence, Finding, Level, Related, Settled
from kcontract.passes.analysis.origin import CONVERSIONS, SHAPES, behind, place, summand
from kcontract.passes.analysis.sums import UNIT_ROUNDOFF
from kcontract.passes.base import Facts, Rule

_LOOKED_THROUGH = SHAPES | CONVERSIONS


class OnePassVariance(Rule):
    """Finds variances computed as the mean of squares minus the square of the mean.

    ## Contract

    A reduction stays within the error bound derived from its inputs and length (gate ORD-01).

    ## Why it matters

    Both terms carry a rounding error of up to n·u·E[x²], and the difference keeps it while the terms cancel. Where the
    mean is large against the spread, the result has no correct digit and can be negative: its square root is NaN. In
    float32 a mean of 256 with a spread of 0.01 is enough; inputs of mean zero never show it.

    ## Fires on

    A subtraction of the square of a sum's multiple from a multiple of a sum of squares of the same values, through
    `tl.sum` and loop-carried sums. It is a hazard.

    ## Silent on

    The mean of (x − mean)², Welford's update, and differences of sums of different values.

    ## Limits

    Sums that another kernel has stored are not seen, nor sums kept in float64 apart: those are silent.

    ## Source

    Chan, Golub, LeVeque, The American Statistician 37 (1983), section 2. Reported case:
    NVIDIA/trt-samples-for-hackathon-cn issue 88 (layer norm of 10240 values at 256, variance −0.0039).
    """

    slug = "one-pass-variance"
    gate = "ORD-01"
    since = "0.1"

    def check(self, artifact: Artifact, facts: Facts) -> Iterator[Finding | Settled]:
        """Look at each subtraction; settle the obligation where none cancels sums of squares."""
        if artifact.module is None:
            return
        clean = True
        for operation in artifact.module.find("arith.subf"):
            element = operation.results[0].type.element
            found = _sums(operation) if element != "f64" else None
            if found is None:
                continue
            clean = False
            roundoff = UNIT_ROUNDOFF.get(element, 2.0**-24)
            yield Finding(
                self.slug,
                self.gate,
                Level.HAZARD,
                "variance computed as mean of squares minus squared mean, wanted the mean of squared differences",
                place(operation),
                Confidence.READ,
                f"its error is up to n·{roundoff:.3g}·E[x²], which exceeds the variance where the mean is large",
                "subtract the mean first and sum the squares of the differences, or use Welford's update",
                "run it on a constant of 256 with one element at 255",
                related=(Related("the sum of squares", place(found)),),
                evidence={"unit_roundoff": roundoff},
            )
        if clean:
            yield Settled(self.gate, "variance", "ttgir", "no difference of sums of squares")


def _sums(operation: Operation) -> Operation | None:
    """The squares that are summed, where a subtraction takes a squared sum of the same values away."""
    squares, mean = summand(operation.operands[0]), _squared(operation.operands[1])
    product = behind(squares, _LOOKED_THROUGH).definition if squares is not None else None
    if mean is None or product is None or product.name != "arith.mulf":
        return None
    left, right = (_bare(factor) for factor in product.operands)
    total = summand(mean)
    return product if total is not None and left is right and _bare(total) is left else None


def _squared(value: Value) -> Value | None:
    """The sum whose square a value is a multiple of."""
    made = behind(value, _LOOKED_THROUGH).definition
    if made is None or made.name not in ("arith.mulf", "arith.divf"):
        return None
    sums = [summand(factor) for factor in made.operands]
    first, second = sums
    if made.name == "arith.mulf" and first is not None and second is not None and _bare(first) is _bare(second):
        return made.operands[0]
    inner = made.operands[:1] if made.name == "arith.divf" else made.operands
    return next((found for factor in inner if (found := _squared(factor)) is not None), None)


def _bare(value: Value) -> Value:
    """A value without its shape, conversions, and the mask that sets padding to zero."""
    for _ in range(8):
        value = behind(value, _LOOKED_THROUGH)
        made = value.definition
        if made is None or made.name != "arith.select":
            break
        value = made.operands[1]
    return value
