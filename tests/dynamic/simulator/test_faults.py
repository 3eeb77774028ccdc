"""Checked mode names each seeded fault, and stays silent on the same program without it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from faulty_ptx import CASES, Seeded, mma

from kcontract.dynamic.engines.base import Diagnosis, Record
from kcontract.dynamic.engines.simulator.engine import SimulatorEngine
from kcontract.dynamic.engines.simulator.options import Options
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
    assert found[0].line > 0


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_twin_is_silent(case: Seeded) -> None:
    assert run(case, faulty=False).diagnoses == ()
    assert run(case, faulty=False, checked=False).diagnoses == ()


def ptx(case: Seeded, found: Diagnosis) -> str:
    """The line that a diagnosis names."""
    return case.text(True).splitlines()[found.line - 1]


@pytest.mark.parametrize(
    ("name", "what", "at"),
    [
        (
            "bytes expected that never come",
            "threads 0 to 127 of CTA 0 wait for the phase of parity 0 of the mbarrier at shared address 0x0 of CTA 0, "
            "which lacks 0 arrivals and 16 bytes (PTX line ",
            "mbarrier.try_wait",
        ),
        ("arrivals expected that never come", "which lacks 1 arrivals and 0 bytes (PTX line ", "mbarrier.try_wait"),
        (
            "half of the threads skip a barrier",
            "threads 64 to 127 of CTA 0 wait at barrier 0, which 64 of 128 threads have reached (PTX line 23); "
            "threads 0 to 63 of CTA 0 wait at barrier 1, which 64 of 128 threads have reached (PTX line ",
            "bar.sync 0;",
        ),
    ],
)
def test_a_deadlock_says_who_waits_for_what_and_where(name: str, what: str, at: str) -> None:
    case = next(c for c in CASES if c.name == name)
    (found,) = run(case, faulty=True).diagnoses
    assert what in found.message
    assert at in ptx(case, found)


@pytest.mark.parametrize(
    ("lock", "what"),
    [
        ("ld.acquire.gpu.global.b32 %r6, [%d2];\nsetp.eq.s32 %p4, %r6, 0;", "another value in byte 0 of out"),
        ("atom.global.acq_rel.gpu.cas.b32 %r6, [%d2+8], 1, 0;\nsetp.eq.s32 %p4, %r6, 0;", "byte 8 of out"),
    ],
)
def test_a_lock_that_nobody_opens_is_named(lock: str, what: str) -> None:
    case = Seeded("lock", "deadlock", f"again:\n{lock}\n@%p4 bra again;")
    (found,) = run(case, faulty=True).diagnoses
    assert found.kind == "deadlock" and what in found.message
    assert ptx(case, found) in lock


def test_two_ctas_that_store_to_one_place_are_both_named() -> None:
    case = next(c for c in CASES if c.name == "two CTAs store to one place")
    (found,) = run(case, faulty=True).diagnoses
    assert found.message == (
        "CTA 0 and CTA 1 write different values to byte 0 of out without synchronisation between them"
    )
    case = next(c for c in CASES if c.name == "lanes store integers that differ in the last bit")
    (found,) = run(case, faulty=True).diagnoses
    assert found.message == "threads 2 and 3 of CTA 0 write different values to byte 8 of out with one store"


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


#: Tensor Memory that nobody has written is loaded, computed with, and carried through shared memory.
_DROPPED = """tcgen05.wait::ld.sync.aligned;
tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r30}, [%r16+16];
tcgen05.wait::ld.sync.aligned;
mul.f32 %r31, %r30, 0f40400000;
st.shared.b32 [%r11+8192], %r31;
bar.sync 0;
ld.shared.b32 %r32, [%r11+8192];
USE"""


@pytest.mark.parametrize(
    ("use", "kinds"),
    [
        ("setp.eq.f32 %p7, %r32, 0f3F800000;", []),
        ("@%p3 add.f32 %r17, %r32, %r17;", []),
        ("add.f32 %r17, %r32, %r17;", ["uninitialised-read"]),
        ("setp.eq.f32 %p7, %r32, 0f00000000;\n@%p7 mov.b32 %r17, 0;", ["uninitialised-read"]),
    ],
)
def test_unwritten_tensor_memory_may_be_loaded_if_its_value_is_dropped(use: str, kinds: list[str]) -> None:
    text = Seeded("", "", mma().replace("tcgen05.wait::ld.sync.aligned;", _DROPPED.replace("USE", use))).text(False)
    artifact = Artifact("k", Target.parse("sm_100"), ptx=text, metadata={"shared": 16384})
    out = np.zeros(1024, "f4")
    found = SimulatorEngine("sm_100", Options(checked=True)).run(
        artifact, Launch((1, 1, 1)), {"in": np.zeros(1024, "u4"), "out": out}
    )
    assert [d.kind for d in found.diagnoses] == kinds
    assert all("tcgen05.ld" in text.splitlines()[d.line - 1] for d in found.diagnoses)
    assert kinds or (out[:128] == 16.0).all(), "the run that counts is the first one"
