"""ORD-01: what reductions round away stays within the derived bound, on the inputs that are hard for rounding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from kcontract.dynamic.gates.bench import Bench, Found
from kcontract.dynamic.inputs import Sample
from kcontract.model import Status

GATE = "ORD-01"

#: No term is negligible; all of one sign; sums near 0; few terms; a mean far above the deviations (one-pass variance);
#: a dropped eps; a variance below the rounding error of a mean square.
KINDS = ("signs", "uniform", "shifted", "sparse", "large_mean", "tiny_scale", "nearly_constant")
THOROUGH = (*KINDS, "normal", "constant_rows", "wide", "steep", "peaked")


def check(bench: Bench) -> Found:
    """Each kind of input within the bound; the order of summation is ORD-03's."""
    return bench.hopeless(GATE) or sums_nothing(bench, GATE) or bench.over(GATE, draws(bench))


def draws(bench: Bench) -> Iterator[Sample]:
    """The gate's inputs."""
    for seed in range(4 if bench.thorough else 1):
        for kind in THOROUGH if bench.thorough else KINDS:
            yield bench.nominal(f"{kind} {seed}" if seed else kind, seed, kind, GATE)


def sums_nothing(bench: Bench, gate: str) -> Found | None:
    """NOT_APPLICABLE for a reference without a sum of two terms or more, in which no two elements meet."""
    sample = bench.nominal()
    right = bench.expected(sample)
    if isinstance(right, str) or right.longest > 1 or _meet(bench, sample):
        return None
    return Found(bench.said(gate, Status.NOT_APPLICABLE, "the reference sums nothing"))


def _meet(bench: Bench, sample: Sample) -> bool:
    """Whether some output moves with either half of the elements (a recurrence in a loop is no sum by name)."""
    generator = torch.Generator().manual_seed(bench.seed)
    moved: list[list[Any]] = []
    base = bench.eager(sample)
    halves: list[Any] = [
        torch.rand(v.shape, generator=generator) < 0.5
        if isinstance(v, torch.Tensor) and v.is_floating_point()
        else None
        for v in sample.inputs
    ]
    for side in (False, True):
        inputs = tuple(
            v if half is None else torch.where(half ^ side, v * 1.5, v)
            for v, half in zip(sample.inputs, halves, strict=True)
        )
        after = bench.eager(replace(sample, inputs=inputs))
        if base is None or after is None or len(base) != len(after):
            return True
        moved.append([a != b for a, b in zip(base, after, strict=True)])
    return any(bool((a & b).any()) for a, b in zip(*moved, strict=True))
