"""EXC-01: NaN and ±Inf exactly where the reference has them.

The masks of NaN, +Inf and −Inf decide, without a tolerance. An element counts only where the reference's own run, in
the candidate's dtype, is of the same class as its float64 run. Finite elements are judged by the bound as well, unless
the candidate misses that on ordinary inputs too, which is another gate's finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from kcontract.dynamic import oracle
from kcontract.dynamic.engines.interpreter import GAPS
from kcontract.dynamic.gates.answers import sentence, unfit
from kcontract.dynamic.gates.bench import Bench, Found, Trial, samples, with_inputs
from kcontract.dynamic.inputs import Sample
from kcontract.dynamic.oracle import Bounded, Comparison
from kcontract.model import Status

GATE = "EXC-01"

_NAMES = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
#: Placements tried in arguments after the first, in the small set.
_OTHERS = ("nan scattered", "+inf scattered", "-inf row", "mixed")


@dataclass(frozen=True, slots=True)
class _Judged:
    trial: Trial
    nan_only: bool = True


def check(bench: Bench) -> Found:
    """All placements; ``nan_only`` tells that nothing is wrong but NaN that got lost."""
    if bench.candidate.kind == "interpreter":
        return undecided(bench, GATE)
    if (none := bench.hopeless(GATE)) is not None:
        return none
    judged = [_judge(bench, sample) for sample in draws(bench)]
    failed = [j for j in judged if j.trial.judged and j.trial.reason]
    found = bench.verdict(GATE, (j.trial for j in judged))
    if not failed:
        return found
    evidence = {"nan_only": all(j.nan_only for j in failed), "failed": [j.trial.sample.label for j in failed]}
    return replace(found, tried=len(judged), evidence=evidence)


def draws(bench: Bench) -> Iterator[Sample]:
    """The gate's inputs."""
    first = ""
    for sample in samples(GATE, bench):
        argument = next(a.name for a in bench.spec.arguments if sample.label.startswith(f"{a.name} "))
        first = first or argument
        if bench.thorough or argument == first or sample.label.removeprefix(f"{argument} ") in _OTHERS:
            yield sample
    if (odd := bench.uneven(GATE, "NaN")) is not None and first:
        at = next(k for k, a in enumerate(bench.spec.arguments) if a.name == first)
        last = odd.inputs[at].detach().clone(memory_format=torch.contiguous_format)
        last.view(-1)[-1:] = float("nan")
        yield with_inputs(odd, at, last, f"{first} nan in the last place at odd sizes")


def undecided(bench: Bench, gate: str) -> Found:
    """What the interpreter may say of a gate that it cannot decide."""
    assert gate in GAPS
    reason = "Triton's interpreter treats this otherwise than compiled code; run it with --engine gpu or sim:sm_90"
    return Found(bench.said(gate, Status.UNDECIDED, reason))


def _judge(bench: Bench, sample: Sample) -> _Judged:
    right = bench.expected(sample)
    if isinstance(right, str):
        return _Judged(Trial(sample, right, judged=False))
    answer = bench.answer(sample)
    if reason := unfit(answer):
        return _Judged(Trial(sample, reason), nan_only=False)
    values = [v.to(bench.device) for v in answer.values]
    compared = oracle.compare_all(values, right, bench.policy, brief=True)
    if any(c.reason in ("nan", "inf") for c in compared) and (eager := bench.eager(sample)) is not None:
        outputs = tuple(_sure(e, own) for e, own in zip(right.outputs, eager, strict=True))
        compared = oracle.compare_all(values, replace(right, outputs=outputs), bench.policy, brief=True)
    strict = not bench.ordinary().reason
    bad = [c for c in compared if not c.ok and (strict or c.reason != "value")]
    if not bad or (sample.dims != bench.spec.dims and _wrong_there(bench)):
        return _Judged(Trial(sample, judged=not bad))
    nan_only = all(c.reason == "nan" for c in bad) and not any(
        _made(v, e) for v, e in zip(values, right.outputs, strict=False)
    )
    return _Judged(Trial(sample, _said(bad[0]), bad[0]), nan_only)


def _wrong_there(bench: Bench) -> bool:
    """Whether the candidate is wrong at odd sizes without any NaN, which is CMP-03's to tell."""
    odd = bench.uneven(GATE, "odd sizes")
    return odd is not None and bool(bench.attempt(odd).reason)


def _sure(e: Bounded, own: torch.Tensor) -> Bounded:
    """What the oracle promises, less the elements where the reference's own run is of another class."""
    if not e.value.is_floating_point() or own.shape != e.value.shape:
        return e
    return replace(e, undetermined=e.undetermined | (_class(own) != _class(e.value.to(e.dtype))))


def _class(t: torch.Tensor) -> torch.Tensor:
    """0 for finite, 1 for NaN, 2 for +Inf, 3 for −Inf."""
    t = t.double()
    return torch.isnan(t) + 2 * torch.isposinf(t) + 3 * torch.isneginf(t)


def _made(found: torch.Tensor, e: Bounded) -> bool:
    """Whether anything but a lost NaN is wrong with the masks."""
    made = (_class(found) != _class(e.value.to(e.dtype))) & ~torch.isnan(e.value) & ~e.undetermined
    return bool(made.any())


def _said(c: Comparison) -> str:
    """Which mask differs, and where."""
    lost, made = _NAMES.get(str(c.wanted)), _NAMES.get(str(c.found))
    if c.reason not in ("nan", "inf") or not (lost or made):
        return sentence(c)
    at = f"{c.output}{list(c.index)}"
    if lost and made:
        return f"gives {made} in place of {lost} at {at}"
    return f"drops {lost} at {at}, found {c.found}" if lost else f"makes {made} at {at}, wanted {c.wanted}"
