"""Sums kept in 16 bits or fewer (PRC-02)."""

from __future__ import annotations

from collections.abc import Iterator

from kcontract.ir.artifact import Artifact
from kcontract.ir.launch import Trust
from kcontract.model import Accumulator, Confidence, Finding, Level, Settled
from kcontract.passes.analysis.accumulations import Ledger, imprecise_terms
from kcontract.passes.analysis.hidden import hidden_sums
from kcontract.passes.analysis.sums import UNIT_ROUNDOFF, Row
from kcontract.passes.base import Facts, Rule

NAMES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "tf32": "tf32"}
_REMEDIES = {
    "reduce": "convert before reducing: tl.sum(x.to(tl.float32))",
    "product": "convert before multiplying: x.to(tl.float32)",
    "scan": "convert before scanning: tl.cumsum(x.to(tl.float32))",
    "dot": "let tl.dot accumulate in float32 (out_dtype=tl.float32) and round once at the end",
    "mma": "let tl.dot accumulate in float32 (out_dtype=tl.float32) and round once at the end",
    "atomic": "add into a float32 buffer and round once at the end",
    "partial": "convert each term to float32 before the first add",
}
_SUM = "keep the running value in float32 and round once at the end"


class HalfPrecisionAccumulator(Rule):
    """Finds sums that are kept in 16 bits or fewer.

    ## Contract

    A sum of 16-bit inputs is kept in at least 32 bits until it is complete (gate PRC-02). A contract that declares
    `accumulator: input` allows the input's type instead.

    ## Why it matters

    A running sum in bfloat16 stops growing once it is 256 times its terms; in float16 it overflows past 65504 and
    stops at 2048 times its terms. Neither raises an error, and random inputs of small size hide both. Triton keeps
    16-bit sums where the program asks for them: `tl.sum` of a float16 tensor adds in float16.

    ## Fires on

    Accumulators of `tl.dot` (also as `warp_group_dot` and `tc_gen5_mma`, where the type stands in Tensor Memory),
    `tl.sum`, `tl.cumsum` and other reductions, loop-carried sums and recurrences, sums that are float32 in name but
    rounded to 16 bits on every trip, 16-bit adds made only to enter a wider sum, packed adds in inline assembly,
    and float atomics.

    Lanes that a mask or `tl.where` may set to a constant count only where the bound is known (constant, contract,
    launch). With N terms and unit roundoff u of the accumulator, it is a violation where N·u >= 1/2 is proved (float16:
    N >= 1024, bfloat16: N >= 128), a hazard where N is unknown, and a note where N·u < 1/2. A sum with a note is short,
    yet not kept in 32 bits: the gate is left undecided.

    ## Silent on

    Sums kept in float32 or wider, whatever the inputs; comparisons (`tl.max`); single adds; a value that is rounded
    to 16 bits only after its sum is complete; sums of integers too small to be rounded (counting a mask);
    a sum with one term that is not zero (picking an element by index).

    ## Limits

    A running value that is kept as bits, through memory, or behind a function that is not seen into escapes this
    rule: where one may, the gate is left undecided. Of inline assembly only instructions that add are read, not their
    order. Where there is PTX alone (native CUDA) the number of terms is not known, so nothing is a violation. N counts
    the terms of one accumulator; several that are added to each other later are judged one by one, and leave the gate
    undecided. An in-place rotation of values between lanes counts as a sum.

    ## Source

    Level table: docs/levels.md. First-order bound N·u·Σ|x| of recursive summation: Higham, Accuracy and Stability of
    Numerical Algorithms, 2nd ed., section 4.2. Triton's types: triton-lang/triton issues 6974, 6961.
    """

    slug = "half-precision-accumulator"
    gate = "PRC-02"
    since = "0.1"

    def check(self, artifact: Artifact, facts: Facts) -> Iterator[Finding | Settled]:
        """Judge each accumulator of the ledger; settle the gate where none is narrow."""
        if artifact.module is None and artifact.program is None:
            return
        read = "ptx" if artifact.module is None else "ttgir"
        sums = list(facts.get(Ledger).sums())
        narrow = [row for row in sums if row.narrow]
        if facts.contract.accumulator is Accumulator.INPUT:
            narrow = [row for row in narrow if row.element != row.inputs]
        for row in narrow:
            yield self._finding(row)
        if any(imprecise_terms(row, artifact.target) for row in sums) or hidden_sums(facts):
            return  # what may be overlooked is not proved: see imprecise-fp8-accumulator, and analysis/hidden.py
        if not sums:
            yield Settled(self.gate, "accumulators", read, "no floating-point sum", applicable=False)
        elif not narrow:
            yield Settled(self.gate, "accumulators", read, f"{len(sums)} of {len(sums)} sums kept in 32 bits or more")

    def _finding(self, row: Row) -> Finding:
        element = row.element
        name = NAMES.get(element, element)
        found = f"float32 in name only, rounded to {name} on every trip" if row.narrowed else name
        roundoff = UNIT_ROUNDOFF.get(element, 2.0**-8)
        exponent = {2.0**-11: -11, 2.0**-8: -8}.get(roundoff)
        product = row.terms.low * roundoff
        severity = level(row)
        if severity is Level.VIOLATION:
            why = f"{row.terms.low} terms times a unit roundoff of 2^{exponent} is {product:g}"
            why += ": from 1/2 on, the error bound is as large as the sum itself"
        elif severity is Level.HAZARD:
            limit = int(0.5 / roundoff)
            why = f"the number of terms is not known; from {limit} on the error bound is as large as the sum itself"
        else:
            why = f"{row.terms.high} terms times a unit roundoff of 2^{exponent} stays below 1/2"
        return Finding(
            self.slug,
            self.gate,
            severity,
            f"{_subject(row)} of {row.terms} terms kept in {found}, wanted float32",
            row.place,
            Confidence.READ if row.terms.trust is Trust.OBSERVED else Confidence.PROVED,
            why,
            _REMEDIES.get(row.kind, _SUM) if row.operation else _SUM,
            "run it with a long axis and inputs that separate 16- from 32-bit sums" if severity is Level.HAZARD else "",
            evidence={
                "kind": row.kind,
                "element": row.element,
                "inputs": row.inputs,
                "terms": [row.terms.low, row.terms.high],
                "trust": row.terms.trust.value,
            },
        )


def level(row: Row) -> Level:
    """The level of a narrow sum by the table in docs/levels.md."""
    roundoff = UNIT_ROUNDOFF.get(row.element, 2.0**-8)
    if row.terms.low * roundoff >= 0.5:
        return Level.VIOLATION
    if row.kind == "partial" or row.terms.high is None or row.terms.high * roundoff >= 0.5:
        return Level.HAZARD
    return Level.NOTE


def _subject(row: Row) -> str:
    return {
        "dot": "dot product",
        "mma": "dot product",
        "recurrence": "recurrence",
        "scan": "scan",
        "product": "product",
        "atomic": "atomic sum",
        "partial": "part of a longer sum",
    }.get(row.kind, "sum")
