"""REF-01: each defect of a reference is found, and a fit reference has none."""

from __future__ import annotations

import torch

from kcontract.dynamic.oracle import judge_reference


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
