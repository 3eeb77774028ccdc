"""ORD-02: same bytes, shared buffers, memory that was never written."""

from __future__ import annotations

import pytest
from order_bench import answer, bench

from kcontract.model import Contract, Determinism


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("KeepsItsBuffer", "output 0 of a second call, on other data, is in the memory of the first result"),
        ("WritesIntoItsInput", "output 0 shares memory with the argument 'x'"),
        ("LeavesTheLastColumn", "output 0[0, 63] is nan, then -2.5"),
    ],
)
def test_faults_of_buffers(name: str, said: str) -> None:
    assert answer("ORD-02", "softmax", name).startswith(f"FAIL: {said}")


@pytest.mark.parametrize("name", ["ModelNew", "KeepsItsBufferButCopies"])
def test_fresh_and_copied_results_pass(name: str) -> None:
    assert answer("ORD-02", "softmax", name) == "PASS: 6 runs give the same bytes"


def test_a_sum_added_to_leftovers_fails_here_and_in_no_gate_of_values() -> None:
    assert answer("ORD-02", "rowsum", "AddsToLeftovers").endswith(
        "depends on memory that it never wrote, on 'normal' inputs (batch 4, width 256, bfloat16, seed 0)"
    )
    for gate in ("ORD-01", "EXC-01", "EXC-02", "PRC-02"):
        assert answer(gate, "rowsum", "AddsToLeftovers").startswith("PASS")


def test_orders_of_float_atomics_show_unless_the_contract_allows_them() -> None:
    bounded = Contract(determinism=Determinism.BOUNDED)
    assert "runs of the same inputs give other bytes" in answer("ORD-02", "product32", "Float32Atomics")
    allowed = answer("ORD-02", "product32", "Float32Atomics", bounded)
    assert allowed == "PASS: runs differ within the bound, as the contract allows"
    # it allows nothing else
    assert answer("ORD-02", "rowsum", "AddsToLeftovers", bounded).startswith("FAIL")
    assert answer("ORD-02", "softmax", "KeepsItsBuffer", bounded).startswith("FAIL")


def test_the_call_that_tunes_counts_as_a_run() -> None:
    assert "in run 2" in answer("ORD-02", "rowsum", "Tuned")
    assert answer("ORD-02", "rowsum", "TunedAndReset") == "PASS: 6 runs give the same bytes"


def test_the_interpreter_tells_of_sharing_and_of_nothing_else() -> None:
    assert answer("ORD-02", "softmax", "KeepsItsBuffer", engine="interpreter").startswith("FAIL")
    assert answer("ORD-02", "softmax", engine="interpreter").startswith("UNDECIDED: Triton's interpreter")
    assert bench("softmax", engine="interpreter").candidate.kind == "interpreter"
