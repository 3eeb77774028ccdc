"""EXC-02: subnormal inputs and results are treated as the reference treats them, or are flushed as is allowed.

Flushing is what fast instructions do: without a word in the contract it is a note, not a failure. With ``subnormals =
preserve`` it fails. An input read as zero that turns a finite result into Inf or NaN (1/sqrt of 1e-40) is no flushed
value any more: it fails unless the contract says ``flush``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from kcontract.dynamic.gates.answers import sentence, unfit
from kcontract.dynamic.gates.bench import Bench, Found, Trial, samples
from kcontract.dynamic.gates.exc_01 import undecided
from kcontract.dynamic.inputs import Sample
from kcontract.dynamic.oracle import Bounded, Policy, SubnormalAnswer, compare, judge_subnormals
from kcontract.model import Basis, Status, Subnormals, Verdict

GATE = "EXC-02"

#: Inputs whose powers, exponentials and products are subnormal.
RESULTS = ("exponents", "logarithms", "roots")

_WORST_FIRST = (
    SubnormalAnswer.WRONG, SubnormalAnswer.FLUSHES_INPUTS, SubnormalAnswer.FLUSHES_RESULTS, SubnormalAnswer.PRESERVES,
    SubnormalAnswer.NOT_SHOWN,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Seen:
    trial: Trial
    answer: SubnormalAnswer = SubnormalAnswer.NOT_SHOWN


def check(bench: Bench) -> Found:
    """The whole subnormal range, in and out."""
    if bench.candidate.kind == "interpreter":
        return undecided(bench, GATE)
    if (none := bench.hopeless(GATE)) is not None:
        return none
    if bench.ordinary().reason:
        reason = f"outside the bound on ordinary inputs already: {bench.ordinary().reason}"
        return Found(bench.said(GATE, Status.UNDECIDED, reason))
    seen = []
    for sample in draws(bench):
        seen.append(_look(bench, sample))
        if seen[-1].trial.judged and seen[-1].trial.reason:
            break
    found = bench.verdict(GATE, (s.trial for s in seen))
    if found.verdict.status is not Status.PASS:
        return found
    worst = min((s.answer for s in seen if s.trial.judged), key=_WORST_FIRST.index)
    if worst is SubnormalAnswer.NOT_SHOWN:
        return Found(bench.said(GATE, Status.NOT_APPLICABLE, "absorbed: no result shows what becomes of subnormals"))
    why = {
        SubnormalAnswer.PRESERVES: "keeps subnormals",
        SubnormalAnswer.FLUSHES_RESULTS: "flushes subnormal results (allowed unless the contract says preserve)",
        SubnormalAnswer.FLUSHES_INPUTS: "reads subnormal inputs as zero (allowed unless the contract says preserve)",
    }[worst]
    verdict = Verdict(GATE, Status.PASS, Basis.OBSERVED, f"{why}; {found.tried} inputs", engine=bench.engine)
    return Found(verdict, tried=found.tried, evidence={"subnormals": worst.value})


def draws(bench: Bench) -> Iterator[Sample]:
    """The gate's inputs: subnormal ones, then those of subnormal results."""
    yield from samples(GATE, bench)
    for kind in RESULTS:
        yield bench.nominal(kind, 0, kind, GATE)


def _look(bench: Bench, sample: Sample) -> _Seen:
    model = bench.model(bench.dtype)
    keeping = bench.expected(sample, model=model.keeping_subnormals())
    flushing = bench.expected(sample, flush_inputs=True)
    plain = bench.expected(sample)
    if isinstance(keeping, str) or isinstance(flushing, str) or isinstance(plain, str):
        return _Seen(Trial(sample, str(keeping if isinstance(keeping, str) else flushing), judged=False))
    answer = bench.answer(sample)
    if reason := unfit(answer):
        return _Seen(Trial(sample, reason))
    eager = bench.eager(sample)
    worst = _Seen(Trial(sample))
    for k, (keep, result, read) in enumerate(zip(keeping.outputs, plain.outputs, flushing.outputs, strict=True)):
        if not keep.value.is_floating_point():
            continue
        found = answer.values[k].to(bench.device)
        own = None if eager is None else eager[k]
        one = _one(bench, sample, found, own, keep, result, read)
        if one.trial.reason:
            return one
        worst = min(worst, one, key=lambda s: _WORST_FIRST.index(s.answer))
    return worst


def _one(
    bench: Bench, sample: Sample, found: torch.Tensor, own: torch.Tensor | None, keep: Bounded, result: Bounded,
    read: Bounded,
) -> _Seen:  # fmt: skip
    """One output: ``own`` is the reference's own run, which excuses what it does itself."""
    said = judge_subnormals(found, keep, result, read)
    if said in (SubnormalAnswer.PRESERVES, SubnormalAnswer.NOT_SHOWN):
        return _Seen(Trial(sample), said)
    if own is not None and _WORST_FIRST.index(judge_subnormals(own, keep, result, read)) <= _WORST_FIRST.index(said):
        return _Seen(Trial(sample, "the reference itself does so", judged=False))
    declared = bench.contract.subnormals
    if said is SubnormalAnswer.WRONG:
        worst = compare(found, read, Policy(subnormals=Subnormals.FLUSH))
        return _Seen(Trial(sample, f"wrong beside subnormal numbers: {sentence(worst)}", worst), said)
    worst = compare(found, keep, Policy(subnormals=Subnormals.PRESERVE))
    if declared is Subnormals.PRESERVE:
        return _Seen(Trial(sample, f"{said.value}, and the contract says preserve: {sentence(worst)}", worst), said)
    if said is SubnormalAnswer.FLUSHES_INPUTS and declared is None and worst.reason in ("nan", "inf"):
        return _Seen(Trial(sample, f"reads a subnormal input as zero: {sentence(worst)}", worst), said)
    return _Seen(Trial(sample), said)
