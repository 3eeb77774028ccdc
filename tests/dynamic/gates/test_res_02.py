"""RES-02 by running: a launch that the device's figures refuse."""

from __future__ import annotations

from pathlib import Path

from judged import bench_of

from kcontract.dynamic.gates import cmp_01, cmp_03, res_02
from kcontract.model import Status

FIXTURES = Path(__file__).parent / "fixtures"


def test_a_refused_launch_fails_this_gate_only() -> None:
    with bench_of(FIXTURES / "resources.py", "TooLarge", "sim:sm_90") as bench:
        assert cmp_01.check(bench).verdict.status is Status.UNDECIDED
        assert cmp_03.check(bench).verdict.status is Status.UNDECIDED
        found = res_02.check(bench)
    assert found.verdict.status is Status.FAIL
    assert "OutOfResources" in found.verdict.reason and "shared memory" in found.verdict.reason


def test_an_engine_that_loads_nothing_decides_nothing() -> None:
    with bench_of(FIXTURES / "resources.py", "Small", "sim:sm_90") as bench:
        assert cmp_01.check(bench).verdict.status is Status.PASS
        assert res_02.check(bench).verdict.status is Status.UNDECIDED
