"""MEM-01: accesses out of bounds."""

from __future__ import annotations

import pytest
from order_bench import answer, bench, found

from kcontract.dynamic.gates import mem_01
from kcontract.model import Status


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
