"""Findings and settled obligations fold into one verdict a gate; UNDECIDED is the default and never a pass."""

import pytest

from kcontract.model import GATES, Basis, Finding, Level, Place, Settled, Status, aggregate, gate


def finding(level, *, gate="PRC-02", waived=None, to_try="", message="found this, wanted that"):
    return Finding("some-rule", gate, level, message, Place(ir="ttgir"), to_try=to_try, waived=waived)


SUMS = Settled("PRC-02", "accumulators", "ttgir", "3 sums, all in float32")


def test_nothing_said_is_undecided():
    for name in GATES:
        verdict = aggregate(name, [], [])
        assert verdict.status is Status.UNDECIDED
        assert verdict.basis is Basis.NONE
        assert verdict.reason


def test_settled_gate_passes_with_its_reason_and_level():
    verdict = aggregate("PRC-02", [], [SUMS])
    assert (verdict.status, verdict.basis, verdict.level_of_ir) == (Status.PASS, Basis.PROVED, "ttgir")
    assert verdict.reason == "3 sums, all in float32"


def test_violation_fails_even_when_settled_or_in_error():
    for settled in ([], [SUMS]):
        assert aggregate("PRC-02", [finding(Level.VIOLATION)], settled, error="a rule broke").status is Status.FAIL


def test_error_is_not_a_failure_and_not_a_pass():
    assert aggregate("PRC-02", [], [SUMS], error="a rule broke").status is Status.ERROR
    assert aggregate("PRC-02", [finding(Level.HAZARD)], [SUMS], error="a rule broke").status is Status.ERROR


def test_open_hazard_leaves_it_undecided_and_says_what_to_try():
    verdict = aggregate("PRC-02", [finding(Level.HAZARD, to_try="run with K = 4096")], [SUMS])
    assert (verdict.status, verdict.reason) == (Status.UNDECIDED, "run with K = 4096")


def test_note_and_waived_finding_leave_a_pass():
    facts = [finding(Level.NOTE), finding(Level.VIOLATION, waived="eight terms")]
    assert aggregate("PRC-02", facts, [SUMS]).status is Status.PASS


def test_findings_of_other_gates_do_not_leak():
    assert aggregate("PRC-02", [finding(Level.VIOLATION, gate="RES-02")], [SUMS]).status is Status.PASS


def test_partly_settled_names_what_is_missing():
    facts = [Settled("RES-02", name, "metadata") for name in ("registers", "threads", "cluster", "register pool")]
    verdict = aggregate("RES-02", [], facts)
    assert (verdict.status, verdict.reason) == (Status.UNDECIDED, "not settled: shared memory, tensor memory")


def test_gate_that_needs_a_run_is_never_passed_statically():
    facts = [Settled("ORD-02", name, "ttgir") for name in ("atomics", "readback")]
    assert aggregate("ORD-02", [], facts).reason == "needs a run"


def test_not_applicable_only_when_no_part_applies():
    assert (
        aggregate("PRC-02", [], [Settled("PRC-02", "accumulators", "ttgir", "no sums", False)]).status
        is Status.NOT_APPLICABLE
    )


def test_unknown_obligation_is_refused():
    with pytest.raises(ValueError, match="no static obligation"):
        Settled("PRC-02", "registers", "ttgir")


def test_gate_lookup():
    assert gate("prc-02").id == "PRC-02"
    with pytest.raises(KeyError, match="the gates are CMP-01"):
        gate("XYZ-01")
