"""CMP-03: right at other sizes and layouts than its own. "Refuses" and "wrong" are two answers, both a FAIL."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from kcontract.dynamic.gates.bench import Bench, Found, Trial, with_inputs
from kcontract.dynamic.gates.references import BUDGET
from kcontract.dynamic.inputs import Role, Sample, boundary_sizes, build, strided_views

GATE = "CMP-03"
#: Powers of two that are taken for tile sizes when a launch is given them.
_TILES = range(16, 2049)
#: Most tile sizes to straddle besides the usual 128.
_MOST_TILES = 2


def check(bench: Bench) -> Found:
    """Each size in turn at 0, 1, 3, 7, 127, 129, a tile ± 1 and its own + 1, all at 1 and at odd sizes; then each data
    argument transposed, sliced, strided, misaligned and expanded. What the reference cannot take is not judged; an
    inner size of 0 only where the result is empty, and not refused. An axis whose own size is 1 is tried at 0, 2 and
    3: with all axes like it, and where that fails, alone."""
    return bench.barred(GATE) or bench.verdict(GATE, (_trial(bench, s) for s in (*_sizes(bench), *_layouts(bench))))


def _trial(bench: Bench, sample: Sample) -> Trial:
    right = bench.expected(sample)
    if isinstance(right, str):
        return Trial(sample, right, judged=False)
    answer = bench.answer(sample)
    trial = bench.judge(sample, answer, right)
    if not trial.reason:
        return trial
    if "expanded" in sample.label and bench.writes(sample):
        return Trial(sample, "the reference writes to an argument in place, whose rows are one", judged=False)
    if _stands_alone(bench, sample):
        return Trial(sample, "it takes the other arguments to keep their size of 1", judged=False)
    refused = answer.failure is not None and answer.failure.kind == "raised" and answer.failure.exception != "Fault"
    inner = sample.label.endswith(" = 0") and sample.label != f"{next(iter(sample.dims))} = 0"
    if inner and (refused or (answer.failure is None and any(out.value.numel() for out in right.outputs))):
        return Trial(sample, f"{sample.label}: refused, or a sum of nothing that each defines for itself", judged=False)
    said = f"refuses {sample.label} ({trial.reason})" if refused else f"wrong at {sample.label}: {trial.reason}"
    return replace(trial, reason=said)


def _stands_alone(bench: Bench, sample: Sample) -> bool:
    """Whether the candidate is right where an axis of size 1 moves in the first argument alone that has it: that the
    others move with it is one reading of the problem's inputs, that they are spread over it is the other."""
    moved = {name for name, size in sample.dims.items() if bench.native.get(name) == 1 and size != 1}
    seen: set[str] = set()
    arguments = []
    for a in bench.spec.arguments:
        arguments.append(replace(a, shape=tuple(1 if d in moved & seen else d for d in a.shape)))
        seen.update(d for d in a.shape if isinstance(d, str))
    if not moved or tuple(arguments) == bench.spec.arguments:
        return False
    inputs = build(replace(bench.spec, arguments=tuple(arguments)).with_dims(sample.dims), bench.seed)
    trial = bench.attempt(replace(sample, inputs=inputs, label=f"{sample.label}, alone"))
    return trial.judged and not trial.reason


def _sizes(bench: Bench) -> Iterator[Sample]:
    for label, dims in _dims(bench):
        moved = bench.spec.with_dims(dims)
        if bench.elements(moved) <= 4 * BUDGET[bench.candidate.kind] and bench.admits(dims):
            yield Sample(GATE, label, bench.seed, build(moved, bench.seed), moved.dims)


def _dims(bench: Bench) -> Iterator[tuple[str, dict[str, int]]]:
    dims, tiles = bench.spec.dims, _tiles(bench)
    for name, nominal in dims.items():
        sizes = {0, 3, nominal + 1}
        for tile in (bench.spec.block, *tiles) if bench.native[name] != 1 else ():
            sizes |= set(boundary_sizes(nominal, tile, thorough=bench.thorough))
        for size in sorted(sizes - {nominal}, key=lambda size: (size == 0, size)):
            yield f"{name} = {size}", {**dims, name: size}
    if any(size != 1 for size in dims.values()):
        yield "all 1", dict.fromkeys(dims, 1)
    if len(dims) > 1:
        yield "all + 1", {name: size + 1 for name, size in dims.items()}
        yield "all odd", dict(zip(dims, itertools.cycle((3, 7, 5, 13)), strict=False))


def _tiles(bench: Bench) -> list[int]:
    """Powers of two that the candidate's launches are given, the largest first."""
    launches = bench.sight.launches if bench.sight is not None else ()
    given = {v for launch in launches for v in launch["numbers"].values() if type(v) is int}
    tiles = [v for v in given if v in _TILES and v & (v - 1) == 0 and v != bench.spec.block]
    return sorted(tiles, reverse=True)[:_MOST_TILES]


def _layouts(bench: Bench) -> Iterator[Sample]:
    base = bench.nominal(gate=GATE)
    for at, a in enumerate(bench.spec.arguments):
        if a.role is Role.DATA:
            for label, view in strided_views(base.inputs[at].detach()):
                yield with_inputs(base, at, view, f"{a.name} {label}")
