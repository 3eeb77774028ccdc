"""MEM-01: no access outside the buffers, as far as a run shows it.

Each input, and each tensor that it allocates, lies between two borders, of NaN in one run and of finite values in the
next: a border that is overwritten is a store out of bounds, a result that differs between the two runs a load out of
bounds that reaches it. A load that nothing depends on is no failure there. The simulator stops at any access outside a
buffer, and names the line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from kcontract.dynamic.gates.answers import out_of_bounds, unfit
from kcontract.dynamic.gates.bench import Bench, Found, Trial
from kcontract.dynamic.gates.references import BUDGET
from kcontract.dynamic.inputs import Sample, build
from kcontract.dynamic.sandbox.candidate import Answer
from kcontract.model import Status

GATE = "MEM-01"
#: Sizes at which a mask that is missing shows.
AWKWARD = (7, 129)


def check(bench: Bench) -> Found:
    """At the working sizes, and at sizes that are no multiple of any block."""
    trials = []
    for sample in draws(bench):
        trials.append(_judge(bench, sample))
        if trials[-1].judged and trials[-1].reason:
            break
    if trials and not any(t.judged for t in trials):
        return Found(bench.said(GATE, Status.UNDECIDED, f"nothing could be run: {trials[0].reason}"))
    return bench.verdict(GATE, trials, "in bounds")


def draws(bench: Bench) -> Iterator[Sample]:
    """The gate's inputs."""
    for label, dims in _sizes(bench):
        spec = bench.spec.with_dims(dims)
        if bench.elements(spec) <= 2 * BUDGET[bench.candidate.kind] and bench.admits(dims):
            yield Sample(GATE, label, bench.seed, build(spec, bench.seed), spec.dims)


def _sizes(bench: Bench) -> Iterator[tuple[str, Mapping[str, int]]]:
    yield "nominal", bench.spec.dims
    for name in bench.spec.dims:
        for size in AWKWARD:
            if size != bench.spec.dims[name]:
                yield f"{name} = {size}", {name: size}
    yield "all 1", dict.fromkeys(bench.spec.dims, 1)


def _judge(bench: Bench, sample: Sample) -> Trial:
    right = bench.expected(sample)
    if isinstance(right, str):
        return Trial(sample, right, judged=False)
    behind = {fill: bench.answer(sample, placement=f"guarded:{fill}", poison="finite") for fill in ("nan", "finite")}
    if bench.candidate.kind == "sim":  # without borders, so that it stops at the access
        plain = bench.candidate.call(sample.inputs, poison="finite")
        if out_of_bounds(plain):
            return Trial(sample, str(plain.failure).removeprefix("Fault: "))
    for answer in behind.values():
        if wild(answer):
            return Trial(sample, f"it touches memory that it does not own: {answer.failure}")
        if answer.borders:
            return Trial(sample, f"it writes past the end of the argument {_names(bench, answer)}")
        if answer.beyond:
            return Trial(sample, f"it writes past the end of memory that it allocated, {answer.beyond}")
    if unfit(behind["nan"]) or unfit(behind["finite"]):
        return Trial(sample, unfit(behind["nan"]) or unfit(behind["finite"]), judged=False)
    if same(behind["nan"], behind["finite"]):
        return Trial(sample)
    again = bench.answer(sample, placement="guarded:nan", poison="finite")
    if not same(behind["nan"], again):  # not deterministic: only the bound can tell the borders' part in it
        worst = bench.judge(sample, behind["nan"], right)
        if not worst.reason or bench.judge(sample, behind["finite"], right).reason:
            return Trial(sample)
    return Trial(sample, f"what lies past the end of an argument reaches {_where(behind['nan'], behind['finite'])}")


def wild(answer: Answer) -> bool:
    """Whether the call died of an access outside all memory."""
    told = str(answer.failure)
    return answer.failure is not None and ("illegal memory access" in told or "SIGSEGV" in told or "SIGBUS" in told)


def same(a: Answer, b: Answer) -> bool:
    """Whether two answers hold the same values; NaN equals NaN."""
    pairs = zip(a.values, b.values, strict=False)
    return len(a.values) == len(b.values) and all(
        x.shape == y.shape and x.dtype == y.dtype and bool(_alike(x, y).all()) for x, y in pairs
    )


def _alike(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x == y) | ((x != x) & (y != y))


def _where(a: Answer, b: Answer) -> str:
    for k, (x, y) in enumerate(zip(a.values, b.values, strict=False)):
        if x.shape != y.shape:
            return f"the shape of output {k}"
        differ = ~_alike(x, y)
        if bool(differ.any()):
            at = tuple(int(i) for i in differ.nonzero()[0])
            return f"output {k}{list(at)}: {float(x[at]):.6g} beside NaN, {float(y[at]):.6g} beside -2.5"
    return "the number of outputs"


def _names(bench: Bench, answer: Answer) -> str:
    return ", ".join(repr(bench.spec.arguments[k].name) for k in answer.borders)
