"""CMP-01: right values, on random and adversarial inputs, all outputs, every argument, number and parameter varied.

All but the native inputs lie at the addresses of those before them, so that whoever keeps results by address shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from kcontract.dynamic import oracle
from kcontract.dynamic.gates.bench import Bench, Found, Trial, samples, with_inputs
from kcontract.dynamic.gates.parameters import redrawn
from kcontract.dynamic.gates.references import NATIVE
from kcontract.dynamic.inputs import Role, Sample
from kcontract.dynamic.oracle import Expected
from kcontract.dynamic.problems import infer
from kcontract.dynamic.sandbox.candidate import Answer
from kcontract.model import Status, Subnormals

GATE = "CMP-01"


def check(bench: Bench) -> Found:
    """The native inputs first, then draws, extremes and single changes at the working sizes.

    UNDECIDED where the hardware refuses the kernel: that is RES-02's to tell.
    """
    found = bench.verdict(GATE, _trials(bench))
    if found.witness is not None and str(found.witness.found).startswith("OutOfResources"):
        return Found(bench.said(GATE, Status.UNDECIDED, f"it does not run, see RES-02: {found.witness.found}"))
    return found


def _trials(bench: Bench) -> Iterator[Trial]:
    if bench.elements(bench.spec.with_dims(bench.native)) <= NATIVE[bench.candidate.kind]:
        with bench.natively():
            trial = bench.attempt(native(bench))
        yield trial
    plain, *others = samples(GATE, bench)
    yield bench.attempt(plain)
    yield _in_place(bench, plain)  # last before the changes: who keeps one result keeps this one
    for sample in (*_touched(bench, plain), *others):
        if bench.admits(sample.dims):
            yield _in_place(bench, sample)
    yield from _numbers(bench, plain)
    module = bench.reference(bench.dtype)
    if bench.master is not bench.plain and any(True for _ in module.parameters()):
        sample = replace(plain, label=f"{plain.label}, parameters change")
        with bench.parameters(redrawn(module)):
            trial = bench.attempt(sample)
        yield _said(trial, "after its parameters were changed in place, ")


def _in_place(bench: Bench, sample: Sample) -> Trial:
    """The sample at the addresses of the one before; where it fails there and not elsewhere, that is said."""
    trial = _attempt(bench, sample, "same")
    if trial.judged and trial.reason and not _attempt(bench, sample, "guarded:finite").reason:
        return _said(trial, "where they replace other data at the same address (it is right elsewhere), ")
    return trial


def _attempt(bench: Bench, sample: Sample, placement: str) -> Trial:
    """One sample judged where the reference has a result: of finite inputs, it may make NaN, or overflow on huge ones,
    for reasons of its own."""
    right = bench.expected(sample)
    if isinstance(right, str):
        return Trial(sample, right, judged=False)
    outputs = []
    for out in right.outputs:
        own = torch.isnan(out.value) | (torch.isinf(out.value) & ("huge" in sample.label))
        outputs.append(replace(out, undetermined=out.undetermined | own))
    if all(bool(out.undetermined.all()) for out in outputs):
        return Trial(sample, "the reference determines no element", judged=False)
    right = replace(right, outputs=tuple(outputs))
    answer = bench.answer(sample, placement=placement)
    trial = bench.judge(sample, answer, right)
    if trial.worst is not None and "huge" in sample.label and _strays(bench, sample, right):
        return Trial(sample, "the reference's own run overflows on the way", judged=False)
    if trial.worst is not None and sample.label == "subnormal" and _flushes(bench, sample, answer):
        return Trial(sample, "it flushes subnormal numbers, see EXC-02", judged=False)
    return trial


def _flushes(bench: Bench, sample: Sample, answer: Answer) -> bool:
    """Whether what is wrong is right once subnormal inputs and results count as zero. A GPU's atomic additions of
    float32 in global memory do that (PTX ISA, ``red``)."""
    right = bench.expected(sample, flush_inputs=True)
    policy = replace(bench.policy, subnormals=Subnormals.FLUSH)
    values = [v.to(bench.device) for v in answer.values]
    if isinstance(right, str):
        return False
    return all(c.ok for c in oracle.compare_all(values, right, policy, brief=True))


def _strays(bench: Bench, sample: Sample, right: Expected) -> bool:
    """Whether the reference, run as it is, misses its own bound."""
    own = bench.eager(sample)
    return own is not None and not all(c.ok for c in oracle.compare_all(own, right, bench.policy, brief=True))


def _said(trial: Trial, circumstance: str) -> Trial:
    return replace(trial, reason=circumstance + trial.reason) if trial.judged and trial.reason else trial


def _touched(bench: Bench, plain: Sample) -> Iterator[Sample]:
    """For each data argument the same inputs, but one element of it moved by 8: a fingerprint of a few others, or of
    the address, misses that."""
    generator = torch.Generator().manual_seed(bench.seed)
    for at, a in enumerate(bench.spec.arguments):
        value = plain.inputs[at]
        if a.role is Role.DATA and value.numel():
            moved = value.detach().clone()
            flat = moved.view(-1)
            flat[int(torch.randint(0, flat.numel(), (), generator=generator))] += 8
            yield with_inputs(plain, at, moved.requires_grad_(value.requires_grad), f"one element of {a.name} changes")


def _numbers(bench: Bench, plain: Sample) -> Iterator[Trial]:
    """Each argument that is a plain number (a scale, an eps, a dimension, a switch) alone at another value that the
    contract admits, the reference takes, and that moves its result. A candidate may refuse it in an exception."""
    was = bench.expected(plain)
    for at, a in enumerate(bench.spec.arguments):
        low, high = bench.contract.ranges.get(a.name, (-math.inf, math.inf))
        for value in _other_numbers(a.value) if a.role is Role.FIXED else ():
            sample = with_inputs(plain, at, value, f"{a.name} = {value}")
            now = bench.expected(sample) if low <= value <= high else ""
            if isinstance(was, str) or isinstance(now, str) or not _moved(was, now):
                continue
            trial = _in_place(bench, sample)
            answer = bench.log[-1][1]
            refused = answer.failure is not None and answer.failure.kind == "raised"
            if trial.reason and (refused or infer.is_random(bench.reference(bench.dtype), sample.inputs)):
                trial = Trial(sample, f"{sample.label} is refused or random: {trial.reason}", judged=False)
            yield trial
            break


def _other_numbers(value: object) -> Sequence[float]:
    """Values to try in place of a number, the likeliest to be taken first; those of a float have few digits, so that
    every dtype holds them."""
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        return [v for v in (value + 1, value - 1, 2 * value, value // 2) if v != value]
    if isinstance(value, float) and math.isfinite(value):
        wanted = torch.tensor((1.5 * value + math.copysign(0.25, value), value / 2), dtype=torch.float64)
        return [float(v) for v in wanted.to(torch.bfloat16)]
    return ()


def _moved(was: Expected, now: Expected) -> bool:
    """Whether what is right differs by more than its bounds."""
    for a, b in zip(was.outputs, now.outputs, strict=False):
        if a.value.shape != b.value.shape:
            return bool(b.value.numel() <= 16 * max(a.value.numel(), 1))
        if bool(((a.value.double() - b.value.double()).abs() > a.bound + b.bound).any()):
            return True
    return len(was.outputs) != len(now.outputs)


def native(bench: Bench) -> Sample:
    """The problem's own inputs, drawn as its file draws them."""
    dtype = getattr(torch, bench.dtype)
    inputs = tuple(
        v.to(dtype) if a.role is Role.DATA and isinstance(v, torch.Tensor) else v
        for a, v in zip(bench.spec.arguments, bench.given, strict=True)
    )
    return Sample(GATE, "native", bench.seed, inputs, bench.native)
