"""CFG-01: every configuration of an autotuner is right, also at sizes that are no multiple of 16, in its first call
and in its second, and so is the call that tunes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from kcontract.dynamic.gates.bench import Bench, Found, Trial
from kcontract.dynamic.inputs import Sample, build
from kcontract.model import Status

GATE = "CFG-01"
#: Errors for which Triton's autotuner itself drops a configuration.
_DROPPED = ("OutOfResources", "CompileTimeAssertionFailure", "PTXASError")
#: Most configurations that are tried unless asked to be thorough.
_MOST = 64


@dataclass(slots=True)
class _Tried:
    """Configurations seen so far: how many, and which were refused; ``rebuild`` where each is a module of its own."""

    rebuild: bool
    count: int = 0
    refused: list[str] = field(default_factory=list)


def check(bench: Bench) -> Found:
    """Each configuration alone on fresh poisoned buffers. One that the hardware refuses is listed, no failure.

    Sizes at which the configuration in use is itself wrong are CMP-03's. UNDECIDED where no configuration is right.
    """
    if not bench.tuners and (bench.sight is None or bench.sight.failure is None):
        return Found(bench.said(GATE, Status.NOT_APPLICABLE, "it has no autotuner"))
    if (found := bench.barred(GATE)) is not None:
        return found
    tried = _Tried(rebuild=_made_tuned(bench))
    try:
        found = bench.verdict(GATE, _trials(bench, tried))
    finally:
        bench.pin(bench.configuration, tried.rebuild)
    if found.verdict.status is not Status.PASS:
        return found
    total = max(len(configs) for _, configs in bench.tuners)
    reason = f"right in {tried.count} configurations" + ("" if tried.count == total else f" of {total}")
    refused = f"; refused by the hardware: {'; '.join(tried.refused)}" if tried.refused else ""
    verdict = replace(found.verdict, reason=reason + refused)
    return replace(found, verdict=verdict, evidence={"configurations": tried.count, "refused": tried.refused})


def _made_tuned(bench: Bench) -> bool:
    """Whether what is launched is the same in two configurations: a module that chose one when it was made, and calls
    the kernel without its autotuner, has to be made anew for each."""
    sample, seen = bench.nominal(gate=GATE), []
    for k in (0, 1):
        bench.pin(k)
        launches = bench.answer(sample).launches
        seen.append([(n["kernel"], n["key"], n["numbers"]) for n in launches])
    bench.pin(bench.configuration)
    return bool(seen[0]) and seen[0] == seen[1] and max(len(configs) for _, configs in bench.tuners) > 1


def _trials(bench: Bench, tried: _Tried) -> Iterator[Trial]:
    if bench.first is not None and bench.first[0].dims == bench.spec.dims:
        sample, answer = bench.first
        right = bench.expected(sample)
        if not isinstance(right, str):
            trial = bench.judge(sample, answer, right)
            yield _said(trial, "in its first call, which tunes, ")
    samples = [bench.nominal(gate=GATE), *_classes(bench)]
    for k in range(max(len(configs) for _, configs in bench.tuners)):
        if k >= _MOST and not bench.thorough:
            break
        bench.pin(k, tried.rebuild)
        name = ", ".join(f"{kernel}[{configs[k % len(configs)]}]" for kernel, configs in bench.tuners)
        answer = bench.answer(samples[0], poison="nan")
        if answer.failure is not None and answer.failure.exception in _DROPPED:
            tried.refused.append(f"{name} ({answer.failure})")
            continue
        tried.count += 1
        for at, sample in enumerate(samples):
            right = bench.expected(sample)
            if isinstance(right, str):
                continue
            answer = bench.answer(sample, poison="nan") if at else answer
            yield _said(bench.judge(sample, answer, right), f"with {name}, ")
            if not at:
                again = bench.judge(sample, bench.answer(sample, poison="finite"), right)
                yield _said(again, f"with {name}, in its second call, ")


def _classes(bench: Bench) -> Iterator[Sample]:
    """All sizes at 1 and at odd numbers, each where the configuration in use is right."""
    for label, dims in (
        ("odd sizes", {name: size + 1 + size % 2 for name, size in bench.spec.dims.items()}),
        ("sizes of 1", dict.fromkeys(bench.spec.dims, 1)),
    ):
        if not bench.admits(dims):
            continue
        moved = bench.spec.with_dims(dims)
        sample = Sample(GATE, label, bench.seed, build(moved, bench.seed), moved.dims)
        trial = bench.attempt(sample)
        if trial.judged and not trial.reason:
            yield sample


def _said(trial: Trial, circumstance: str) -> Trial:
    return replace(trial, reason=circumstance + trial.reason) if trial.reason else trial
