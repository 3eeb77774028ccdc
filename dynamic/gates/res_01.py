"""RES-01: results, launches and streams are those of the inputs' device, whichever device is current."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from kcontract.dynamic.gates.bench import Bench, Found, Trial
from kcontract.dynamic.inputs import Sample
from kcontract.dynamic.sandbox.candidate import Answer
from kcontract.model import Status

GATE = "RES-01"


def check(bench: Bench) -> Found:
    """On a GPU: where results lie, inputs that arrive late on the current stream, inputs on a second GPU while the
    first is current, inputs on the CPU. Everywhere: inputs on meta, with no kernel launched.

    Refusing an input in an exception is right, a right result is too. Without a GPU nothing is decided for good,
    since there is one device and no stream; only a result that ignores the device of a meta input is seen.
    """
    if found := bench.barred(GATE):
        return found
    seen: list[str] = []
    found = bench.verdict(GATE, _trials(bench, seen))
    if found.verdict.status is not Status.PASS:
        return found
    if bench.candidate.kind != "gpu":
        reason = f"{bench.engine} has one device and no streams; seen: {'; '.join(seen)}"
        return Found(bench.said(GATE, Status.UNDECIDED, reason), tried=found.tried)
    return replace(found, verdict=replace(found.verdict, reason="; ".join(seen)))


def _trials(bench: Bench, seen: list[str]) -> Iterator[Trial]:
    sample = bench.nominal(gate=GATE)
    if bench.candidate.kind == "gpu":
        yield _here(bench, sample, seen)
        yield _late(bench, sample, seen)
        if torch.cuda.device_count() > 1:
            yield _there(bench, sample, seen)
        else:
            seen.append("one GPU only, so inputs on another than the current one were not tried")
        yield _on_cpu(bench, sample, seen)
    yield _on_meta(bench, sample, seen)


def _judged(bench: Bench, sample: Sample, answer: Answer, circumstance: str) -> Trial:
    right = bench.expected(sample)
    if isinstance(right, str):
        return Trial(sample, right, judged=False)
    trial = bench.judge(sample, answer, right)
    return replace(trial, reason=f"{circumstance}: {trial.reason}") if trial.reason else trial


def _here(bench: Bench, sample: Sample, seen: list[str]) -> Trial:
    answer = bench.answer(sample)
    trial = _judged(bench, sample, answer, "with its inputs on cuda:0")
    if reason := trial.reason or _astray(answer, "cuda:0"):
        return replace(trial, reason=reason)
    seen.append("results on the inputs' device")
    aside = [str(n["kernel"]) for n in answer.launches if n["stream"] != answer.stream or not n["main_thread"]]
    if aside:
        seen.append(f"{', '.join(sorted(set(aside)))} launched on another stream or thread than the caller's")
    return trial


def _late(bench: Bench, sample: Sample, seen: list[str]) -> Trial:
    """Work on another stream that does not wait for the caller's meets NaN, or is not waited for."""
    trial = _judged(
        bench, sample, bench.answer(sample, late=True), "with inputs that arrive late on the current stream"
    )
    if not trial.reason:
        seen.append("in the order of the current stream")
    return trial


def _there(bench: Bench, sample: Sample, seen: list[str]) -> Trial:
    answer = bench.answer(sample, on="cuda:1")
    trial = _judged(bench, sample, answer, "with its inputs on cuda:1 while cuda:0 is current")
    if reason := trial.reason or _astray(answer, "cuda:1"):
        return replace(trial, reason=reason)
    seen.append("right on cuda:1 while cuda:0 is current")
    return trial


def _on_cpu(bench: Bench, sample: Sample, seen: list[str]) -> Trial:
    answer = bench.answer(sample, on="cpu")
    if _refused(answer, seen, "CPU"):
        return Trial(sample)
    trial = _judged(bench, sample, answer, "with its inputs on the CPU, which it neither refuses nor takes")
    if not trial.reason:
        seen.append("right on CPU inputs")
    return trial


def _on_meta(bench: Bench, sample: Sample, seen: list[str]) -> Trial:
    """Kernels are not launched: Triton hands them null pointers, and hardly anybody looks before."""
    answer = bench.answer(sample, on="meta", suppress=True)
    if _refused(answer, seen, "meta"):
        return Trial(sample)
    if answer.failure is not None:
        return Trial(sample, f"with its inputs on meta: {answer.failure}")
    if reason := _astray(answer, "meta"):
        return Trial(sample, f"{reason}: it does not ask its inputs where they are")
    seen.append("results of meta inputs on meta")
    return Trial(sample)


def _refused(answer: Answer, seen: list[str], what: str) -> bool:
    if answer.failure is None or answer.failure.kind != "raised":
        return False
    seen.append(f"refuses {what} inputs ({answer.failure.exception})")
    return True


def _astray(answer: Answer, device: str) -> str:
    """Which output is not on the device of the inputs; empty where all are."""
    for k, out in enumerate(answer.outputs):
        if out.device != device and not out.number:
            return f"output {k} is on {out.device}, the inputs are on {device}"
    return ""
