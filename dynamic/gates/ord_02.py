"""ORD-02: five runs give the same bytes, and no result shares memory with an input, an earlier result or leftovers.

The runs take fresh buffers; what an allocation leaves uninitialised is NaN in one run and finite in the next, so that
a value that was never written shows. The first result is kept alive while the candidate works on other data. Under the
simulator each run takes another order of atomics. A contract of bounded determinism allows the bytes to differ within
the error bound, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kcontract.dynamic import oracle
from kcontract.dynamic.gates.answers import unfit
from kcontract.dynamic.gates.bench import Bench, Found, Trial
from kcontract.dynamic.gates.exc_01 import undecided
from kcontract.dynamic.inputs import Sample
from kcontract.dynamic.sandbox.candidate import Answer
from kcontract.model import Basis, Determinism, Status, Verdict

GATE = "ORD-02"
#: What uninitialised memory holds in each run.
POISONS = ("nan", "nan", "finite", "nan", "finite")


@dataclass(frozen=True, slots=True)
class _Run:
    poison: str
    answer: Answer


def check(bench: Bench) -> Found:
    """Sharing first, which every engine shows; then bytes."""
    sample, other = draws(bench)
    first = bench.answer(sample, poison=POISONS[0], hold="first", order=0)
    if reason := unfit(first):
        return Found(bench.said(GATE, Status.UNDECIDED, f"it gives no result that could be compared: {reason}"))
    between = bench.answer(other, poison=POISONS[0], order=0)
    runs = [_Run(POISONS[0], first)]
    if bench.first is not None and dict(bench.first[0].dims) == dict(sample.dims) and not unfit(bench.first[1]):
        runs.insert(0, _Run(POISONS[0], bench.first[1]))  # the first call of all: tuning happens there
    for k, poison in enumerate(POISONS[1:], 1):
        runs.append(_Run(poison, bench.answer(sample, poison=poison, order=k)))
    trials = [
        Trial(sample, _shared(bench, sample, first)),
        Trial(other, _kept(first, between, bench.candidate.again("first"))),
    ]
    if bench.candidate.kind == "interpreter" and not any(t.reason for t in trials):
        return undecided(bench, GATE)
    differing = _differing(bench, sample, runs)
    found = bench.verdict(GATE, [*trials, differing])
    if found.verdict.status is not Status.PASS:
        return found
    same = all(_same(first, r.answer) for r in runs)
    reason = f"{len(runs)} runs give the same bytes" if same else "runs differ within the bound, as the contract allows"
    return replace(found, verdict=Verdict(GATE, Status.PASS, Basis.OBSERVED, reason, engine=bench.engine))


def draws(bench: Bench) -> tuple[Sample, Sample]:
    """The inputs of the five runs, and those of the call between them."""
    return bench.nominal(gate=GATE), bench.nominal("other data", 101, gate=GATE)


def _shared(bench: Bench, sample: Sample, answer: Answer) -> str:
    """An output in the storage of an input, where the reference's is not."""
    shared = _aliases(bench, sample)
    for k, out in enumerate(answer.outputs):
        if out.alias is not None and out.alias not in shared.get(k, ()):
            return f"output {k} shares memory with the argument {bench.spec.arguments[out.alias].name!r}"
    if answer.meeting and not shared.get(-1):
        return "two outputs share one memory"
    return ""


def _aliases(bench: Bench, sample: Sample) -> dict[int, tuple[int, ...]]:
    """For each output of the reference the arguments whose storage it has; −1: outputs share storage."""
    try:
        with torch.no_grad():
            made = [v.detach().clone().to(bench.device) if isinstance(v, torch.Tensor) else v for v in sample.inputs]
            outputs = oracle.outputs_of(bench.reference(bench.dtype)(*made))
    except Exception:
        return {}
    places = [v.untyped_storage().data_ptr() if isinstance(v, torch.Tensor) else 0 for v in made]
    own = [o.untyped_storage().data_ptr() for o in outputs]
    found = {k: tuple(a for a, place in enumerate(places) if place and place == p) for k, p in enumerate(own)}
    return found | ({-1: (0,)} if len(set(own)) < len(own) else {})


def _kept(first: Answer, between: Answer, now: Sequence[Any]) -> str:
    """Whether the first result is still what it was after a call on other data."""
    for k, out in enumerate(between.outputs):
        if out.held:
            return f"output {k} of a second call, on other data, is in the memory of the first result, still in use"
    for k, (out, value) in enumerate(zip(first.outputs, now, strict=False)):
        if value is not None and not _equal(out.value, value):
            return f"output {k} of the first call changes when a later call runs on other data"
    return ""


def _differing(bench: Bench, sample: Sample, runs: Sequence[_Run]) -> Trial:
    """The first run that differs from the first one, and why, unless the contract allows it."""
    first = runs[0].answer
    for k, run in enumerate(runs[1:], 2):
        if reason := unfit(run.answer):
            return Trial(sample, f"run {k} of the same inputs fails: {reason}")
    other = [k for k, run in enumerate(runs) if not _same(first, run.answer)]
    if not other:
        return Trial(sample)
    poisoned = {poison: [r.answer for r in runs if r.poison == poison] for poison in set(POISONS)}
    steady = all(_same(each[0], a) for each in poisoned.values() for a in each)
    place = _place(first, runs[other[0]].answer)
    if steady:
        return Trial(sample, f"{place} depends on memory that it never wrote")
    if bench.contract.determinism is Determinism.BOUNDED:
        right = bench.expected(sample)
        outside = (bench.judge(sample, r.answer, right) for r in runs) if not isinstance(right, str) else ()
        return next((t for t in outside if t.reason), Trial(sample))
    return Trial(sample, f"{place} in run {other[0] + 1}: runs of the same inputs give other bytes")


def _place(a: Answer, b: Answer) -> str:
    for k, (one, two) in enumerate(zip(a.outputs, b.outputs, strict=False)):
        if not _equal(one.value, two.value):
            if one.shape != two.shape or one.dtype != two.dtype:
                return f"output {k} is {two.dtype} {list(two.shape)} after {one.dtype} {list(one.shape)}"
            differ = _bytes(one.value) != _bytes(two.value)
            at = tuple(int(i) for i in differ.any(-1).nonzero()[0])
            return f"output {k}{list(at)} is {float(one.value[at]):.9g}, then {float(two.value[at]):.9g}"
    return "the number of outputs"


def _same(a: Answer, b: Answer) -> bool:
    pairs = zip(a.outputs, b.outputs, strict=False)
    return len(a.outputs) == len(b.outputs) and all(_equal(x.value, y.value) for x, y in pairs)


def _equal(a: Any, b: Any) -> bool:
    return bool(a.shape == b.shape and a.dtype == b.dtype and torch.equal(_bytes(a), _bytes(b)))


def _bytes(t: Any) -> Any:
    """A tensor's bytes: its shape, and one axis more."""
    return t.contiguous().unsqueeze(-1).view(torch.uint8)
