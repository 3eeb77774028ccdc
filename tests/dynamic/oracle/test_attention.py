"""Attention in pieces has the values and bounds of the plain products, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from kcontract.dynamic import oracle
from kcontract.dynamic.oracle import attention

SHAPE = (2, 3, 40, 16)


def _mask(kind: str) -> Any:
    generator = torch.Generator().manual_seed(5)
    if kind == "bool":
        return torch.rand(2, 1, 40, 40, generator=generator) > 0.3
    return torch.randn(40, 40, generator=generator) if kind == "float" else None


@pytest.mark.parametrize("kind", ["none", "causal", "bool", "float"])
def test_pieces_bound_what_the_whole_does(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(3)
    inputs = [torch.randn(SHAPE, generator=generator).requires_grad_() for _ in range(3)]

    def reference(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, _mask(kind), is_causal=kind == "causal")

    whole = oracle.run(reference, inputs, grads=True)
    monkeypatch.setattr(attention, "PIECE", 600)
    pieces = oracle.run(reference, inputs, grads=True)
    for a, b in zip([*whole.outputs, *whole.grads.values()], [*pieces.outputs, *pieces.grads.values()], strict=True):
        assert torch.allclose(a.value, b.value, rtol=1e-13, atol=1e-13), a.name
        assert torch.allclose(a.bound, b.bound, rtol=1e-3), a.name
    assert whole.longest == pieces.longest


@pytest.mark.parametrize("case", ["shared heads", "learned mask"])
def test_what_pieces_cannot_do_is_left_to_torch(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "PIECE", 600)
    monkeypatch.setattr(attention._Pieces, "apply", None)
    q = torch.randn(SHAPE, generator=torch.Generator().manual_seed(1))
    keys = q[:, :1] if case == "shared heads" else q
    mask = torch.zeros(40, 40, requires_grad=True) if case == "learned mask" else None

    def reference(q: Any, k: Any) -> Any:
        with torch.set_grad_enabled(mask is not None):
            return F.scaled_dot_product_attention(q, k, k, mask, enable_gqa=case == "shared heads")

    assert oracle.run(reference, [q, keys]).outputs[0].value.shape == SHAPE


def test_torch_has_its_own_attention_back_afterwards() -> None:
    before = F.scaled_dot_product_attention
    oracle.run(lambda x: F.scaled_dot_product_attention(x, x, x), [torch.ones(1, 1, 4, 4)])
    assert F.scaled_dot_product_attention is before
