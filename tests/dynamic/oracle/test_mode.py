"""What the dispatch mode tracks: views, in-place writes, broadcasts, casts, choices, poles, overflow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from kcontract.dynamic.oracle import Accumulation, compare, form_of, run
from kcontract.errors import InputError

U = 2.0**-24


def bound(fn: Callable[..., Any], *x: Any, **kw: Any) -> Any:
    return run(fn, list(x), **kw).outputs[0].bound


def test_moves_and_signs_are_exact() -> None:
    x = torch.randn(4, 6)
    told = run(lambda x: -x.t().reshape(3, 8).abs().flip(0)[:, ::2], [x])
    assert float(told.outputs[0].bound.max()) == 0.0
    assert torch.equal(told.outputs[0].value, -x.double().t().reshape(3, 8).abs().flip(0)[:, ::2])


def test_one_rounding_of_an_addition() -> None:
    x, y = torch.rand(100) + 1, torch.rand(100) + 1
    told = bound(torch.add, x, y)
    exact = x.double() + y.double()
    assert torch.allclose(told, 8 * U * exact, rtol=1e-6)


def test_in_place_writes_through_a_view_are_seen_by_its_base() -> None:
    def fn(x: Any) -> Any:
        out = torch.zeros_like(x)
        out[1].copy_(x[1] * x[1])
        out.view(-1)[0].add_(x[0, 0] + 1)
        return out

    told = bound(fn, torch.rand(3, 4) + 1)
    assert float(told[1].min()) > 0 and float(told[0, 0]) > 0
    assert float(told[2].max()) == 0.0 and float(told[0, 1:].max()) == 0.0


def test_a_later_write_forgets_the_earlier_error() -> None:
    def fn(x: Any) -> Any:
        y = x * x
        y.zero_()
        return y

    assert float(bound(fn, torch.rand(5)).max()) == 0.0


def test_a_broadcast_error_adds_up_linearly() -> None:
    def shifted(x: Any) -> Any:
        return (x - x.mean(-1, keepdim=True) * 1.0).sum(-1)

    x = torch.rand(1, 4096) + 1
    mean_error = float(bound(lambda x: x.mean(-1), x))
    assert float(bound(shifted, x)) > 4096 * mean_error


def test_half_casts_in_the_reference_cost_their_rounding() -> None:
    x = torch.rand(64) + 1
    plain, cast = bound(lambda x: x * 1.5, x), bound(lambda x: (x * 1.5).half().float(), x)
    assert float(cast.min()) > 2.0**-11 and float(plain.max()) < 2.0**-18


def test_a_comparison_within_the_error_makes_where_ambiguous() -> None:
    def fn(x: Any) -> Any:
        s = x.sum(-1)
        return torch.where(s > 0, s + 10, s - 10)

    x = torch.tensor([[1.0, 3e-9, -1.0], [1.0, 2.0, 3.0]])
    told = bound(fn, x)
    assert float(told[0]) > 20 and float(told[1]) < 1e-4


def test_poles_are_undetermined_and_far_from_them_is_not() -> None:
    def fn(x: Any) -> Any:
        return 1.0 / (x.sum(-1) - 3.0)

    told = run(fn, [torch.tensor([[1.0, 1.0, 1.0 + 2**-23], [1.0, 1.0, 4.0]])]).outputs[0]
    assert told.undetermined.tolist() == [True, False]


def test_intermediate_overflow_is_undetermined() -> None:
    told = run(lambda x: torch.log(torch.exp(x)), [torch.tensor([10.0, 200.0])]).outputs[0]
    assert told.undetermined.tolist() == [False, True]


def test_infinities_of_the_reference_stay_and_poison_nothing_else() -> None:
    x = torch.tensor([[0.0, float("-inf"), 1.0], [float("nan"), 0.0, 1.0]])
    told = run(lambda x: torch.softmax(x, -1), [x]).outputs[0]
    assert not bool(told.undetermined.any())
    assert float(told.value[0, 1]) == 0.0 and bool(torch.isnan(told.value[1]).all())
    assert float(told.bound[0].max()) < 1e-5


def test_the_undetermined_share_of_a_sum_spreads() -> None:
    told = run(lambda x: (1.0 / (x.sum(-1) - 3.0)).sum(), [torch.tensor([[1.0, 1.0, 1.0 + 2**-23], [1.0, 1.0, 4.0]])])
    assert bool(told.outputs[0].undetermined)


def test_an_argmax_remembers_what_else_would_be_right() -> None:
    told = run(lambda x: (x * x).argmax(-1), [torch.tensor([[1.0, 1.0, 0.5], [1.0, 2.0, 0.5]])]).outputs[0]
    assert told.undetermined.tolist() == [True, False]
    assert told.choice is not None and told.choice.dim == -1


def test_sums_are_exact_on_a_lattice_and_bounded_off_it() -> None:
    grid = torch.randint(0, 4, (2, 1024)).float() + 1000.0
    assert float(bound(lambda x: x.sum(-1), grid).max()) == 0.0
    assert float(bound(lambda x: x.sum(-1), torch.rand(2, 1024)).min()) > 0.0


def test_repeated_terms_get_the_worst_case() -> None:
    told = run(lambda x: x.sum(-1), [torch.full((1, 4096), 0.1)])
    worst = 4096 * U / (1 - 4096 * U)
    assert float(told.outputs[0].bound) == pytest.approx(worst * 409.6, rel=1e-4)
    assert "gamma_N·Σ|x|" in {s.formula for s in told.sources}


def test_sources_say_formula_length_and_roundoff() -> None:
    told = run(lambda a, b: a @ b, [torch.randn(4, 96), torch.randn(96, 4)])
    assert [(s.op, s.n, s.u) for s in told.sources] == [("matmul", 96, U)]
    assert told.longest == 96


def test_a_16_bit_model_is_far_wider() -> None:
    x = torch.randn(4, 512).half()
    wide = bound(lambda x: x.sum(-1), x, model=Accumulation.of(form_of("float16")))
    narrow = bound(lambda x: x.sum(-1), x)
    assert float((wide / narrow).min()) > 1000


def test_gradients_are_bounded_for_random_upstream() -> None:
    x, w = torch.randn(8, 64, requires_grad=True), torch.randn(64, requires_grad=True)
    told = run(lambda x, w: F.layer_norm(x, (64,), w), [x, w], grads=True, seed=3)
    assert set(told.grads) == {"input 0", "input 1"}
    g = torch.autograd.grad(F.layer_norm(x.double(), (64,), w.double()), [x, w], told.upstream[0].double())
    for found, wanted in zip(told.grads.values(), g, strict=True):
        assert torch.allclose(found.value, wanted.double(), rtol=1e-5, atol=1e-6)
        assert 0 < float(found.bound.median()) < 1e-3


def test_upstream_gradients_are_not_the_inputs_of_the_same_seed() -> None:
    x = torch.randn(64, 81, generator=torch.Generator().manual_seed(0)).requires_grad_()
    told = run(lambda x: F.layer_norm(x, (81,)), [x], grads=True)
    assert float((told.upstream[0] * x.detach()).mean().abs()) < 0.1 < float((x.detach() ** 2).mean())
    assert not compare(torch.zeros(64, 81), told.grads["input 0"]).ok
    again = run(lambda x: F.layer_norm(x, (81,)), [x], grads=True)
    assert torch.equal(told.upstream[0], again.upstream[0])


def test_a_module_keeps_its_parameters_and_dtype() -> None:
    module = torch.nn.Linear(8, 4).bfloat16()
    before = [p.clone() for p in module.parameters()]
    told = run(module, [torch.randn(2, 8).bfloat16()], grads=True)
    assert told.outputs[0].dtype is torch.bfloat16 and set(told.grads) == {"weight", "bias"}
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    assert next(module.parameters()).dtype is torch.bfloat16


def test_the_reference_cannot_change_the_callers_inputs() -> None:
    x = torch.ones(4, dtype=torch.float64)
    run(lambda x: x.zero_(), [x])
    assert float(x.sum()) == 4.0


def test_settings_are_restored() -> None:
    run(torch.relu, [torch.ones(1)])
    assert torch.get_default_dtype() is torch.float32


def test_an_operation_without_any_rule_is_estimated_and_says_so() -> None:
    told = run(lambda x: torch.linalg.solve(x, x[:, :1]), [torch.eye(4) * 2 + torch.rand(4, 4) / 8])
    assert told.estimated and float(told.outputs[0].bound.max()) > 0


def test_bits_and_complex_numbers_are_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match="reinterprets"):
        run(lambda x: x.view(torch.int32), [torch.ones(4)])
    with pytest.raises(InputError, match="complex"):
        run(lambda x: torch.fft.fft(x).real, [torch.ones(4)])
    with pytest.raises(InputError, match="gradients are asked for"):
        run(torch.relu, [torch.ones(4)], grads=True)


@pytest.mark.parametrize(
    "nothing",
    [lambda x: None, lambda x: (), lambda x: x.numpy()],
    ids=["None", "()", "numpy"],
)
def test_a_reference_must_return_a_tensor(nothing: Any) -> None:
    with pytest.raises(InputError, match="returns no tensor"):
        run(nothing, [torch.ones(4)])


def test_wrong_arguments_and_failing_references_are_refused_in_a_sentence() -> None:
    x = torch.ones(4, requires_grad=True)
    for inputs in (x, {"x": x}, None):
        with pytest.raises(InputError, match="give a list"):
            run(torch.relu, inputs)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="empty list of upstream"):
        run(torch.relu, [x], grads=[])
    with pytest.raises(InputError, match="2 upstream gradients are given for 1"):
        run(torch.relu, [x], grads=[torch.ones(4)] * 2)
    assert set(run(torch.relu, [x], grads=[torch.ones(4)]).grads) == {"input 0"}
    with pytest.raises(InputError, match="the reference cannot be followed in float64: ZeroDivisionError"):
        run(lambda x: x * (1 // 0), [x])


def test_whole_numbers_are_exact_in_products_powers_and_windows() -> None:
    a = torch.arange(9).reshape(3, 3)
    for fn in (lambda a: a @ a, lambda a: a**2, lambda a: F.conv2d(a[None, None], a[None, None]), lambda a: a.prod()):
        told = run(fn, [a]).outputs[0]
        assert float(told.bound.max()) == 0.0 and compare(fn(a), told).ok
        assert not compare(fn(a) + 1, told).ok


@pytest.mark.parametrize("p", [0, 1.5, 3, 4])
def test_norms_of_other_powers(p: float) -> None:
    x = torch.randn(5, 40, generator=torch.Generator().manual_seed(7)).requires_grad_(p > 0)
    told = run(lambda x: x.norm(p=p, dim=-1), [x], grads=p > 0)
    y = x.norm(p=p, dim=-1)
    assert compare(y.detach(), told.outputs[0]).ok and not compare(y.detach() * 1.001, told.outputs[0]).ok
    if p:
        (found,) = torch.autograd.grad(y, x, told.upstream[0])
        assert compare(found, told.grads["input 0"]).ok and not compare(found * 1.001, told.grads["input 0"]).ok


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.softmax(-1),
        lambda x: x.log_softmax(-1),
        lambda x: x.var(-1),
        lambda x: x.std(-1),
        lambda x: x.logsumexp(-1),
    ],
)
def test_empty_axes(fn: Any) -> None:
    told = run(fn, [torch.zeros(5, 0)]).outputs[0]
    assert compare(fn(torch.zeros(5, 0)), told).ok


def test_medians_and_single_values() -> None:
    x = torch.tensor([3.0, 1.0, 2.0, 9.0, 7.0])
    told = run(lambda x: x.median(), [x]).outputs[0]
    assert compare(torch.tensor(3.0), told).ok and not compare(torch.tensor(2.0), told).ok
    one = torch.tensor(2.0, requires_grad=True)
    assert bool(torch.isnan(run(lambda x: x.var(), [one], grads=True).outputs[0].value))


@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2"])
def test_the_logarithm_of_two_exponentials_near_zero(name: str) -> None:
    fn, log1p = getattr(torch, name), torch.log1p if name == "logaddexp" else lambda t: torch.log2(1 + t)
    power = torch.exp if name == "logaddexp" else torch.exp2
    a, b = torch.randn(2, 20000, generator=torch.Generator().manual_seed(0))
    told = run(fn, [a, b]).outputs[0]
    for found in (fn(a, b), torch.maximum(a, b) + log1p(power(-(a - b).abs()))):
        result = compare(found, told)
        assert result.ok and result.required < 4
    assert not compare(fn(a, b) + 2e-5, told).ok
    assert float((told.bound / (a.abs() + b.abs() + 1)).max()) < 2e-5


def test_sums_of_whole_numbers_without_an_error_are_exact() -> None:
    x = torch.tensor([-0.3, -1.3, 0.4])
    told = run(lambda x: (torch.floor(x) + 1 >= 0).to(x), [x]).outputs[0]
    assert told.undetermined.tolist() == [False] * 3 and told.value.tolist() == [1.0, 0.0, 1.0]
    near = torch.tensor([-1 / 1.1, -1.3, 0.4])
    assert run(lambda x: torch.floor(x * 1.1) + 1, [near]).outputs[0].undetermined.tolist() == [True, False, False]
    assert float(bound(lambda x: x + 1, x).min()) > 0.0 == float(bound(lambda x: x.floor() + 1, x).max())
    assert float(bound(lambda x: x + 0.7, torch.full((3,), 0.3)).min()) > 0.0


def test_a_doubtful_index_spoils_only_what_it_picks() -> None:
    x, at = torch.randn(4, 5), torch.tensor([1.0 / 1.1, 2.3, 0.2])
    told = run(lambda x, at: x[(at * 1.1).floor().long(), torch.tensor([0, 1, 2])], [x, at]).outputs[0]
    assert told.undetermined.tolist() == [True, False, False]
    assert not compare(torch.zeros(3), told).ok


@pytest.mark.parametrize("border", ["zeros", "border"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_samples_are_determined(mode: str, border: str) -> None:
    draw = torch.Generator().manual_seed(3)
    x, grid = torch.randn(2, 3, 9, 9, generator=draw), torch.rand(2, 7, 7, 2, generator=draw) * 2.4 - 1.2

    def sample(x: Any, grid: Any) -> Any:
        return F.grid_sample(x, grid, mode=mode, padding_mode=border, align_corners=False)

    told = run(sample, [x, grid]).outputs[0]
    assert not bool(told.undetermined.any())
    assert compare(sample(x, grid), told).ok and not compare(sample(x, grid + 1e-2), told).ok


@pytest.mark.parametrize("corners", [True, False])
def test_coordinates_of_an_interpolation_round(corners: bool) -> None:
    x = torch.randn(1, 3, 100, 100, generator=torch.Generator().manual_seed(3)).requires_grad_()

    def grow(x: Any, corners: bool = corners) -> Any:
        return F.interpolate(x, scale_factor=7.3, mode="bilinear", align_corners=corners)

    told = run(grow, [x], grads=True)
    y = grow(x)
    (found,) = torch.autograd.grad(y, x, told.upstream)
    for result in (compare(y.detach(), told.outputs[0]), compare(found, told.grads["input 0"])):
        assert result.ok and result.required < 4
    assert not compare(grow(x, not corners).detach(), told.outputs[0]).ok
    assert not compare(found * 1.01, told.grads["input 0"]).ok
