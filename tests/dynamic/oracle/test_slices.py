"""Operations followed a slice at a time: the same bounds as at once, whatever the layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from kcontract.dynamic.oracle import compare, run, slices
from kcontract.dynamic.oracle.mode import BoundMode


def test_large_pointwise_operations_in_pieces_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from kcontract.dynamic.oracle import slices

    def reference(x: Any, w: Any) -> Any:
        y = torch.nn.functional.gelu(x * 1.1 + w).exp()
        y = torch.where(y > 1.5, y, -y / (x * x + 1)) * torch.tanh(x)[..., :1]
        return torch.nn.functional.smooth_l1_loss(torch.sigmoid(y), w, reduction="none").masked_fill(x > 1, 2.0)

    generator = torch.Generator().manual_seed(5)
    x, w = (torch.randn(50, 40, generator=generator).requires_grad_() for _ in range(2))
    whole = run(reference, [x, w], grads=True)
    monkeypatch.setattr(slices, "PIECE", 300)
    for a, b in zip([*run(reference, [x, w], grads=True).grads.values()], whole.grads.values(), strict=True):
        assert torch.equal(a.value, b.value) and torch.allclose(a.bound, b.bound, rtol=1e-6, atol=0.0)
        assert torch.equal(a.undetermined, b.undetermined)
    told = run(reference, [x, w]).outputs[0]
    assert torch.allclose(told.bound, whole.outputs[0].bound, rtol=1e-6, atol=0.0)


def _in_place(x: Any, w: Any) -> Any:
    y = x * 1.1
    y.add_(w).relu_()

    return (y.t() * 2.0).sigmoid_().t()


def _layouts(x: Any, w: Any) -> Any:
    y = (x * 1.1).t().exp() + w.t()
    return y[:, None, :] * w.mean(0)[None, :, None].expand(-1, -1, 50) - y[:, :1].unsqueeze(1)


POOL = torch.randn(3, 4, 12, 10, generator=torch.Generator().manual_seed(1))
CASES: dict[str, tuple[Callable[..., Any], Any]] = {
    "in place": (_in_place, None),
    "layouts": (_layouts, None),
    "masks": (lambda x, w: torch.where((x > w)[:, :1], x.exp(), w.sigmoid()).masked_fill(w[:1] > 1, 2.0) * w, None),
    "softmax": (lambda x, w: (x * 1.1).softmax(-1) * (w * 1.1).log_softmax(0), None),
    "extremes": (lambda x, w: (x * 1.1).amax(1) - (w * 1.1).amin(1), None),
    "pools": (lambda x: F.avg_pool2d(x * 1.1, 3, 2, 1) * F.max_pool2d(x * 1.1, 3, 2, 1), POOL),
    "resized": (lambda x: F.interpolate(x * 1.1, scale_factor=2.0, mode="bilinear"), POOL),
    "adaptive": (lambda x: F.adaptive_avg_pool2d(x * 1.1, (5, 3)).exp(), POOL),
    "channels": (lambda x: F.batch_norm(x * 1.1, None, None, training=True), POOL),
    "groups": (lambda x: F.group_norm(x * 1.1, 2), POOL),
}


@pytest.mark.parametrize("name", CASES)
def test_slices_are_bounded_as_the_whole_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Laws of sums are chosen slice by slice, so that bounds of what sums may differ by a little."""
    reference, given = CASES[name]
    generator = torch.Generator().manual_seed(5)
    both = [torch.randn(50, 40, generator=generator) for _ in range(2)] if given is None else [given]
    tensors = [t.clone().requires_grad_() for t in both]
    cut: list[str] = []
    sliced = BoundMode._sliced

    def seen(self: Any, what: Any, *args: Any) -> None:
        cut.append(what.base)
        sliced(self, what, *args)

    monkeypatch.setattr(BoundMode, "_sliced", seen)
    monkeypatch.setattr(slices, "PIECE", 1 << 30)
    whole = run(reference, tensors, grads=True)
    assert not cut
    monkeypatch.setattr(slices, "PIECE", 60)
    told = run(reference, tensors, grads=True)
    assert cut
    for a, b in zip([*told.outputs, *told.grads.values()], [*whole.outputs, *whole.grads.values()], strict=True):
        assert torch.equal(a.value, b.value) and torch.equal(a.undetermined, b.undetermined)
        assert torch.allclose(a.bound, b.bound, rtol=0.5, atol=0.0)
    y = reference(*tensors)
    assert compare(y.detach(), told.outputs[0]).ok and not compare(y.detach() * 1.01, told.outputs[0]).ok


def test_slices_of_perturbed_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(3)
    net = torch.nn.Sequential(
        *(m for _ in range(6) for m in (torch.nn.Linear(32, 32), torch.nn.LayerNorm(32), torch.nn.GELU())),
        torch.nn.Unflatten(1, (4, 8)), torch.nn.BatchNorm1d(4), torch.nn.Softmax(-1),
    )  # fmt: skip
    x = torch.randn(24, 32).requires_grad_()
    whole = run(net, [x], grads=True)
    monkeypatch.setattr(slices, "PIECE", 100)
    told = run(net, [x], grads=True)
    y = net(x)
    found = [y.detach(), *torch.autograd.grad(y, [x, *net.parameters()], told.upstream[0])]
    for f, a, b in zip(
        found, [*told.outputs, *told.grads.values()], [*whole.outputs, *whole.grads.values()], strict=True
    ):
        assert compare(f, a).ok and 0.25 < float(a.bound.mean() / b.bound.mean()) < 4
