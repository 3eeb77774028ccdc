"""The problem's own inputs: what cannot be handed on is said before anything runs; all integer types are indices."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kcontract.dynamic.problems import infer, kernelbench
from kcontract.dynamic.verify import verify
from kcontract.errors import InputError

FILE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, d):
        return x * d["k"]
class ModelNew(Model):
    pass
def get_inputs():
    return [torch.randn(4, 4), {"k": VALUE}]
def get_init_inputs():
    return []
"""


def test_a_tensor_inside_a_dict_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "nested.py"
    path.write_text(FILE.replace("VALUE", "torch.ones(1)"))
    with pytest.raises(InputError, match="input 1 is a dict that cannot be passed on; inputs are tensors"):
        verify(kernelbench.load(str(path)), engine="interpreter", only=["CMP-01"])


def test_unsigned_indices_have_a_range() -> None:
    found = infer.infer(lambda: torch.clone, (torch.arange(64).reshape(4, 16).to(torch.uint16),), budget=1 << 10)
    assert found.spec.arguments[0].high == 64
