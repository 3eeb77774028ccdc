"""Terms that are nothing, terms that round one way, and the fault that only few terms show."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import bounds
import bounds_ops

from kcontract.dynamic import inputs, oracle
from kcontract.dynamic.oracle.mode import BoundMode
from kcontract.dynamic.oracle.tables import Err


def _bound(x: Any, **options: Any) -> float:
    return float(oracle.run(lambda t: t.sum(-1), [x], **options).outputs[0].bound.max())


def test_terms_below_a_roundoff_do_not_lengthen_a_sum() -> None:
    few = torch.zeros(1, 4096)
    few[0, :16] = torch.linspace(1.0, 1.7, 16)
    rest = few.clone()
    rest[0, 16:] = torch.linspace(1e-14, 2e-14, 4080)
    ordinary = few.clone()
    ordinary[0, 16:] = torch.linspace(1e-3, 2e-3, 4080)
    assert _bound(rest) < 2 * _bound(few) + 4080 * 2e-14
    assert _bound(ordinary) > 5 * _bound(rest)


def test_a_sequential_sum_of_a_million_nothings_stays_inside() -> None:
    x = torch.full((1, 2048), 3e-9)
    x[0, :4] = torch.tensor([0.9, 0.8, 0.7, 0.6])
    total = np.float32(0)
    for term in x[0].flip(0).numpy():  # the small ones first, where they do add up
        total = np.float32(total + term)
    told = oracle.run(lambda t: t.sum(-1), [x]).outputs[0]
    assert oracle.compare(torch.tensor([float(total)]), told).ok


def test_squares_of_sixteen_bit_values_may_round_mostly_one_way() -> None:
    x = inputs.draw("signs", (4, 4096), torch.bfloat16, 8011 * 31)
    told = oracle.run(lambda t: t.float().pow(2).sum(-1), [x], out_dtype=torch.float32).outputs[0]
    worst = 0.0
    for way in bounds_ops.honest(8011):
        found = way.sum(x.float().numpy() ** 2)[:, 0]
        result = oracle.compare(torch.from_numpy(np.ascontiguousarray(found)), told)
        assert result.ok
        worst = max(worst, result.required)
    assert worst < 4
    wide = oracle.run(lambda t: t.pow(2).sum(-1), [x.float() * 1.0001 + 0.00001]).outputs[0]
    assert float(told.bound.max()) > 1.2 * float(wide.bound.max()), "the drift is part of the bound"


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_an_exponential_off_by_two_to_the_minus_eleven_shows_in_a_long_divergence(seed: int) -> None:
    what = next(o for o in bounds_ops.ALL if o.name == "kl_div")
    tensors = bounds_ops.make(what, 4096, torch.float32, "peaked", seed)
    expected, _, _ = bounds.expect(what, tensors, seed)
    good = bounds_ops.run(what, bounds_ops.Arithmetic("pairwise"), tensors)
    bad = bounds_ops.run(what, bounds_ops.Arithmetic("sequential", "2^-11 exponential"), tensors)
    assert bounds.check(good, expected)[0].ok and not bounds.check(bad, expected)[0].ok


def test_two_honest_float64_results_differ_by_the_root_of_two() -> None:
    model = oracle.choose(None, "float64")
    assert model.reference_share == pytest.approx(2**0.5)
    assert oracle.Accumulation.of(oracle.form_of("float64"), worst=True).reference_share == 2.0
    assert oracle.Accumulation.fp32().reference_share == 1.0


@pytest.mark.parametrize("dtype", list(bounds.OTHER.values()))
def test_honest_float64_and_eight_bit_runs(dtype: Any) -> None:
    tally = bounds.Tally()
    bounds.honest_ops(tally, range(9000, 9001), (17, 64, 512), None, {"other": dtype})
    assert tally.runs > 700 and tally.alarms["oracle"] == 0, tally.worst
    assert max(tally.required) < 4


def test_a_running_mean_of_lattice_terms_rounds_at_each_step() -> None:
    what = next(o for o in bounds_ops.ALL if o.name == "layer_norm welford")
    tensors = bounds_ops.make(what, 64, torch.float8_e5m2, "cancelling", 14005)
    expected, _, _ = bounds.expect(what, tensors, 14005, torch.float32)
    for order in ("sequential", "permuted"):
        found = bounds_ops.run(what, bounds_ops.Arithmetic(order, seed=14005), tensors, out=torch.float32)
        result = bounds.check(found, expected)[0]
        assert result.ok and result.required < 4


def test_four_choices_of_any_sign_stay_inside_a_product_at_half_of_lambda() -> None:
    a, b = torch.zeros(1, 64, dtype=torch.float64), torch.ones(64, 1, dtype=torch.float64)
    a[0, :4] = 1.0  # four elements that rounding may make 0: in the sums of errors themselves the signs cancel
    b[1::2] = -1.0
    mode = BoundMode(oracle.Accumulation.fp32())
    mode.tables.put(a, Err(mode.jump(a.abs()), None, None))
    with mode:
        y = a @ b
    whole = mode.err(y).total()
    assert whole is not None and float(whole) * mode.lam / 2 >= 4.0


def _in_order(terms: Any) -> Any:
    total = torch.zeros_like(terms[..., 0])
    for k in range(terms.shape[-1]):
        total = total + terms[..., k]
    return total


def _smooth(n: int) -> Any:
    walk = torch.randn(16, n, generator=torch.Generator().manual_seed(n)).cumsum(-1)
    return walk - walk.mean(-1, keepdim=True)


@pytest.mark.parametrize("n", [512, 4096])
def test_a_product_of_smooth_rows_has_larger_partial_sums(n: int) -> None:
    x, w = _smooth(n), torch.full((n, 4), 1 / n)
    told = oracle.run(torch.matmul, [x, w]).outputs[0]
    found = _in_order(x.unsqueeze(1) * w.t())
    for result in (oracle.compare(found, told), oracle.compare(x @ w, told)):
        assert result.ok and result.required < 4
    half = _in_order((x.unsqueeze(1) * w.t()).bfloat16()).float()
    assert not oracle.compare(half, told).ok
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    mixed = oracle.run(torch.matmul, [x[:, order], w]).outputs[0]
    assert float(told.bound.median()) > 3 * float(mixed.bound.median()), "shuffled, the same terms have no trend"


def test_sums_over_two_periods_and_windows_of_a_smooth_image_stay_inside() -> None:
    noise = torch.Generator().manual_seed(1)
    x = torch.sin(torch.arange(20000) * (4 * torch.pi / 20000)) + 0.1 * torch.randn(8, 20000, generator=noise)
    result = oracle.compare(_in_order(x), oracle.run(lambda t: t.sum(-1), [x]).outputs[0])
    assert result.ok and result.required < 4
    wave = torch.sin(torch.linspace(0, 6 * torch.pi, 96))
    image, kernel = (wave[:, None] * wave.roll(9) + wave[:, None])[None, None], torch.full((1, 1, 64, 64), 1 / 4096)
    told = oracle.run(torch.nn.functional.conv2d, [image, kernel]).outputs[0]
    terms = torch.nn.functional.unfold(image, 64)[0].t() / 4096
    result = oracle.compare(_in_order(terms).reshape(1, 1, 33, 33), told)
    assert result.ok and result.required < 4
    assert not oracle.compare(torch.zeros(1, 1, 33, 33), told).ok


@pytest.mark.parametrize("count", [65_536, 800_000])
@pytest.mark.parametrize("power", [2, 4])
def test_long_loops_over_terms_of_the_size_of_an_ulp(count: int, power: int) -> None:
    """Added one by one, small terms round mostly one way (λ 13 without ``drift``); no bound of γ_N stands for that."""
    x = torch.randn(count, generator=torch.Generator().manual_seed(1)) ** power
    told = oracle.run(lambda x: x.sum(), [x]).outputs[0]
    for terms in (x, x.flip(0)):
        found = torch.tensor(np.cumsum(terms.numpy(), dtype=np.float32)[-1])
        right = oracle.compare(found, told)
        assert right.ok and right.required < 4
    assert not oracle.compare((x.double().sum() * 0.98).float(), told).ok
