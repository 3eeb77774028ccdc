"""CMP-01: right values, on random and adversarial inputs, all outputs, every argument varied."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from kcontract.dynamic.gates.bench import NATIVE, Bench, Found, Trial, samples
from kcontract.dynamic.inputs import Role, Sample

GATE = "CMP-01"


def check(bench: Bench) -> Found:
    """The native inputs first, then draws, extremes and single-argument changes at the working sizes."""
    return bench.verdict(GATE, _trials(bench))


def _trials(bench: Bench) -> Iterator[Trial]:
    if bench.elements(bench.spec.with_dims(bench.native)) <= NATIVE[bench.candidate.kind]:
        yield bench.attempt(native(bench))
    for sample in samples(GATE, bench):
        yield bench.attempt(sample)


def native(bench: Bench) -> Sample:
    """The problem's own inputs, drawn as its file draws them."""
    torch.manual_seed(bench.seed + 1)
    drawn = bench.problem.inputs()
    dtype = getattr(torch, bench.dtype)
    inputs = tuple(
        v.to(dtype) if a.role is Role.DATA and isinstance(v, torch.Tensor) else v
        for a, v in zip(bench.spec.arguments, drawn, strict=True)
    )
    return Sample(GATE, "native", bench.seed + 1, inputs, bench.native)
