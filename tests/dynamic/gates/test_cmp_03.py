"""CMP-03: other sizes and layouts; "refuses" and "wrong" are told apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from judged import bench_of, judged

from kcontract.dynamic.gates import cmp_03
from kcontract.model import Contract, Status

FIXTURES = Path(__file__).parent / "fixtures"


def test_a_kernel_for_all_sizes_passes() -> None:
    with bench_of(FIXTURES / "shapes.py", "Honest") as bench:
        found = cmp_03.check(bench)
        labels = {what for what, _ in bench.log}
    assert found.verdict.status is Status.PASS, found.verdict.reason
    for label in ("batch = 0", "batch = 1", "width = 1", "width = 3", "width = 7", "width = 129", "all 1"):
        assert f"CMP-03 {label}" in labels
    for label in ("x transposed", "x sliced", "x every second", "x offset by one", "x expanded"):
        assert f"CMP-03 {label}" in labels


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("PaddingCounted", "wrong at width = 3: output 0["),
        ("NeedsFour", "refuses batch = 1 (ValueError: batch must be a multiple of 4, got 1"),
        ("IgnoresStrides", "wrong at x transposed: output 0["),
        ("OneShape", "refuses batch = 1 (AssertionError: only (4, 64), got (1, 64)"),
    ],
)
def test_faults_show(name: str, said: str) -> None:
    found = judged("cmp_03", FIXTURES / "shapes.py", name)
    assert found.verdict.status is Status.FAIL
    assert found.verdict.reason.startswith(said)
    assert found.witness is not None


def test_sizes_outside_the_contract_are_not_tried() -> None:
    contract = Contract(divisible={"batch": 4}, ranges={"batch": (4, 1024)})
    found = judged("cmp_03", FIXTURES / "shapes.py", "NeedsFour", contract=contract)
    assert found.verdict.status is Status.PASS, found.verdict.reason


def test_a_kernel_that_is_wrong_everywhere_is_left_to_the_gate_of_values() -> None:
    found = judged("cmp_03", FIXTURES / "shapes.py", "AlwaysWrong")
    assert found.verdict.status is Status.UNDECIDED
    assert "wrong on ordinary inputs already" in found.verdict.reason
