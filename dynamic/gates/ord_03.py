"""ORD-03: survives adversarial orders: sums that cancel late, are sorted or alternate, and decays from prefix sums.

The bound is ORD-01's. Beyond it there is one promise without a bound: where a difference of prefix sums has lost every
digit, its exponential must still be finite wherever the reference, run as it is, is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from kcontract.dynamic.gates.bench import Bench, Found, Trial
from kcontract.dynamic.gates.ord_01 import sums_nothing
from kcontract.dynamic.inputs import Role, Sample, build
from kcontract.dynamic.oracle import Expected

GATE = "ORD-03"

KINDS = ("cancelling", "ascending", "alternating", "spike_first", "spike_last")
THOROUGH = (*KINDS, "wide", "steep", "peaked", "shifted")


def check(bench: Bench) -> Found:
    """Each order within the bound, then decays where the reference scans."""
    return bench.hopeless(GATE) or sums_nothing(bench, GATE) or bench.verdict(GATE, _trials(bench))


def draws(bench: Bench) -> Iterator[Sample]:
    """The gate's inputs: ``halves`` cancel against each other, in a product too."""
    data = [k for k, a in enumerate(bench.spec.arguments) if a.role is Role.DATA]
    for seed in range(4 if bench.thorough else 1):
        tail = f" {seed}" if seed else ""
        for kind in THOROUGH if bench.thorough else KINDS:
            yield bench.nominal(kind + tail, seed, kind, GATE)
        mirrored, repeated = (build(bench.spec, bench.seed + seed, kind) for kind in ("mirrored", "repeated"))
        inputs = tuple(m if k in data[:1] else r for k, (m, r) in enumerate(zip(mirrored, repeated, strict=True)))
        yield Sample(GATE, "halves" + tail, bench.seed + seed, inputs, bench.spec.dims)
    for seed in range(12 if bench.thorough else 3):
        yield bench.nominal(f"decay {seed}", seed, "decay", GATE)


def _trials(bench: Bench) -> Iterator[Trial]:
    for sample in draws(bench):
        if not sample.label.startswith("decay"):
            yield bench.attempt(sample)
            continue
        right = bench.expected(sample)
        if not isinstance(right, str) and any(s.op in ("cumsum", "cumprod", "logcumsumexp") for s in right.sources):
            yield _decay(bench, sample, right)


def _decay(bench: Bench, sample: Sample, right: Expected) -> Trial:
    """Inside the bound; and finite where there is none, but the reference is finite in float64 and as it is."""
    answer = bench.answer(sample)
    trial = bench.judge(sample, answer, right)
    eager = bench.eager(sample)
    if trial.reason or eager is None:
        return trial
    for name, found, e, own in zip((e.name for e in right.outputs), answer.values, right.outputs, eager, strict=True):
        found = found.to(e.value.device)
        burst = e.undetermined & torch.isfinite(e.value) & torch.isfinite(own) & ~torch.isfinite(found)
        if bool(burst.any()):
            at = [int(k) for k in burst.nonzero()[0]]
            got, wanted = float(found[tuple(at)]), float(e.value[tuple(at)])
            return replace(trial, reason=f"{name}{at} is {got}, where the reference is finite ({wanted:.3g})")
    return trial
