"""CFG-01: one wrong configuration among several, one wrong at odd sizes, tuning that leaves its traces."""

from __future__ import annotations

from pathlib import Path

import pytest
from judged import bench_of, judged

from kcontract.dynamic.gates import cfg_01, cmp_01
from kcontract.model import Status

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.mark.parametrize("name", ["Honest", "Restored", "MadeTuned"])
def test_right_configurations_pass(name: str) -> None:
    found = judged("cfg_01", FIXTURES / "configurations.py", name)
    assert found.verdict.status is Status.PASS, found.verdict.reason
    assert found.verdict.reason == "right in 2 configurations"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("OneWrong", "with body[BLOCK: 64, FAULT: 1"),
        ("FirstWrong", "in its first call, which tunes, output 0["),
        ("MadeTunedOneWrong", "with body[BLOCK: 64, FAULT: 1"),
        ("OddWrong", "'odd sizes' inputs"),
        ("Accumulating", "in its first call, which tunes, output 0["),
    ],
)
def test_a_wrong_configuration_fails_this_gate_and_not_that_of_values(name: str, said: str) -> None:
    with bench_of(FIXTURES / "configurations.py", name) as bench:
        found, values = cfg_01.check(bench), cmp_01.check(bench)
    assert found.verdict.status is Status.FAIL
    assert said in found.verdict.reason
    assert values.verdict.status is Status.PASS, values.verdict.reason


def test_without_an_autotuner_there_is_nothing_to_judge() -> None:
    assert judged("cfg_01", FIXTURES / "configurations.py", "Untuned").verdict.status is Status.NOT_APPLICABLE


def test_simulated_machine_code_is_tuned_too() -> None:
    assert judged("cfg_01", FIXTURES / "configurations.py", "Honest", "sim:sm_90").verdict.status is Status.PASS
    assert judged("cfg_01", FIXTURES / "configurations.py", "OneWrong", "sim:sm_90").verdict.status is Status.FAIL
