"""Bounds of deep references: flat in depth, inside for honest runs, outside for zeros, scales and narrow steps."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import bounds_depth

from kcontract.dynamic import oracle
from kcontract.dynamic.oracle import ensemble
from kcontract.dynamic.oracle.ensemble import Perturbed

DEEP = ("linear, layer norm", "linear, RMS norm", "linear, batch norm", "pre-norm blocks", "post-norm blocks")


@pytest.mark.parametrize("grads", [False, True])
@pytest.mark.parametrize("family", DEEP)
def test_twelve_layers_judge(family: str, grads: bool) -> None:
    found = bounds_depth.measure(family, 12, 3, grads)
    assert not found["alarm"] and found["required"] < 4
    assert found["zeros fail"] and found["1.1x fails"] and found["bf16 fails"]
    assert found["ratio"] < 500 and found["undetermined"] == 0


@pytest.mark.parametrize("family", DEEP)
def test_bfloat16_intermediates_are_caught_at_six_layers(family: str) -> None:
    assert bounds_depth.measure(family, 6, 4, False)["bf16 fails"]


@pytest.mark.parametrize("family", ["transformer encoder", "GRU"])
def test_attention_and_recurrences(family: str) -> None:
    found = bounds_depth.measure(family, 6 if family == "transformer encoder" else 48, 5, False)
    assert not found["alarm"] and found["ratio"] < 10_000 and found["undetermined"] == 0
    assert found["zeros fail"] and found["1.1x fails"] and found["bf16 fails"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_steps_stay_inside(dtype: Any) -> None:
    module, inputs = bounds_depth.make("post-norm blocks", 8, 6, dtype)
    kind = oracle.form_of(str(dtype)[6:])
    told = oracle.run(module, inputs, model=oracle.Accumulation.fp32().stepwise(kind))
    y = copy.deepcopy(module)(*inputs).detach()
    result = oracle.compare(y, told.outputs[0])
    assert result.ok and result.required < 4


def test_a_deep_reference_is_fit_and_says_how_it_was_bounded() -> None:
    module, inputs = bounds_depth.make("linear, layer norm", 8, 0)
    assert oracle.judge_reference(module, inputs) == ()
    told = oracle.run(module, inputs)
    assert ensemble.FORMULA in [s.formula for s in told.sources]
    again = oracle.run(module, inputs)
    assert torch.equal(told.outputs[0].bound, again.outputs[0].bound)
    shallow, inputs = bounds_depth.make("linear, layer norm", 1, 0)
    assert ensemble.FORMULA not in [s.formula for s in oracle.run(shallow, inputs).sources]


def test_a_pole_stays_undetermined() -> None:
    def reference(x: Any) -> Any:
        for _ in range(8):
            x = torch.nn.functional.layer_norm(x, (64,)) * 0.99
        return 1.0 / (x - x[..., :1])

    told = oracle.run(reference, [torch.randn(4, 64, generator=torch.Generator().manual_seed(0))]).outputs[0]
    assert told.undetermined[:, 0].all() and not told.undetermined[:, 1:].all()


def test_a_mirror_turns_every_sign_and_zeros_stay_zeros() -> None:
    x = torch.randn(1000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x[:10] = 0.0
    values = []
    for mirror in (False, True):
        with Perturbed(oracle.Accumulation.fp32(), False, 5, mirror):
            values.append(x * x)
    gaps = [v - x * x for v in values]
    assert torch.allclose(gaps[0], -gaps[1], rtol=1e-6, atol=0.0)
    assert float(gaps[0][:10].abs().max()) == 0.0
    size = (gaps[0] / (8 * 2.0**-24 * x * x))[10:].abs()
    half = 3**0.5 / 2  # a sign that equal values share, and beside it half an even draw of mean square 1
    assert bool(((size - 1.0).abs() < half + 1e-3).all()) and float(size.std()) > 0.4
    assert 400 < int((gaps[0] > 0).sum()) < 600


def test_equal_values_err_alike_and_others_do_not() -> None:
    same, other = torch.full((4096,), 1.1, dtype=torch.float64), torch.linspace(1, 2, 4096, dtype=torch.float64)
    unit = 8 * 2.0**-24
    with Perturbed(oracle.Accumulation.fp32(), False, 5, False):
        squares = [t * t for t in (same, other)]
    gaps = [float((s - t * t).sum() / (t * t).sum()) for s, t in zip(squares, (same, other), strict=True)]
    assert abs(gaps[0]) > 0.9 * unit and abs(gaps[1]) < 0.1 * unit


def test_a_choice_that_errors_decide_stays_undetermined() -> None:
    def reference(x: Any, table: Any) -> Any:
        for _ in range(8):
            x = torch.nn.functional.layer_norm(x, (64,)) + 1e-3
        return table[(x * 1e5).long() % 7] + x

    x, table = torch.randn(4, 64, generator=torch.Generator().manual_seed(0)), torch.randn(7)
    assert bool(oracle.run(reference, [x, table]).outputs[0].undetermined.all())


@pytest.mark.parametrize("size", [64.0, 512.0])
@pytest.mark.parametrize("seed", range(4))
def test_near_ties_of_large_logits_stay_inside(size: float, seed: int) -> None:
    """Two logits of 65536 that differ by less than a rounding: few of the sampled runs move them apart."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(1, 2, 8, 16, generator=generator) for _ in range(3))
    for x in (q, k, v):
        x[..., 0] = size
    mask = torch.ones(8, 8, dtype=torch.bool).tril()

    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = (q @ k.transpose(-1, -2)) * 0.25
        return torch.softmax(scores.masked_fill(~mask, float("-inf")), -1) @ v

    (right,) = oracle.run(attention, [q, k, v]).outputs
    assert oracle.compare(attention(q, k, v), right).ok
