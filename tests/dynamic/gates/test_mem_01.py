"""MEM-01: accesses out of bounds."""

from __future__ import annotations

from pathlib import Path

import pytest
from order_bench import answer, bench, found

from kcontract.dynamic.engines.records import sentence
from kcontract.dynamic.gates import mem_01
from kcontract.dynamic.problems import kernelbench
from kcontract.dynamic.verify import verify
from kcontract.model import Status

CORPUS = Path(__file__).parents[2] / "corpus"


def test_a_load_past_the_end_fails_by_its_line_in_the_simulator() -> None:
    failed = found("MEM-01", "softmax", "ReadsPastTheEnd")
    assert failed.verdict.status is Status.FAIL
    assert failed.verdict.reason.startswith("out-of-bounds: load from") and "softmax.py:" in failed.verdict.reason


def test_what_lies_past_the_end_and_reaches_a_result_fails_on_any_engine() -> None:
    failed = answer("MEM-01", "softmax", "ReadsPastTheEnd", engine="interpreter")
    assert failed.startswith("FAIL: what lies past the end of an argument reaches output 0[")


def test_a_load_past_the_end_is_no_fault_of_other_gates() -> None:
    for gate in ("ORD-01", "ORD-02", "EXC-01"):
        assert answer(gate, "softmax", "ReadsPastTheEnd").startswith("PASS")


def test_a_store_past_the_end_of_an_argument_fails() -> None:
    made = bench("softmax", "WritesPastTheEnd")
    reason = mem_01.check(made).verdict.reason
    assert reason.startswith(("out-of-bounds: store to", "it writes past the end of the argument 'x'"))
    failed = answer("MEM-01", "softmax", "WritesPastTheEnd", engine="interpreter")
    assert failed.startswith("FAIL: it writes past the end of the argument 'x'")


@pytest.mark.parametrize("file", ["softmax", "layernorm", "product32", "rowsum"])
def test_masked_accesses_pass(file: str) -> None:
    assert answer("MEM-01", file).startswith("PASS: in bounds on ")


def test_a_store_past_the_end_of_its_own_result_fails() -> None:
    problem = kernelbench.load(str(CORPUS / "faulty" / "mem01_store_past_end.py"))
    (verdict,) = verify(problem, engine="interpreter", only=["MEM-01"]).report.verdicts
    assert verdict.status is Status.FAIL
    assert verdict.reason.startswith("it writes past the end of memory that it allocated, 56 elements of float32")


def test_the_message_of_a_lost_context_is_the_line_that_says_what_happened() -> None:
    told = (
        "CUDA error: an illegal memory access was encountered\nSearch for `cudaErrorIllegalAddress' in https://docs.nv"
        "\nCUDA kernel errors might be asynchronously reported at some other API call"
    )
    assert sentence(RuntimeError(told)) == "RuntimeError: CUDA error: an illegal memory access was encountered"
