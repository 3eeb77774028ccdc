"""PRC-02: 16-bit inputs keep a 32-bit sum.

Where the reference is a plain sum, mean or product of lattice values, every float32 sum is exact in any order, and any
other bit shows another accumulator: no tolerance takes part. Elsewhere, and on inputs that cancel, the bound of float32
sums decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from kcontract.dynamic import inputs as draws_of
from kcontract.dynamic.gates.bench import Bench, Found, Trial
from kcontract.dynamic.gates.exc_01 import undecided
from kcontract.dynamic.gates.ord_01 import sums_nothing
from kcontract.dynamic.inputs import Sample, build
from kcontract.dynamic.oracle import Expected, outputs_of
from kcontract.model import Status

GATE = "PRC-02"

DTYPES = ("float16", "bfloat16")
KINDS = ("uniform", "signs", "spike_first", "sparse", "cancelling")


def check(bench: Bench) -> Found:
    """Both 16-bit types, each where the candidate is roughly right in it (PRC-01 says where it is not)."""
    if bench.candidate.kind == "interpreter":
        return undecided(bench, GATE)
    none = bench.hopeless(GATE) or sums_nothing(bench, GATE)
    if none is not None:
        return none
    taken = [dtype for dtype in DTYPES if bench.near(_sample(bench, dtype, "normal"), dtype)]
    if not taken:
        return Found(bench.said(GATE, Status.NOT_APPLICABLE, "it takes no 16-bit inputs"))
    return bench.verdict(GATE, (trial for dtype in taken for trial in _trials(bench, dtype)))


def draws(bench: Bench, dtype: str) -> Iterator[Sample]:
    """The gate's inputs in one dtype: lattices, then kinds."""
    spec = bench.spec.with_dtype(dtype)
    make = draws_of.thorough if bench.thorough else draws_of.sample
    for sample in make(GATE, spec, bench.seed):
        if not sample.exact:
            break
        yield replace(sample, label=f"{dtype} {sample.label}")
    for kind in KINDS:
        yield _sample(bench, dtype, kind)


def _sample(bench: Bench, dtype: str, kind: str) -> Sample:
    made = build(bench.spec.with_dtype(dtype), bench.seed, kind)
    return Sample(GATE, f"{dtype} {kind}", bench.seed, made, bench.spec.dims)


def _trials(bench: Bench, dtype: str) -> Iterator[Trial]:
    for sample in draws(bench, dtype):
        right = bench.expected(sample, dtype=dtype)
        if isinstance(right, str):
            yield Trial(sample, right, judged=False)
            continue
        if sample.exact:
            right = _exact(bench, sample, right, dtype)
        yield bench.judge(sample, bench.answer(sample, dtype=dtype), right)


def _exact(bench: Bench, sample: Sample, right: Expected, dtype: str) -> Expected:
    """No bound at all, where float32 is exact whatever the order: on these values and, with it, on their sizes."""
    as_it_is = [v.float() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in sample.inputs]
    sizes = [v.abs() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in as_it_is]
    if not (_equal_in_float64(bench, as_it_is) and _equal_in_float64(bench, sizes)):
        return right
    if right.model.u_step:  # several kernels may store 16-bit values in between: so must the reference be able to
        own = bench.eager(sample, dtype)
        if own is None or not all(torch.equal(a, e.value.to(a.dtype)) for a, e in zip(own, right.outputs, strict=True)):
            return right
    exact = tuple(replace(e, bound=torch.zeros_like(e.value)) for e in right.outputs)
    return replace(right, outputs=exact)


def _equal_in_float64(bench: Bench, inputs: list[object]) -> bool:
    """Whether the reference gives in float32, to the last bit, what it gives in float64."""
    try:
        found = []
        for dtype in ("float32", "float64"):
            given = [
                v.to(bench.device, getattr(torch, dtype)) if isinstance(v, torch.Tensor) and v.is_floating_point()
                else v.to(bench.device) if isinstance(v, torch.Tensor) else v for v in inputs
            ]  # fmt: skip
            with torch.no_grad():
                found.append([o.double() for o in outputs_of(bench.reference(dtype)(*given))])
        return all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    except Exception:
        return False
