"""ORD-01: rounding of reductions."""

from __future__ import annotations

import pytest
from order_bench import answer, bench, found

from kcontract.model import Status


def test_a_one_pass_variance_fails_and_its_order_is_no_fault() -> None:
    failed = found("ORD-01", "layernorm", "OnePass")
    assert failed.verdict.status is Status.FAIL and "'large_mean' inputs" in failed.verdict.reason
    assert failed.witness is not None and failed.witness.problem["label"] == "large_mean"
    assert found("ORD-03", "layernorm", "OnePass").verdict.status is Status.PASS


@pytest.mark.parametrize("file", ["layernorm", "softmax", "rowsum"])
def test_honest_sums_pass(file: str) -> None:
    assert answer("ORD-01", file) == "PASS: right on 7 inputs"


def test_a_reference_that_sums_nothing_has_no_rounding_of_sums() -> None:
    assert answer("ORD-01", "elementwise") == "NOT_APPLICABLE: the reference sums nothing"


def test_tf32_factors_loosen_the_bound_of_float32_products_only() -> None:
    assert answer("ORD-01", "product32") == "PASS: right on 7 inputs"
    made = bench("product32")
    assert made.accumulators["float32"] == ("tf32",)
    assert made.model("float32").provenance == "ir" and made.model("float32").u_factor == 2.0**-10
    made.learn("bfloat16")
    assert made.model("bfloat16").u_factor == 0.0


def test_a_16_bit_accumulator_does_not_loosen_the_bound() -> None:
    assert found("ORD-01", "rowsum", "Half").verdict.status is Status.FAIL
    assert bench("rowsum", "Half").model("bfloat16").u == 2.0**-24
