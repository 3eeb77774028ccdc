"""What was passed on unvaried once: numbers, layouts of upstream gradients, two sizes at once, axes of size 1."""

from __future__ import annotations

from pathlib import Path

import pytest
from judged import status

from kcontract.dynamic.gates import cmp_01
from kcontract.dynamic.gates.bench import Bench
from kcontract.dynamic.problems.load import load
from kcontract.dynamic.sandbox.candidate import Candidate

USE = Path(__file__).parent / "fixtures" / "use"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("honest", "PASS: right on 20 inputs"),
        ("fixed_scale", "FAIL: output 0"),
        ("fixed_eps", "FAIL: output 0"),
        ("promised_eps", "PASS: right on 19 inputs"),
        ("always_shifted", "FAIL: output 0"),
        ("refuses", "PASS: right on 19 inputs; 1 not judged (shifted = False is refused or random: AssertionError"),
    ],
)
def test_numbers_are_varied_alone(name: str, said: str) -> None:
    (problem,) = load(str(USE / "numbers_given.py"), None, name)
    with Candidate(problem.candidate, "interpreter") as candidate:
        bench = Bench(problem, candidate, "interpreter")
        bench.settle()
        verdict = cmp_01.check(bench).verdict
    assert f"{verdict.status}: {verdict.reason}".startswith(said)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ModelNew", "PASS: right on 4 inputs"),
        ("Forgets", "FAIL: with strided upstream gradients, the gradient of x["),
        ("ForgetsExpanded", "FAIL: with expanded upstream gradients, the gradient of x["),
    ],
)
def test_upstream_gradients_come_in_other_layouts(name: str, said: str) -> None:
    assert status("cmp_02", USE / "upstream.py", name).startswith(said)


@pytest.mark.parametrize(
    ("gate", "name", "said"),
    [
        ("cmp_03", "TwoAtOnce", "FAIL: wrong at all + 1: output 0["),
        ("cmp_03", "InnerZeroIsWrong", "FAIL: wrong at width = 0: output 0 has shape (4, 1), wanted (4, 0)"),
        ("cmp_03", "InnerZeroIsRefused", "PASS: right on 25 inputs; 1 not judged (width = 0: refused"),
        ("cmp_03", "ModelNew", "PASS: right on 26 inputs"),
        ("cmp_03", "HalfOnly", "PASS"),
        ("prc_01", "HalfOnly", "FAIL: wrong in float16: output 0["),
        ("prc_01", "ModelNew", "PASS"),
        ("prc_01", "TwoAtOnce", "PASS"),
    ],
)
def test_faults_of_several_odd_sizes_and_of_one_dtype_at_odd_sizes(gate: str, name: str, said: str) -> None:
    assert status(gate, USE / "uneven.py", name).startswith(said)


def test_a_nan_in_the_last_place_of_odd_sizes() -> None:
    engine = "sim:sm_90"
    assert "drops NaN at output 0[4, 16]" in status("exc_01", USE / "uneven.py", "DropsLastNan", engine)
    assert status("exc_01", USE / "uneven.py", "TwoAtOnce", engine).startswith("PASS")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ModelNew", "PASS"),
        ("LikeShapes", "PASS"),
        ("OneRow", "FAIL: wrong at batch = 2: output 0[1, "),
    ],
)
def test_an_axis_of_size_1_moves_in_either_reading(name: str, said: str) -> None:
    assert status("cmp_03", USE / "single.py", name).startswith(said)
