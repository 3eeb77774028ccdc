"""Products of infinities are followed without a word from numpy."""

import warnings

import pytest
import torch

from kcontract.dynamic import oracle


def test_a_product_of_infinities_warns_of_nothing():
    a = torch.randn(16, 16, dtype=torch.float16)
    a[0, 0], a[3, 3] = float("inf"), float("-inf")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        told = oracle.run(torch.matmul, [a, a], model=oracle.Accumulation.of(oracle.form_of("float16")))
    assert bool(torch.isnan(told.outputs[0].value).any())


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), 1e-38])
@pytest.mark.parametrize("way", range(5))
def test_one_odd_value_leaves_the_bounds_of_other_rows(odd: float, way: int) -> None:
    """It makes a factor's products float64 ones, which are bounded as float32 ones are."""
    fp32 = oracle.Accumulation.fp32()
    ways = (fp32, oracle.Accumulation.tf32(), fp32.rounding_operands("bfloat16"), fp32.stepwise("float16"))
    model = (*ways, oracle.Accumulation.fp32(worst=True))[way]
    generator = torch.Generator().manual_seed(0)
    a, b, mask = (
        torch.randn(16, 128, generator=generator),
        torch.randn(128, 16, generator=generator),
        torch.zeros(16, 128),
    )
    mask[3, 5] = 1
    for reference in (torch.matmul, lambda x, y: (x * 1.1) @ (y * 1.1)):
        plain, changed = (
            oracle.run(reference, [x, b], model=model).outputs[0] for x in (a, torch.where(mask > 0, odd, a))
        )
        kept = [k for k in range(16) if k != 3]
        assert bool((changed.bound[kept] > 0.999 * plain.bound[kept]).all())
        assert reference is not torch.matmul or torch.allclose(plain.bound[kept], changed.bound[kept], rtol=1e-3)
