"""CMP-02: a missing gradient, one upstream row for all, a saved tensor overwritten; and who is not judged."""

from __future__ import annotations

from pathlib import Path

import pytest
from judged import judged

from kcontract.model import Status

FIXTURES = Path(__file__).parent / "fixtures"
ASKED = {"gradients": True}


@pytest.mark.parametrize("name", ["Honest", "AllTorch"])
def test_right_gradients_pass(name: str) -> None:
    found = judged("cmp_02", FIXTURES / "gradients.py", name)
    assert found.verdict.status is Status.PASS, found.verdict.reason
    assert found.tried == 4


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NoWeightGradient", "the gradient of weight is None"),
        ("FirstUpstream", "the gradient of x["),
        ("OverwritesSaved", "in the second backward of one graph"),
        ("NoBackward", "NotImplementedError: no backward yet"),
    ],
)
def test_wrong_gradients_fail(name: str, said: str) -> None:
    found = judged("cmp_02", FIXTURES / "gradients.py", name)
    assert found.verdict.status is Status.FAIL
    assert said in found.verdict.reason
    assert found.witness is not None and found.witness.gate == "CMP-02"


def test_a_backward_that_drops_the_last_partial_block_fails_at_another_size() -> None:
    found = judged("cmp_02", FIXTURES / "partial_block.py", "ModelNew")
    assert found.verdict.status is Status.FAIL
    assert "the gradient of w[" in found.verdict.reason
    assert "on 'all sizes + 1' inputs" in found.verdict.reason
    repaired = judged("cmp_02", FIXTURES / "partial_block.py", "Repaired")
    assert repaired.verdict.status is Status.PASS, repaired.verdict.reason


@pytest.mark.parametrize("name", ["ForwardOnly", "Mixed", "Detached"])
def test_forward_only_kernels_are_not_judged_unless_gradients_are_asked_for(name: str) -> None:
    found = judged("cmp_02", FIXTURES / "gradients.py", name)
    assert found.verdict.status is Status.NOT_APPLICABLE
    assert "forward only" in found.verdict.reason
    asked = judged("cmp_02", FIXTURES / "gradients.py", name, origin=ASKED)
    assert asked.verdict.status is Status.FAIL
    assert "the gradient of x is None" in asked.verdict.reason


def test_a_contract_without_gradients_lets_a_backward_decline() -> None:
    found = judged("cmp_02", FIXTURES / "gradients.py", "NoBackward", origin={"gradients": False})
    assert found.verdict.status is Status.NOT_APPLICABLE
    assert "forward only" in found.verdict.reason


def test_a_reference_with_a_wrong_gradient_judges_nobody() -> None:
    found = judged("cmp_02", FIXTURES / "wrong_gradient.py")
    assert found.verdict.status is Status.NOT_APPLICABLE
    assert "finite steps" in found.verdict.reason


def test_gradients_are_right_in_simulated_machine_code() -> None:
    found = judged("cmp_02", FIXTURES / "gradients.py", "Honest", "sim:sm_90")
    assert found.verdict.status is Status.PASS, found.verdict.reason
