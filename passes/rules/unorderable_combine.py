"""Combine functions whose result depends on the order they are applied in (ORD-03)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from kcontract.ir.artifact import Artifact
from kcontract.ir.ttgir import Operation
from kcontract.model import Confidence, Finding, Level, Place, Settled
from kcontract.passes.analysis.combine import Judgement, Status, judge
from kcontract.passes.analysis.ranges import Ranges
from kcontract.passes.analysis.solver import SolverTime
from kcontract.passes.base import Facts, Rule


class UnorderableCombine(Rule):
    """Finds functions of `tl.reduce` and `tl.associative_scan` that are not associative, or not commutative.

    ## Contract

    A reduction's result does not depend on how the compiler splits it over registers, lanes and warps, beyond rounding
    (gate ORD-03). So its function is associative over the reals, and for `tl.reduce` commutative too: elements reach it
    in the order of the layout, not of the axis.

    ## Why it matters

    The compiler is free to choose the order, and another number of warps, another tile or another Triton version
    chooses another. Such a kernel passes its tests with one configuration and is wrong with the next.

    ## Fires on

    A violation for a function that three small numbers refute, in exact arithmetic: the finding carries the numbers
    and both results. A hazard where only the index of equal values depends on the order (`tie_break_left=False`). A
    note where the function is undecided, or only numbers that the reduced values cannot have refute it.

    ## Silent on

    Sums, products, maxima, minima and logic; tuples of them; argmax and argmin with a tie-break; Welford's update;
    linear recurrences; the online softmax; whatever else is proved over the reals.

    ## Limits

    Over the reals: NaN, overflow and rounding are other gates' affairs. Calls of functions other than exp and exp2 are
    undecided. Identities of rational functions are checked at 12 random points modulo a 61-bit prime. Functions that
    read values from outside their region are undecided.

    ## Source

    Level table: docs/levels.md. Associativity that `tl.associative_scan` and `tl.reduce` ask for: Triton's language
    reference. Identity testing: Schwartz, Journal of the ACM 27 (1980). Welford, Technometrics 4 (1962).
    """

    slug = "unorderable-combine"
    gate = "ORD-03"
    since = "0.1"

    def check(self, artifact: Artifact, facts: Facts) -> Iterator[Finding | Settled]:
        """Judge each combine function; settle the gate where all are proved."""
        if artifact.module is None:
            return
        operations = artifact.module.find("tt.reduce", "tt.scan")
        proofs = []
        for operation in operations:
            judgement = judge(operation, facts.get(SolverTime))
            if judgement.status is Status.REFUTED and not _possible(operation, judgement, facts.get(Ranges)):
                judgement = replace(
                    judgement, status=Status.UNDECIDED, how="refuted, but only by numbers it never gets"
                )
            if judgement.status is Status.PROVED:
                proofs.append(judgement.how)
            else:
                yield self._finding(operation, judgement)
        if len(proofs) == len(operations):
            reason = "; ".join(dict.fromkeys(proofs)) or "no reduction or scan"
            yield Settled(self.gate, "combine", "ttgir", reason, applicable=bool(operations))

    def _finding(self, operation: Operation, found: Judgement) -> Finding:
        kind = operation.name.removeprefix("tt.")
        if found.status is Status.UNDECIDED:
            level, message = Level.NOTE, f"function of a {kind} not proved to be associative: {found.how}"
        elif found.status is Status.TIES:
            level = Level.HAZARD
            message = f"index of equal values left to the order of a {kind}, wanted a tie-break"
        else:
            level, message = Level.VIOLATION, f"function of a {kind} is not {found.law}, wanted one that is"
        return Finding(
            self.slug,
            self.gate,
            level,
            message,
            Place(operation.location, "ttgir", operation.line),
            Confidence.INFERRED if found.status is Status.UNDECIDED else Confidence.PROVED,
            _arithmetic(found),
            {
                Status.TIES: "break ties by index (tie_break_left=True), or compare the index in the function",
                Status.REFUTED: "use a function whose grouping does not matter, or a loop that fixes the order",
            }.get(found.status, ""),
            "run it with 1, 2, 4 and 8 warps and compare" if level is not Level.VIOLATION else "",
            evidence={
                "law": found.law,
                "inputs": [[str(n) for n in item] for item in found.inputs],
                "results": [[str(n) for n in item] for item in found.results],
            }
            if found.inputs
            else {},
        )


def _possible(operation: Operation, found: Judgement, ranges: Ranges) -> bool:
    """Whether the numbers that refute are among those that the reduced values can have."""
    for item in found.inputs:
        for number, operand in zip(item, operation.operands, strict=False):
            if operand.type.element.startswith("i"):
                bounds = ranges.of(operand)
                if not bounds.low <= number <= bounds.high:
                    return False
    return True


def _arithmetic(found: Judgement) -> str:
    """The counterexample in one line: ``f(f(1, 2), 3) = 6 but f(1, f(2, 3)) = 2``."""
    if not found.inputs:
        return found.how
    names = [_show(item) for item in found.inputs]
    if found.law == "commutative":
        forms = [f"f({names[0]}, {names[1]})", f"f({names[1]}, {names[0]})"]
    else:
        forms = [f"f(f({names[0]}, {names[1]}), {names[2]})", f"f({names[0]}, f({names[1]}, {names[2]}))"]
    return f"{forms[0]} = {_show(found.results[0])} but {forms[1]} = {_show(found.results[1])}"


def _show(item: tuple[Fraction, ...]) -> str:
    return str(item[0]) if len(item) == 1 else f"({', '.join(map(str, item))})"
