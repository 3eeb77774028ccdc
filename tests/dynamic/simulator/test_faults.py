"""Checked mode names each seeded fault, and stays silent on the same program without it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from faulty_ptx import CASES, Seeded

from kcontract.dynamic.engines.base import Record
from kcontract.dynamic.engines.simulator.engine import SimulatorEngine
from kcontract.dynamic.engines.simulator.launch import Options
from kcontract.ir.artifact import Artifact
from kcontract.ir.launch import Launch
from kcontract.ir.target import Target


def run(case: Seeded, faulty: bool, checked: bool = True) -> Record:
    artifact = Artifact("k", Target.parse("sm_100"), ptx=case.text(faulty), metadata={"shared": 16384})
    buffers = {"in": np.arange(1024, dtype="u4"), "out": np.zeros(1024, "u4")}
    return SimulatorEngine("sm_100", Options(checked=checked)).run(artifact, Launch((case.ctas, 1, 1)), buffers)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_fault_is_named(case: Seeded) -> None:
    found = run(case, faulty=True).diagnoses
    assert [d.kind for d in found] == [case.kind]
    assert found[0].line > 0 or case.kind in ("deadlock", "tmem-leak")


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_twin_is_silent(case: Seeded) -> None:
    assert run(case, faulty=False).diagnoses == ()
    assert run(case, faulty=False, checked=False).diagnoses == ()


def test_a_deadlock_says_who_waits_for_what() -> None:
    case = next(c for c in CASES if c.name == "bytes expected that never come")
    message = run(case, faulty=True).diagnoses[0].message
    assert "threads 0 to 127" in message and "mbarrier.try_wait" in message


def test_the_product_is_right() -> None:
    case = next(c for c in CASES if c.name == "Tensor Memory leaked")
    artifact = Artifact("k", Target.parse("sm_100"), ptx=case.text(False), metadata={"shared": 16384})
    out = np.zeros(1024, "f4")
    for checked in (False, True):
        SimulatorEngine("sm_100", Options(checked=checked)).run(
            artifact, Launch((1, 1, 1)), {"in": np.zeros(1024, "u4"), "out": out}
        )
        assert (out[:128] == 16.0).all()


def test_a_missing_wait_for_registers_does_not_stop_the_run() -> None:
    case = next(c for c in CASES if c.name == "results of a load from Tensor Memory never waited for")
    late = case.text(True).replace("ret;", "ld.global.b32 %r19, [%d2+4096];\nret;")
    for text, kinds in ((case.text(True), ["missing-wait"]), (late, ["missing-wait", "out-of-bounds"])):
        artifact = Artifact("k", Target.parse("sm_100"), ptx=text, metadata={"shared": 16384})
        out = np.zeros(1024, "f4")
        record = SimulatorEngine("sm_100", Options(checked=True)).run(
            artifact, Launch((1, 1, 1)), {"in": np.zeros(1024, "u4"), "out": out}
        )
        assert [d.kind for d in record.diagnoses] == kinds
        assert (out[:128] == 16.0).all()
