"""ORD-03: adversarial orders."""

from __future__ import annotations

import pytest
from order_bench import answer, found

from kcontract.model import Status


@pytest.mark.parametrize("name", ["RoundedPartials", "RoundedAtomics"])
def test_partial_sums_rounded_to_the_output_type_fail(name: str) -> None:
    failed = found("ORD-03", "product", name)
    assert failed.verdict.status is Status.FAIL and failed.witness is not None


@pytest.mark.parametrize("name", ["ModelNew", "Float32Atomics"])
def test_float32_partial_sums_pass(name: str) -> None:
    assert answer("ORD-03", "product", name) == "PASS: right on 6 inputs"


def test_an_exponential_of_prefix_sums_that_bursts_fails() -> None:
    failed = answer("ORD-03", "decay", "Unclamped")
    assert failed.startswith("FAIL") and "is inf, where the reference is finite" in failed and "'decay " in failed
    assert answer("ORD-03", "decay") == "PASS: right on 9 inputs"


@pytest.mark.parametrize("file", ["softmax", "layernorm", "rowsum", "product32"])
def test_honest_sums_pass(file: str) -> None:
    assert answer("ORD-03", file) == "PASS: right on 6 inputs"
