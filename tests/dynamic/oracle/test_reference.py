"""REF-01: each defect of a reference is found, and a fit reference has none."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from kcontract.dynamic import oracle
from kcontract.dynamic.oracle import judge_reference
from kcontract.errors import InputError


def kinds(fn: object, *x: object) -> set[str]:
    return {d.kind for d in judge_reference(fn, list(x))}  # type: ignore[arg-type]


def test_a_fit_reference_has_no_defect() -> None:
    assert judge_reference(lambda x, w: torch.softmax(x @ w, -1), [torch.randn(4, 32), torch.randn(32, 8)]) == ()


def test_each_defect_is_said() -> None:
    x = torch.randn(8, 64)
    assert "nondeterministic" in kinds(lambda x: x + torch.randn_like(x), x)
    assert "degenerate" in kinds(lambda x: x * 0, x)
    assert "degenerate" in kinds(lambda x: torch.relu(x - 1e6) + 3, x)
    assert "insensitive" in kinds(lambda x, y: x.sum(-1) + 0 * y.sum(-1), x, x.clone())
    assert "ill-conditioned" in kinds(lambda x: (x + 1e9).sum(-1) - 64e9, x)
    assert "overflowing" in kinds(lambda x: torch.log(torch.exp(x * 20 + 100)), x.abs())
    assert "estimated" in kinds(lambda x: torch.linalg.solve(x, x), torch.eye(4) + torch.rand(4, 4) / 8)


def test_a_reference_that_is_nowhere_finite_cannot_judge() -> None:
    x = torch.randn(8, 64)
    for bad in (float("nan"), float("inf")):
        assert any(d.fatal and d.kind == "degenerate" for d in judge_reference(lambda x, bad=bad: x * bad, [x]))
    some = torch.zeros(64)
    some[:8] = float("nan")
    assert judge_reference(lambda x: x + some, [x]) == ()


def test_all_zero_weights_are_a_degenerate_reference() -> None:
    layer = torch.nn.Linear(8, 8, bias=False)
    torch.nn.init.zeros_(layer.weight)
    assert "degenerate" in kinds(layer, torch.randn(2, 8))


def test_a_reference_that_is_wrong_in_float32_is_off_its_bound() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * (2.0 if x.dtype is torch.float32 else 1.0)

    assert "off-bound" in kinds(fn, torch.randn(4))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x, told: oracle.run(torch.relu, [x], model="fp32"), "give an Accumulation"),
        (lambda x, told: oracle.run(torch.relu, [x], model=oracle.Accumulation), "give an Accumulation"),
        (lambda x, told: oracle.run(torch.relu, [x], grads=x), "a list of upstream gradients"),
        (lambda x, told: oracle.run(torch.relu, [x], grads="yes"), "'yes'"),
        (lambda x, told: oracle.run(torch.relu, [x], grads=[None]), "a list of upstream gradients"),
        (lambda x, told: oracle.run(torch.relu, [x], flush_inputs="no"), "give True or False"),
        (lambda x, told: oracle.run(torch.relu, [x.cfloat()]), "real numbers only"),
        (lambda x, told: oracle.run(torch.nn.Dropout(0.5), [x]), "random numbers"),
        (lambda x, told: oracle.compare(x, told), "compare_all"),
        (lambda x, told: oracle.compare_all([x], told.outputs[0]), "oracle.run returned"),
        (lambda x, told: oracle.compare_all(None, told), "a list of tensors"),
        (lambda x, told: oracle.Policy(tolerance=-1.0), "0 or more"),
        (lambda x, told: oracle.Policy(tolerance=float("nan")), "0 or more"),
        (lambda x, told: oracle.Policy(nan="ignore"), "NanPolicy.IGNORE"),
        (lambda x, told: oracle.form_of("bf16"), "'bf16'"),
        (lambda x, told: oracle.Accumulation.of("floot32"), "'floot32'"),
    ],
)  # fmt: skip
def test_what_is_given_by_mistake_is_said(call: Any, words: str) -> None:
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    with pytest.raises(InputError, match=re.escape(words)):
        call(x, oracle.run(torch.relu, [x]))


def test_formats_go_by_name_or_dtype_and_a_lone_tensor_is_one_output() -> None:
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    assert oracle.form_of(torch.bfloat16) == oracle.form_of("bfloat16")
    model = oracle.Accumulation.fp32()
    assert model.stepwise("bfloat16") == model.stepwise(oracle.form_of("bfloat16")) == model.stepwise(torch.bfloat16)
    (one,) = oracle.compare_all(torch.relu(x), oracle.run(torch.relu, [x]))
    assert one.ok
