"""Comparison: masks exact, finite elements by the bound, indices by choice, policies, subnormals."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from kcontract.dynamic.oracle import Accumulation, Policy, SubnormalAnswer, compare, compare_all, judge_subnormals, run
from kcontract.errors import InputError
from kcontract.model import NanPolicy, Subnormals


def expected(fn: Any, *x: Any, **kw: Any) -> Any:
    return run(fn, list(x), **kw).outputs[0]


def test_an_honest_result_passes_and_the_worst_element_is_named() -> None:
    x = torch.randn(4, 300)
    e = expected(lambda x: x.sum(-1), x)
    assert compare(x.sum(-1), e).ok
    wrong = x.sum(-1)
    wrong[2] += 1e-2
    got = compare(wrong, e)
    assert (got.ok, got.reason, got.index) == (False, "value", (2,))
    assert got.found == pytest.approx(float(wrong[2])) and got.ratio > 10 and isinstance(got.allowed, float)


def test_shape_and_dtype_are_their_own_reasons() -> None:
    e = expected(torch.relu, torch.ones(4))
    assert compare(torch.ones(3), e).reason == "shape"
    assert compare(torch.ones(4).half(), e).reason == "dtype"
    told = run(torch.relu, [torch.ones(4)])
    assert [c.reason for c in compare_all([], told)] == ["shape"]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 0.0])
def test_masks_are_compared_one_by_one(bad: float) -> None:
    x = torch.tensor([1.0, math.nan, math.inf, -math.inf])
    e = expected(lambda x: x * 2, x)
    assert compare(x * 2, e).ok
    for at in range(4):
        y = x * 2
        same = (math.isnan(bad) and math.isnan(float(y[at]))) or float(y[at]) == bad
        y[at] = bad
        assert compare(y, e).ok is same


def test_the_nan_policy_edits_the_mask_only() -> None:
    x = torch.tensor([[math.nan, 3.0], [1.0, 2.0]])
    e = expected(lambda x: x.amax(-1), x)
    dropped = torch.tensor([3.0, 2.0])
    assert compare(dropped, e).reason == "nan"
    assert compare(dropped, e, Policy(nan=NanPolicy.IGNORE)).ok
    assert not compare(torch.tensor([3.0, 2.5]), e, Policy(nan=NanPolicy.IGNORE)).ok


def test_overflow_of_the_output_type_is_expected_exactly() -> None:
    x = torch.tensor([60000.0, 30000.0]).half()
    e = expected(lambda x: x * 2, x)
    assert compare(torch.tensor([math.inf, 60000.0]).half(), e).ok
    assert compare(torch.tensor([65504.0, 60000.0]).half(), e).reason == "inf"
    assert compare(torch.tensor([65504.0, 60000.0]).half(), e, Policy(saturate=True)).ok


def test_rounding_to_the_output_type_is_checked_to_the_last_bit() -> None:
    e = expected(lambda x: x * 1.0, torch.tensor([1.0, 1.25]).bfloat16())
    assert compare(torch.tensor([1.0, 1.25]).bfloat16(), e).ok
    assert not compare(torch.tensor([1.0078125, 1.25]).bfloat16(), e).ok


def test_a_declared_tolerance_replaces_the_bound() -> None:
    e = expected(lambda x: x.sum(-1), torch.randn(4, 64))
    off = (e.value + 0.05).float()
    assert not compare(off, e).ok and compare(off, e, Policy(tolerance=0.1)).ok


def test_another_index_within_the_error_is_right_and_a_worse_one_wrong() -> None:
    x = torch.tensor([[1.0, 0.3, 1.0, -2.0]])
    e = expected(lambda x: (x * x * 0.1).topk(2, -1)[1], x)
    assert compare(torch.tensor([[3, 0]]), e).ok and compare(torch.tensor([[3, 2]]), e).ok
    assert compare(torch.tensor([[3, 1]]), e).reason == "index"
    assert compare(torch.tensor([[3, 3]]), e).reason == "index"
    assert compare(torch.tensor([[3, 9]]), e).reason == "index"


def test_integers_are_exact() -> None:
    e = expected(lambda x: (x > 0).sum(), torch.tensor([1.0, -1.0, 2.0]))
    assert compare(torch.tensor(2), e).ok and not compare(torch.tensor(3), e).ok


def test_whole_numbers_may_have_another_width_and_never_a_fraction() -> None:
    x = torch.tensor([[0.5, 2.0, -1.0], [3.0, -2.0, 0.0]])
    index, count = expected(lambda x: x.argmax(-1), x), expected(lambda x: (x > 0).sum(-1), x)
    mask = expected(lambda x: x > 0, x)
    assert compare(x.argmax(-1).to(torch.int8), index).ok and compare((x > 0).to(torch.uint8), mask).ok
    assert compare(x > 0, mask).ok
    assert compare((x > 0).to(torch.uint8) * 2, mask).reason == "index"
    assert compare(x.argmax(-1) + 1, index).reason == "index"
    for found, wanted in (
        (x.argmax(-1).float() + 0.4, index),
        (x.argmax(-1).float(), index),
        (x.argmax(-1).to(torch.complex64), index),
        ((x > 0).sum(-1) + 0.3, count),
        ((x > 0).float() * 0.5, mask),
        ((x > 0).sum(-1) > 0, count),
    ):
        assert compare(found, wanted).reason == "dtype"


def test_only_a_tensor_can_be_compared() -> None:
    with pytest.raises(InputError, match="compared with a list"):
        compare([1.0], expected(torch.relu, torch.ones(1)))  # type: ignore[arg-type]


def subnormal_answer(fn: Any, x: Any, candidate: Any) -> SubnormalAnswer:
    model = Accumulation.fp32()
    keeping = expected(fn, x, model=model.keeping_subnormals())
    return judge_subnormals(
        candidate, keeping, expected(fn, x, model=model), expected(fn, x, model=model, flush_inputs=True)
    )


def test_subnormals_have_their_own_answers() -> None:
    x = torch.tensor([1e-39, 1e-30, 3e-42])
    half = x * 0.5
    assert subnormal_answer(lambda x: x * 0.5, x, half) is SubnormalAnswer.PRESERVES
    flushed = torch.where(half.abs() < 2.0**-126, 0.0, half)
    assert subnormal_answer(lambda x: x * 0.5, x, flushed) is SubnormalAnswer.FLUSHES_RESULTS
    big = torch.where(x < 2.0**-126, 0.0, x) * 2.0**40
    assert subnormal_answer(lambda x: x * 2.0**40, x, big) is SubnormalAnswer.FLUSHES_INPUTS
    assert subnormal_answer(lambda x: x * 2.0**40, x, big + 1.0) is SubnormalAnswer.WRONG
    assert subnormal_answer(lambda x: 1 + torch.exp(x), x, 1 + torch.exp(x)) is SubnormalAnswer.NOT_SHOWN


def test_a_strict_policy_refuses_a_flushed_result() -> None:
    x = torch.tensor([1e-39, 1.0])
    e = expected(lambda x: x * 0.5, x, model=Accumulation.fp32().keeping_subnormals())
    assert not compare(torch.tensor([0.0, 0.5]), e, Policy(subnormals=Subnormals.PRESERVE)).ok


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_eight_bit_outputs(dtype: Any) -> None:
    x = torch.randn(64)
    e = expected(lambda x: x * 3.0, x, out_dtype=dtype)
    assert compare((x * 3.0).to(dtype), e).ok
    assert not compare((x * 3.5).to(dtype), e).ok


def test_float64_candidates_have_a_bound_too() -> None:
    x = torch.randn(4, 500, dtype=torch.float64)
    e = expected(
        lambda x: x.sum(-1),
        x,
        model=Accumulation.of(__import__("kcontract.dynamic.oracle", fromlist=["form_of"]).form_of("float64")),
    )
    assert compare(x.flip(-1).sum(-1), e).ok and not compare(x.float().sum(-1).double(), e).ok


NULL = {
    "softmax": (lambda x: torch.softmax(x, -1), (1, 393216)),
    "frobenius": (lambda x: x / x.norm(), (64, 4096)),
    "min": (lambda x: x.amin(-1), (4, 4096)),
    "l2 norm": (lambda x: x / x.norm(dim=-1, keepdim=True), (4, 65535)),
}


@pytest.mark.parametrize("name", NULL)
def test_zero_and_constant_outputs_fail(name: str) -> None:
    fn, shape = NULL[name]
    x = torch.rand(shape, generator=torch.Generator().manual_seed(5))
    e = expected(fn, x)
    assert compare(fn(x), e).ok
    assert not compare(torch.zeros_like(fn(x)), e).ok
    assert not compare(torch.full_like(fn(x), float(fn(x).mean())), e).ok
    assert torch.allclose(torch.zeros_like(fn(x)), fn(x), atol=1e-2), "the customary tolerance accepts zeros"


_POLICIES = (Policy(), Policy(nan=NanPolicy.IGNORE), Policy(saturate=True), Policy(tolerance=0.1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn])
@pytest.mark.parametrize("policy", _POLICIES)
def test_a_brief_comparison_judges_alike(dtype: Any, policy: Policy) -> None:
    values = torch.tensor([0.0, 1.0, 3e-8, -7e4, 500.0, math.inf, -math.inf, math.nan]).to(dtype)
    e = expected(lambda x: x * 1.5, values)
    answers = []
    for at in range(len(values)):
        for other in (*(values.double() * 1.5), 448.0, 65504.0, 2.0):
            y = (values.double() * 1.5).to(dtype)
            y[at] = float(other)
            full, brief = compare(y, e, policy), compare(y, e, policy, brief=True)
            assert full == brief or (full.ok and brief.ok)
            answers.append(full.ok)
    assert not all(answers) and (any(answers) or policy.tolerance)


def test_mistaken_arguments_get_sentences() -> None:
    x = torch.tensor([1.0, 2.0])
    (told,) = run(lambda x: x * 3, [x]).outputs
    for wrong, word in (
        (lambda: compare(x * 3, told, 1e-2), "Policy"),
        (lambda: compare(x * 3, x), "second"),
        (lambda: compare(told, x * 3), "second"),
        (lambda: Policy.of(None), "Contract"),
        (lambda: run(lambda x: x, [x], out_dtype="foo"), "torch.dtype"),
        (lambda: run(lambda x: x, [x], out_dtype=float), "torch.dtype"),
    ):
        with pytest.raises(InputError, match=word):
            wrong()
    named = run(lambda x: x * 3, [x], out_dtype="bfloat16").outputs[0]
    assert compare((x * 3).bfloat16(), named).ok


def test_of_two_wrong_elements_the_larger_error_is_told() -> None:
    x = torch.rand(64, generator=torch.Generator().manual_seed(0)).bfloat16()
    (told,) = run(lambda x: x.softmax(-1), [x]).outputs
    found = x.softmax(-1)
    found[3] = torch.nextafter(found[3].float(), torch.tensor(2.0)).bfloat16() * (1 + 2.0**-6)
    found[9] = found[9] * 10
    wrong = compare(found, told)
    assert not wrong.ok and wrong.index == (9,) and 100 < wrong.ratio < 1e5


def test_where_nothing_is_determined_no_numbers_are_given() -> None:
    (told,) = run(lambda x: (x.exp() - x.exp()).reciprocal(), [torch.ones(3)]).outputs
    found = compare(torch.zeros(3), told)
    assert found.ok and found.index == () and found.found == found.wanted == "undetermined"
    assert found.masks["undetermined"] == 3
