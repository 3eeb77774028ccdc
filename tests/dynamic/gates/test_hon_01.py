"""HON-01: every exploit is refused for what was seen, every honest look-alike passes.

The files are KernelBench files. ``WORD`` is what the refusal must say, empty for an honest one; ``ENGINES`` are those
that can show it (default: all).
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import torch

from kcontract.dynamic import oracle
from kcontract.dynamic.gates import hon_01
from kcontract.dynamic.gates.answers import count_kernels
from kcontract.dynamic.gates.bench import Bench, Found
from kcontract.dynamic.problems import kernelbench
from kcontract.dynamic.sandbox import flow
from kcontract.dynamic.sandbox.candidate import Answer, Candidate, Output
from kcontract.model import Status

EXPLOITS = sorted((Path(__file__).parents[2] / "corpus" / "exploits").glob("*.py"))
#: Run by default, one of each kind of evidence; the rest are slow together.
QUICK = {
    *("cached_by_address", "cached_weights", "call_counter", "constant_output", "copies_result_of_torch"),
    *(
        "deletes_parameters",
        "detached_gradient",
        "exits_at_once",
        "half_precision",
        "input_zeroed",
        "launched_on_dummy",
    ),
    *("overwritten_by_torch", "reads_checker", "sniffs_environment", "tf32_flag", "lazy_subclass"),
    *("honest_epilogue", "honest_ordinary_module", "honest_second_stage_in_torch", "honest_workspace"),
}


def constant(path: Path, name: str, default: Any) -> Any:
    """A constant of a file that is not imported here."""
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name:
            return ast.literal_eval(statement.value)
    return default


def engine(path: Path) -> str:
    return str(constant(path, "ENGINES", ("interpreter",))[0])


def verdict(path: Path, on: str) -> Found:
    problem = kernelbench.load(str(path))
    with Candidate(problem.candidate, on, init=problem.init) as candidate:
        bench = Bench(problem, candidate, on)
        bench.settle()
        return hon_01.check(bench)


def judge(path: Path, on: str) -> None:
    found, word = verdict(path, on), constant(path, "WORD", None)
    if word:
        assert found.verdict.status is Status.FAIL, found.verdict
        assert any(w in found.verdict.reason for w in word.split("|"))
        assert found.witness is not None and found.witness.gate == "HON-01"
    else:
        assert word == "" and found.verdict.status is Status.PASS, found.verdict


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(p, id=p.stem, marks=() if p.stem in QUICK else pytest.mark.slow)
        for p in EXPLOITS
        if engine(p) != "gpu"
    ],
)
def test_exploits_are_refused_and_look_alikes_pass(path: Path) -> None:
    judge(path, engine(path))


@pytest.mark.gpu
@pytest.mark.parametrize("path", [pytest.param(p, id=p.stem) for p in EXPLOITS])
def test_exploits_are_refused_and_look_alikes_pass_on_a_gpu(path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    judge(path, "gpu")


def test_the_corpus_is_as_large_as_the_list_of_exploits() -> None:
    words = [constant(p, "WORD", None) for p in EXPLOITS]
    assert sum(bool(w) for w in words) >= 22 and words.count("") >= 8 and None not in words


LAUNCH = {"kernel": "k", "after": 1, "pointers": {"x": 10, "out": 20}, "main_thread": True, "stream": 0}


@pytest.mark.parametrize(
    ("operations", "work"),
    [
        ([("aten::exp", (10,), (30,)), ("aten::sum", (30,), (40,))], {"aten::exp": 6, "aten::sum": 6}),  # of the input
        ([("aten::empty", (), (20,)), ("aten::sum", (20,), (40,))], {}),  # of what the kernel wrote
        ([("aten::empty", (), (20,)), ("aten::add_", (20, 10), (20,))], {}),  # in place, counts as the kernel's
        ([("aten::empty", (), (20,)), ("aten::empty", (), (20,)), ("aten::exp", (20,), (40,))], {"aten::exp": 6}),
    ],
)
def test_flow_tells_torch_from_kernels(operations: list[Any], work: dict[str, int]) -> None:
    answer = Answer(operations=tuple(operations), sizes=(6,) * len(operations), launches=(LAUNCH,), inputs={0: 10})
    done = [flow.work(answer, events) for events in flow.untouched(answer)]
    assert max((dict(d) for d in done), key=len, default={}) == work


def test_moving_memory_is_no_kernel_that_rounds() -> None:
    moved = [("aten::cat", (10,), (20,)), ("aten::constant_pad_nd", (20,), (30,)), ("aten::_to_copy", (30,), (40,))]
    answer = Answer(operations=(*moved, ("aten::exp", (40,), (50,))), sizes=(6,) * 4, launches=(LAUNCH,))
    assert count_kernels(answer) == 2 and flow.computing(answer) == ["aten::exp"]


def output(value: torch.Tensor) -> Output:
    return Output(value, "float32", tuple(value.shape), "cpu", "Tensor", True, 1, None, False, False)


def expected(value: float) -> oracle.Expected:
    return oracle.run(lambda x: x * 1.0, [torch.full((4,), value)])


@pytest.mark.parametrize(
    ("candidate", "right", "stays"),
    [
        ((1.0, 1.0), (1.0, 2.0), True),
        ((1.0, 1.0001), (1.0, 2.0), False),  # it moves, however little: CMP-01 judges values
        ((1.0, 1.0), (1.0, 1.01), False),  # what is right does not move clearly
    ],
)
def test_stale_is_what_keeps_every_bit_where_the_right_result_moves(
    candidate: tuple[float, float], right: tuple[float, float], stays: bool
) -> None:
    before, after = (Answer(outputs=(output(torch.full((4,), v)),)) for v in candidate)
    was, now = (expected(v) for v in right)
    assert (hon_01.unmoved(before, after, was, now) == 0) is stays
