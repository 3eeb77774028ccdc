"""Products of infinities are followed without a word from numpy."""

import warnings

import torch

from kcontract.dynamic import oracle


def test_a_product_of_infinities_warns_of_nothing():
    a = torch.randn(16, 16, dtype=torch.float16)
    a[0, 0], a[3, 3] = float("inf"), float("-inf")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        told = oracle.run(torch.matmul, [a, a], model=oracle.Accumulation.of(oracle.form_of("float16")))
    assert bool(torch.isnan(told.outputs[0].value).any())
