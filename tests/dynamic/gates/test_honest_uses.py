"""Honest habits that were once refused, each beside the fault that looks like it."""

from __future__ import annotations

from pathlib import Path

import pytest
from judged import bench_of, judged, status

from kcontract.dynamic.gates import cmp_01, cmp_03, gates, hon_01
from kcontract.model import Status

USE = Path(__file__).parent / "fixtures" / "use"


@pytest.mark.parametrize("file", ["mask", "in_place", "parts", "dropout"])
def test_no_gate_fails(file: str) -> None:
    with bench_of(USE / f"{file}.py") as bench:
        said = {gate: check(bench).verdict for gate, check in gates().items()}
    assert not {gate: v.reason for gate, v in said.items() if v.status in (Status.FAIL, Status.ERROR)}
    for gate in ("REF-01", "CMP-01", "CMP-03", "MEM-01", "HON-01"):
        assert said[gate].status is Status.PASS, said[gate]


def test_a_mask_moves_with_its_input_and_takes_other_values() -> None:
    with bench_of(USE / "mask.py", "TakesItForCausal") as bench:
        found, sizes, honest = cmp_01.check(bench), cmp_03.check(bench), hon_01.check(bench)
    assert found.verdict.status is Status.FAIL and honest.verdict.status is Status.FAIL
    assert "does not move when only the input 'mask' changes" in honest.verdict.reason
    assert not sizes.verdict.reason.startswith("refuses")


def test_in_place_work_is_not_tried_on_rows_that_are_one() -> None:
    found = judged("cmp_03", USE / "in_place.py")
    assert "1 not judged (the reference writes to an argument in place" in found.verdict.reason
    assert status("cmp_03", USE / "in_place.py", "IgnoresStrides").startswith("FAIL: wrong at x ")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("WrongNumber", "output 4[] is "),
        ("NumberForNone", "part 5 of the result is a number, the reference gives None"),
        ("GivesText", "it returns a str, which is no tensor"),
    ],
)
def test_parts_that_are_no_tensors_are_compared(name: str, said: str) -> None:
    assert said in status("cmp_01", USE / "parts.py", name)


def test_a_reference_that_is_random_in_training_is_judged_in_eval_mode() -> None:
    with bench_of(USE / "dropout.py") as bench:
        verdict = gates()["REF-01"](bench).verdict
        assert verdict.status is Status.PASS and "judged in eval mode" in verdict.reason
        assert bench.notes == [bench.random] and not bench.defect
    assert "output 0" in status("cmp_01", USE / "dropout.py", "AlwaysDrops")


def test_a_function_that_is_random_can_judge_nothing(tmp_path: Path) -> None:
    path = tmp_path / "random.py"
    path.write_text(
        (USE / "dropout.py").read_text().replace("return self.drop(x", "return torch.nn.functional.dropout(x")
    )
    with bench_of(path) as bench:
        assert bench.defect == "the reference is random: its runs on the same inputs differ"


def test_two_results_may_lie_side_by_side_in_one_buffer() -> None:
    assert status("ord_02", USE / "views.py", engine="sim:sm_90") == "PASS: 6 runs give the same bytes"
    assert "two outputs share one memory" in status("ord_02", USE / "views.py", "OneForTwo")
