"""How kernels end: with ret, without it, or never."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from faulty_ptx import Seeded

from kcontract.dynamic.engines.base import Record
from kcontract.dynamic.engines.simulator.engine import SimulatorEngine
from kcontract.dynamic.engines.simulator.options import Options, from_text
from kcontract.errors import UsageError
from kcontract.ir.artifact import Artifact
from kcontract.ir.launch import Launch
from kcontract.ir.target import Target


def run(body: str, options: Options | None = None, ending: str = "ret;") -> tuple[Record, np.ndarray]:
    """128 threads run a body; also what it wrote."""
    text = Seeded("k", "", body).text(False).replace("\nret;\n", f"\n{ending}\n")
    out = np.zeros(1024, "u4")
    artifact = Artifact("k", Target.parse("sm_90"), ptx=text, metadata={"shared": 16384})
    record = SimulatorEngine("sm_90", options).run(
        artifact, Launch((2, 1, 1)), {"in": np.arange(1024, dtype="u4"), "out": out}
    )
    return record, out


@pytest.mark.parametrize("ending", ["ret;", "", "exit;", "bra.uni over;\nover:", "@%p1 ret;"])
def test_behind_the_last_instruction_a_kernel_ends(ending: str) -> None:
    """ptxas puts an EXIT there."""
    record, out = run("st.global.b32 [%d5], %r1;", ending=ending)
    assert record.diagnoses == () and (out[:128] == np.arange(128)).all()


def test_an_empty_kernel_ends() -> None:
    text = ".version 8.4\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 out)\n{\n}\n"
    artifact = Artifact("k", Target.parse("sm_90"), ptx=text)
    assert SimulatorEngine("sm_90").run(artifact, Launch((3, 1, 1)), {"out": np.zeros(4)}).diagnoses == ()


ENDLESS = {
    "nothing changes": "again: bra again;",
    "the same is computed": "again: add.s32 %r6, %r1, 1;\nsetp.ge.s32 %p4, %r6, 0;\n@%p4 bra again;",
    "the same is stored": "again: st.global.b32 [%d5], %r1;\nbra again;",
    "half of the threads leave": "setp.lt.u32 %p4, %r1, 64;\n@%p4 bra over;\nagain: bra again;\nover:",
    "over several blocks": "again: setp.eq.s32 %p4, %r2, 8;\n@%p4 bra then;\nmov.b32 %r6, 1;\nthen: bra.uni again;",
}


@pytest.mark.parametrize("body", ENDLESS.values(), ids=ENDLESS)
def test_a_loop_in_which_nothing_changes_is_named_at_once(body: str) -> None:
    start = time.process_time()
    (found,) = run(body)[0].diagnoses
    assert time.process_time() - start < 5
    assert found.kind == "endless-loop" and found.line > 0


COUNTING = "again: add.s32 %r6, %r6, 1;\nsetp.ne.s32 %p4, %r6, TURNS;\n@%p4 bra again;\nst.global.b32 [%d5], %r6;"


def test_a_loop_that_counts_on_is_given_up_and_the_sentence_says_how_to_go_on() -> None:
    (found,) = run(COUNTING.replace("TURNS", "-5"), Options(patience=0.2))[0].diagnoses
    assert found.kind == "endless-loop" and found.line > 0
    assert "without changing memory" in found.message
    assert "set TRITON_KCONTRACT_SIM=patience=0.8" in found.message
    storing = COUNTING.replace("setp", "st.global.b32 [%d5], %r6;\nsetp").replace("TURNS", "-5")
    (found,) = run(storing, Options(patience=0.02))[0].diagnoses
    assert found.kind == "endless-loop" and "without changing memory" not in found.message


def test_long_loops_that_end_are_left_alone() -> None:
    record, out = run(COUNTING.replace("TURNS", "20000"))
    assert record.diagnoses == () and (out[:128] == 20000).all()
    clocked = "mov.u64 %d6, %clock64;\nagain: mov.u64 %d7, %clock64;\nsub.s64 %d7, %d7, %d6;\n"
    record, _ = run(clocked + "setp.lt.s64 %p4, %d7, 1000000;\n@%p4 bra again;")
    assert record.diagnoses == ()


def test_who_waits_for_a_plain_store_of_other_threads_is_woken() -> None:
    waits = "setp.lt.u32 %p4, %r1, 64;\n@!%p4 bra opens;\nagain: ld.global.b32 %r6, [%d2+1024];\n"
    waits += "setp.eq.s32 %p5, %r6, 0;\n@%p5 bra again;\nbra over;\nopens: st.global.b32 [%d2+1024], 7;\nover:\n"
    record, out = run(waits + "st.global.b32 [%d5], 5;")
    assert record.diagnoses == () and (out[:128] == 5).all()


def test_the_variable_takes_words() -> None:
    assert from_text("") == from_text("fast") == Options()
    assert from_text(" checked, patience=2.5") == Options(checked=True, patience=2.5)
    for wrong in ("cheked", "patience", "patience=-1", "patience=inf", "checked patience=3", "patience=x"):
        with pytest.raises(UsageError, match="write fast, checked, patience=SECONDS"):
            from_text(wrong)
