"""SYN-01: the simulator's diagnoses."""

from __future__ import annotations

from order_bench import answer


def test_a_copy_that_nobody_waits_for_fails() -> None:
    failed = answer("SYN-01", "staged", "NoWait")
    assert failed.startswith("FAIL: missing-wait: ") and "staged.py:" in failed
    assert answer("SYN-01", "staged") == "PASS: nothing to report on 1 inputs"


def test_programs_that_read_what_others_write_in_the_same_launch_fail() -> None:
    assert answer("SYN-01", "neighbours", "InOneLaunch").startswith("FAIL: race: CTA ")
    assert answer("SYN-01", "neighbours") == "PASS: nothing to report on 1 inputs"


def test_diagnoses_are_off_in_other_calls() -> None:
    assert answer("ORD-02", "staged", "NoWait") == "PASS: 6 runs give the same bytes"


def test_other_engines_decide_nothing() -> None:
    assert answer("SYN-01", "softmax", engine="interpreter").startswith("UNDECIDED: nothing that this engine shows")
