"""PRC-02: 16-bit inputs, 32-bit sums."""

from __future__ import annotations

import pytest
from order_bench import answer, bench

from kcontract.dynamic.gates import prc_02
from kcontract.dynamic.oracle import Expected


def test_a_sum_kept_in_16_bits_misses_the_lattice() -> None:
    failed = answer("PRC-02", "rowsum", "Half")
    assert failed.startswith("FAIL") and "± 0, on 'float16 lattice 0' inputs" in failed


def test_partial_sums_in_16_bits_fail() -> None:
    assert answer("PRC-02", "product", "RoundedAtomics").startswith("FAIL")


@pytest.mark.parametrize("file", ["rowsum", "rowsum32", "product", "softmax", "layernorm"])
def test_float32_sums_pass(file: str) -> None:
    assert answer("PRC-02", file) == "PASS: right on 12 inputs"


@pytest.mark.parametrize(("file", "exact"), [("rowsum", True), ("product", True), ("softmax", False)])
def test_plain_sums_alone_are_judged_bit_for_bit(file: str, exact: bool) -> None:
    made = bench(file)
    sample = next(prc_02.draws(made, "float16"))
    right = made.expected(sample, dtype="float16")
    assert isinstance(right, Expected)
    assert bool((prc_02._exact(made, sample, right, "float16").outputs[0].bound == 0).all()) is exact


def test_a_reference_that_sums_nothing_or_a_candidate_without_16_bits_is_not_applicable() -> None:
    assert answer("PRC-02", "elementwise") == "NOT_APPLICABLE: the reference sums nothing"
    assert answer("PRC-02", "decay") == "NOT_APPLICABLE: it takes no 16-bit inputs"
