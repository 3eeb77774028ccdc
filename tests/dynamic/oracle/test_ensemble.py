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
    assert found["ratio"] < 1000 and found["undetermined"] == 0


@pytest.mark.parametrize("family", DEEP)
def test_bfloat16_intermediates_are_caught_at_six_layers(family: str) -> None:
    assert bounds_depth.measure(family, 6, 4, False)["bf16 fails"]


@pytest.mark.parametrize("family", ["transformer encoder", "GRU"])
def test_attention_and_recurrences(family: str) -> None:
    found = bounds_depth.measure(family, 6 if family == "transformer encoder" else 48, 5, False)
    assert not found["alarm"] and found["ratio"] < 20_000 and found["undetermined"] == 0
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
    with Perturbed(oracle.Accumulation.of(oracle.form_of("bfloat16")), False, 5) as mode:
        y = x * x
    exact = x * x
    assert torch.equal(y, exact)
    gaps = [r - exact for r in mode.runs(y)]
    unit = 8 * 2.0**-8 * exact[10:]
    for one, other in (gaps[:2], gaps[2:]):
        assert torch.allclose(one, -other, rtol=1e-4, atol=0.0)
        assert float(one[:10].abs().max()) == 0.0
        assert 400 < int((one > 0).sum()) < 600
        size = (one[10:] / unit).abs()
        half = 3**0.5 / 2  # a sign that equal values share, and beside it half an even draw of mean square 1
        assert bool(((size - 1.0).abs() < half + 1e-3).all()) and float(size.std()) > 0.4
    assert float((gaps[0][10:] * gaps[2][10:] > 0).double().mean()) == pytest.approx(0.5, abs=0.1)


def test_runs_are_told_apart_through_views_writes_and_gradients() -> None:
    """Beside the float64 run, in float32: what the same steps give from each run's own tensors."""
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64).requires_grad_()
    with Perturbed(oracle.Accumulation.fp32(), False, 3) as mode:
        y = torch.exp(x)
        z = torch.zeros(8, 6, dtype=torch.float64)
        z[2:, :] = y.t()[2:]
        z.mul_(3.0)
        (g,) = torch.autograd.grad(z[3].sum(), x)
    assert torch.equal(z.detach()[2:], 3 * torch.exp(x.detach()).t()[2:])
    unit = 8 * 2.0**-24
    for k in range(4):
        grown, written, grad = (mode.runs(t.detach())[k] for t in (y, z, g))
        assert grown.dtype is torch.float32 and not written[:2].any()
        apart = (written.t()[:, 2:] / (3 * grown[:, 2:]) - 1).abs()
        assert 0 < float(apart.max()) < 2.1 * unit  # the product's own
        off = (grown / torch.exp(x.detach()) - 1).abs()
        assert unit < float(off.max()) < 40 * unit
        assert not grad[:, 0].any() and float((grad[:, 3] / (3 * grown[:, 3]) - 1).abs().max()) < 4 * unit


def _ten_layers(tail: Any) -> Any:
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(32, 32, generator=generator) / 5 for _ in range(10)]

    def reference(x: Any) -> Any:
        for w in weights:
            x = torch.nn.functional.layer_norm(x + torch.tanh(x @ w.to(x.dtype)), (32,))
        return tail(x)

    return reference


@pytest.mark.parametrize(
    "tail",
    [
        lambda h: (h, h.abs().sum().item()),
        lambda h: h / h.abs().max().item(),
        lambda h: h if h.abs().max().item() > 1 else h * 2,
        lambda h: h + h.abs().max().long().item(),
        lambda h: h.gather(1, torch.multinomial(torch.softmax(h, -1), 3)),
        lambda h: (torch.rand_like(h), h * torch.rand(8, 1, dtype=h.dtype))[1],
        lambda h: torch.where((h > 0).fill_(True), h, 0.0),
    ],
)
def test_what_is_read_drawn_or_overwritten_behind_many_layers(tail: Any) -> None:
    """A float read from the runs, one draw for all of them, and tensors written whole with what all runs share."""
    x = torch.randn(8, 32, generator=torch.Generator().manual_seed(0))
    told = oracle.run(_ten_layers(tail), [x])
    assert ensemble.FORMULA in [s.formula for s in told.sources]
    right = told.outputs[0]
    for wrong in (torch.zeros_like(right.value), right.value * 1.1):
        assert not oracle.compare(wrong.float(), right).ok
    assert oracle.compare(right.value.float(), right).ok


def test_indices_that_differed_and_were_overwritten_are_followed() -> None:
    x = torch.randn(8, 32, generator=torch.Generator().manual_seed(0))
    table = torch.arange(1.0, 3.0)
    told = oracle.run(_ten_layers(lambda h: h * table.to(h.dtype)[(h.abs() * 1e6).long().clamp_(max=0)]), [x])
    assert oracle.compare(told.outputs[0].value.float(), told.outputs[0]).ok


def test_a_returned_number_keeps_its_error() -> None:
    x = torch.randn(8, 32, generator=torch.Generator().manual_seed(0))
    reference = _ten_layers(lambda h: (h, h.sum().item(), 2 * h.abs().sum().item()))
    told = oracle.run(reference, [x])
    for found, right in zip(reference(x)[1:], told.outputs[1:], strict=True):
        assert float(right.bound) > 0 or bool(right.undetermined)
        assert oracle.compare(torch.tensor(found, dtype=right.dtype), right).ok


def test_a_whole_number_that_differs_between_runs_is_said() -> None:
    x = torch.randn(8, 32, generator=torch.Generator().manual_seed(0))
    with Perturbed(oracle.Accumulation.fp32(), False, 0) as mode:
        _ten_layers(lambda h: (h.abs().sum() * 1e6).long().item())(x.double())
    assert mode.lost


def test_equal_values_err_alike_and_others_do_not() -> None:
    same, other = torch.full((4096,), 1.1, dtype=torch.float64), torch.linspace(1, 2, 4096, dtype=torch.float64)
    unit = 8 * 2.0**-24
    with Perturbed(oracle.Accumulation.fp32(), False, 5) as mode:
        squares = [t * t for t in (same, other)]
    for t, s in zip((same, other), squares, strict=True):
        gap = abs(float((mode.runs(s)[0].double() - t * t).sum() / (t * t).sum()))
        assert gap > 0.9 * unit if t is same else gap < 0.2 * unit


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


@pytest.mark.parametrize("causal", [False, True])
def test_shares_formed_again_from_huge_logits_stay_inside(causal: bool) -> None:
    """A fused backward forms exp(x - lse) once more: with logits of millions, whose roundings are ones, a share of 1
    comes out as 20; one softmax, which the runs form too, never shows it."""
    import torch.nn.functional as F

    for seed in range(9031, 9231, 40):
        generator = torch.Generator().manual_seed(seed)
        q, k, v = (torch.randn(2, 2, 16, 32, generator=generator) + 1000.0 * (t < 2) for t in range(3))
        leaves = [t.requires_grad_() for t in (q, k, v)]
        told = oracle.run(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), leaves, grads=True)
        out = F.scaled_dot_product_attention(*leaves, is_causal=causal)
        for g, right in zip(torch.autograd.grad(out, leaves, told.upstream[0]), told.grads.values(), strict=True):
            assert oracle.compare(g, right).ok
        assert oracle.compare(out.detach(), told.outputs[0]).ok


def test_where_one_error_rules_a_whole_gradient_more_runs_are_made() -> None:
    """Twenty-four layers behind inputs whose mean is a hundred deviations: two pairs of runs needed λ = 9.4."""
    torch.manual_seed(20005)
    weights = [[torch.randn(48, 48) / 48**0.5, torch.randn(48) * 0.1, 1 + 0.1 * torch.randn(48)] for _ in range(24)]
    x = (torch.randn(8, 48) + 100).requires_grad_()
    for w in (t for layer in weights for t in layer):
        w.requires_grad_()

    def reference(x: Any, layers: Any) -> Any:
        for w, b, g in layers:
            x = torch.nn.functional.layer_norm(
                x + torch.nn.functional.gelu(torch.nn.functional.linear(x, w, b)), (48,), g
            )
        return x

    for seed in range(3):
        told = oracle.run(reference, [x, weights], grads=True, seed=seed)
        leaves = [x, *(t for layer in weights for t in layer)]
        found = torch.autograd.grad(reference(x, weights), leaves, told.upstream)
        assert max(oracle.compare(g, e).required for g, e in zip(found, told.grads.values(), strict=True)) < 5
