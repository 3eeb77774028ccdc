"""PRC-01: wrong, refused and not compiled are three answers; the type of a sum is PRC-02's business."""

from __future__ import annotations

from pathlib import Path

import pytest
from judged import judged

from kcontract.model import Status

FIXTURES = Path(__file__).parent / "fixtures"


def test_every_dtype_is_tried() -> None:
    found = judged("prc_01", FIXTURES / "dtypes.py", "Honest", "sim:sm_90")
    assert (found.verdict.status, found.tried) == (Status.PASS, 5), found.verdict.reason


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("AlwaysFloat32", "wrong in float16: output 0 has dtype torch.float32, wanted torch.float16"),
        ("Refuses", "refuses float16: TypeError: float32 only"),
        ("DoesNotCompile", "does not compile for float16: CompileTimeAssertionFailure: float32 only"),
        ("WrongInHalf", "wrong in float16: output 0["),
    ],
)
def test_three_answers(name: str, said: str) -> None:
    found = judged("prc_01", FIXTURES / "dtypes.py", name, "sim:sm_90")
    assert found.verdict.status is Status.FAIL
    assert said in found.verdict.reason
    assert found.witness is not None and found.witness.dtypes["x"] == "float16"


def test_a_sixteen_bit_sum_is_not_judged_here() -> None:
    found = judged("prc_01", FIXTURES / "dtypes.py", "SixteenBitSum", "sim:sm_90")
    assert found.verdict.status is Status.PASS
    assert "see PRC-02" in found.verdict.reason


def test_a_problem_may_name_its_dtypes() -> None:
    found = judged("prc_01", FIXTURES / "dtypes.py", "Refuses", origin={"dtypes": ["float32"]})
    assert (found.verdict.status, found.tried) == (Status.PASS, 1)


def test_the_interpreter_does_not_decide_bfloat16() -> None:
    found = judged("prc_01", FIXTURES / "dtypes.py", "Honest")
    assert (found.verdict.status, found.tried) == (Status.PASS, 3)
    assert "bfloat16 is not a GPU's" in found.verdict.reason
