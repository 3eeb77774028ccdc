"""RES-01 without a GPU: whether the result's device is the input's; the rest is undecided, and said to be."""

from __future__ import annotations

from pathlib import Path

import pytest
from judged import judged

from kcontract.model import Status

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("Honest", "results of meta inputs on meta"),
        ("AsksItsParameter", "results of meta inputs on meta"),
        ("RefusesMeta", "refuses meta inputs (AssertionError)"),
    ],
)
def test_one_device_decides_nothing(name: str, seen: str) -> None:
    found = judged("res_01", FIXTURES / "devices.py", name)
    assert found.verdict.status is Status.UNDECIDED
    assert seen in found.verdict.reason


@pytest.mark.parametrize("engine", ["interpreter", "sim:sm_90"])
def test_a_result_on_the_current_device_fails(engine: str) -> None:
    found = judged("res_01", FIXTURES / "devices.py", "CurrentDevice", engine)
    assert found.verdict.status is Status.FAIL
    assert "output 0 is on cuda:0, the inputs are on meta" in found.verdict.reason
