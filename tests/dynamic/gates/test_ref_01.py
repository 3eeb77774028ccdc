"""REF-01: references that are constant, deaf or random judge nobody; one with a spare input or output does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from judged import judged

from kcontract.model import Status

FILE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, y):
        return {result}
class ModelNew(Model):
    pass
def get_inputs():
    return [torch.randn(4, 16), torch.randn(4, 16)]
"""


def found_of(folder: Path, result: str) -> tuple[Status, str]:
    file = folder / "problem.py"
    file.write_text(FILE.format(result=result))
    verdict = judged("ref_01", file).verdict
    return verdict.status, verdict.reason


@pytest.mark.parametrize(
    ("result", "kept"),
    [
        ("(x * 2, y.mean(1))", ""),
        ("(x * 2 + y, torch.zeros_like(y))", "output 1 is zero everywhere"),
        ("x * 2", "no output moves when input 1 does"),
    ],
)
def test_references_that_can_judge(tmp_path: Path, result: str, kept: str) -> None:
    status, reason = found_of(tmp_path, result)
    assert status is Status.PASS, reason
    assert kept in reason


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("(x + y) * 0", "zero everywhere"),
        ("torch.softmax(x + y, 1).sum(1)", "no output moves|the constant 1"),  # ones, or ones and their neighbours
        ("torch.full_like(x, 3) + 0 * y", "the constant 3"),
        ("x + y + torch.rand(x.shape)", "two runs of the reference differ"),
        ("torch.ones(4, 16).cumsum(0)", "no output moves"),
    ],
)
def test_references_that_cannot(tmp_path: Path, result: str, said: str) -> None:
    status, reason = found_of(tmp_path, result)
    assert status is Status.FAIL, reason
    assert re.search(said, reason)
