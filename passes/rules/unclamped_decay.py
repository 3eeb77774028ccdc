"""Exponentials of differences of a prefix sum that nothing keeps below zero (ORD-03)."""

from __future__ import annotations

from collections.abc import Iterator

from kcontract.ir.artifact import Artifact
from kcontract.ir.ttgir import Operation, Value
from kcontract.model import Confidence, Finding, Level, Related, Settled
from kcontract.passes.analysis.origin import CONVERSIONS, SHAPES, behind, is_sum, place
from kcontract.passes.base import Facts, Rule

_THROUGH = SHAPES | CONVERSIONS


class UnclampedDecay(Rule):
    """Finds exp(c_i − c_j) of one prefix sum c without a clamp at zero.

    ## Contract

    A decay factor stays in (0, 1] for every order in which its prefix sum was added (gate ORD-03).

    ## Why it matters

    A parallel prefix sum is not monotone in floating point: each element is added up by a tree of its own. Where the
    terms are large (a decay of −1e6 a step), the difference of two elements that should be at most zero comes out
    positive by more than 88, and its exponential is infinite. The sequential reference never shows it.

    ## Fires on

    `tl.exp` and `tl.exp2` of a difference of two values that both come from one `tl.cumsum` or scan that adds, or from
    a scan and the sum of the same terms, also scaled by a constant. It is a hazard.

    ## Silent on

    Differences clamped by `tl.minimum(…, 0)` before the exponential, also as `tl.where(d < 0, d, 0)`; single elements
    of a prefix sum; differences of other values.

    ## Limits

    Prefix sums that another kernel stored and this one loads are not seen. A mask that selects the valid half of the
    result is no clamp: it hides the overflow of one half and not of the other. That the terms cannot be large is the
    caller's knowledge: waive it with that reason.

    ## Source

    Reported cases: vllm-project/vllm PR 37501, sgl-project/sglang PR 23128, state-spaces/mamba PR 713.
    """

    slug = "unclamped-decay"
    gate = "ORD-03"
    since = "0.1"

    def check(self, artifact: Artifact, facts: Facts) -> Iterator[Finding | Settled]:
        """Look at each exponential where the module has a scan."""
        if artifact.module is None:
            return
        clean = True
        scans = artifact.module.find("tt.scan")
        said = set()
        for operation in artifact.module.find("math.exp", "math.exp2") if scans else ():
            scan = _decay(operation)
            if scan is None or (operation.location, scan) in said:
                continue
            clean = False
            said.add((operation.location, scan))
            yield Finding(
                self.slug,
                self.gate,
                Level.HAZARD,
                "exponential of a difference of two elements of one prefix sum, wanted it clamped at zero",
                place(operation),
                Confidence.READ,
                "rounding of a parallel prefix sum can make the difference positive by any amount",
                "clamp it: tl.exp(tl.minimum(difference, 0.0))",
                "run it with a constant decay of -1e6 a step over a full chunk",
                related=(Related("the prefix sum", place(scan)),),
            )
        if clean:
            yield Settled(self.gate, "decays", "ttgir", "no bare difference of a prefix sum in an exponential")


def _decay(operation: Operation) -> Operation | None:
    """The scan whose elements an exponential subtracts from each other."""
    made = behind(operation.operands[0], _THROUGH).definition
    for _ in range(8):
        if made is None or made.name not in ("arith.mulf", "arith.select"):
            break
        if made.name == "arith.select":
            condition = made.operands[0].definition
            if condition is not None and condition.name == "arith.cmpf":
                return None  # the value itself decides: a clamp
            made = behind(made.operands[1], _THROUGH).definition
            continue
        factors = [behind(factor, _THROUGH).definition for factor in made.operands]  # log2(e), or a scale
        made = next((f for f in factors if f is not None and f.name != "arith.constant"), None)
    if made is None or made.name != "arith.subf":
        return None
    first, second = (_scan(value) for value in made.operands)
    if first is None or second is None or behind(first.operands[0]) is not behind(second.operands[0]):
        return None
    return next((found for found in (first, second) if found.name == "tt.scan"), None)


def _scan(value: Value) -> Operation | None:
    """The scan (or sum) that a value is an element of, scaled by what it may be, or picked by a masked sum."""
    for _ in range(16):
        value = behind(value, _THROUGH)
        made = value.definition
        if made is None:
            return None
        if made.name == "tt.scan":
            body = made.regions[0].blocks[0].operations[:-1]
            return made if [inner.name for inner in body] == ["arith.addf"] else None
        if made.name == "arith.select":
            value = made.operands[1]
        elif made.name in ("arith.mulf", "tt.gather"):
            constant = made.operands[0].definition
            value = made.operands[1 if constant is not None and constant.name == "arith.constant" else 0]
        elif is_sum(made):
            inner = _scan(made.operands[0])
            return inner or made
        else:
            return None
    return None
