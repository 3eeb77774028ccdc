"""EXC-01: NaN and ±Inf."""

from __future__ import annotations

import pytest
from order_bench import answer, found

from kcontract.model import Contract, NanPolicy, Status


@pytest.mark.parametrize(("file", "where"), [("elementwise", "output 0["), ("rowmax", "output 0[")])
def test_a_maximum_that_drops_nan_fails_and_nothing_but_nan_is_lost(file: str, where: str) -> None:
    failed = found("EXC-01", file, "DropsNan")
    assert failed.verdict.status is Status.FAIL
    assert failed.verdict.reason.startswith(f"drops NaN at {where}") and failed.evidence["nan_only"] is True
    assert failed.witness is not None and failed.witness.wanted == "nan"


def test_a_tile_of_infinities_that_makes_nan_is_more_than_lost_nan() -> None:
    failed = found("EXC-01", "logsumexp", "Unguarded")
    assert failed.verdict.reason.startswith("gives NaN in place of +Inf at output 0[")
    assert failed.evidence["nan_only"] is False
    assert "x only a late element" in str(failed.evidence["failed"])


@pytest.mark.parametrize("file", ["elementwise", "rowmax", "logsumexp", "softmax", "layernorm", "rowsum"])
def test_twins_and_honest_kernels_pass(file: str) -> None:
    assert answer("EXC-01", file) == "PASS: right on 15 inputs"


def test_a_declared_policy_lets_nan_be_dropped() -> None:
    ignore = Contract(nan=NanPolicy.IGNORE)
    assert answer("EXC-01", "rowmax", "DropsNan", ignore) == "PASS: right on 15 inputs"


def test_values_that_are_wrong_everywhere_are_no_fault_of_masks() -> None:
    assert answer("EXC-01", "rowsum", "Half") == "PASS: right on 15 inputs"


def test_the_interpreter_does_not_decide() -> None:
    assert answer("EXC-01", "rowmax", "DropsNan", engine="interpreter").startswith("UNDECIDED")
