"""EXC-02: subnormal numbers."""

from __future__ import annotations

import pytest
from order_bench import answer

from kcontract.model import Contract, Subnormals

PRESERVE, FLUSH = Contract(subnormals=Subnormals.PRESERVE), Contract(subnormals=Subnormals.FLUSH)


def test_flushing_is_allowed_unless_the_contract_says_preserve() -> None:
    assert answer("EXC-02", "elementwise", "Flushes").startswith("PASS: flushes subnormal results")
    failed = answer("EXC-02", "elementwise", "Flushes", PRESERVE)
    assert failed.startswith("FAIL: flushes results, and the contract says preserve: output 0[")
    assert answer("EXC-02", "elementwise", "ModelNew", PRESERVE).startswith("PASS: keeps subnormals")


def test_an_input_read_as_zero_that_makes_infinity_fails_unless_declared() -> None:
    assert answer("EXC-02", "roots", "Fast").startswith("FAIL: reads a subnormal input as zero: output 0[0, 0] is inf")
    assert answer("EXC-02", "roots", "Fast", FLUSH).startswith("PASS: reads subnormal inputs as zero")
    assert answer("EXC-02", "roots").startswith("PASS: keeps subnormals")


@pytest.mark.parametrize("file", ["layernorm", "logsumexp"])
def test_what_is_absorbed_is_not_applicable(file: str) -> None:
    assert answer("EXC-02", file).startswith("NOT_APPLICABLE: absorbed")


def test_a_sum_in_16_bits_is_no_fault_of_subnormals() -> None:
    assert answer("EXC-02", "rowsum", "Half").startswith("UNDECIDED: outside the bound on ordinary inputs already")
    assert answer("EXC-02", "rowsum").startswith("PASS")
