"""CMP-01: one output of two, one input of two, a weight, results kept by address: each fault shows, its twin passes."""

from __future__ import annotations

from pathlib import Path

import pytest
from judged import bench_of, judged

from kcontract.dynamic.gates import cmp_01
from kcontract.model import Status

FIXTURES = Path(__file__).parent / "fixtures"

OVERFLOWS = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.exp(x) / torch.exp(x).sum(1, keepdim=True)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, 1)
class OffByALittle(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, 1) * 1.0001
def get_inputs():
    return [torch.randn(4, 32)]
"""

OVERFLOWS_INSIDE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        cube = 0.2 * x * x * x  # the sum of its squares overflows for inputs of 1e6, their mean does not
        return cube * torch.rsqrt((cube * cube).mean(1, keepdim=True) + 1e-6)
class ModelNew(Model):
    pass
class SmallOnly(Model):
    def forward(self, x):
        return super().forward(x.clamp(-8, 8))
def get_inputs():
    return [torch.randn(4, 2000)]
"""


@pytest.mark.parametrize("name", ["Honest", "KeepsByContent"])
def test_right_candidates_pass(name: str) -> None:
    found = judged("cmp_01", FIXTURES / "values.py", name)
    assert found.verdict.status is Status.PASS, found.verdict.reason
    assert found.tried >= 18  # native, eight draws, extremes, single arguments, single elements, parameters


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Zeros", "output 0"),
        ("LeavesOutWeight", "output 1"),
        ("LeavesOutSecondInput", "output 1"),
        ("OtherDtype", "output 1 has dtype torch.float64"),
        ("KeepsByAddress", "replace other data at the same address"),
        ("KeepsWeights", "after its parameters were changed in place"),
    ],
)
def test_faults_show(name: str, said: str) -> None:
    found = judged("cmp_01", FIXTURES / "values.py", name)
    assert found.verdict.status is Status.FAIL
    assert said in found.verdict.reason
    assert found.witness is not None and found.witness.problem["label"] in found.verdict.reason


def test_zeros_do_not_pass_for_a_softmax_of_small_values() -> None:
    found = judged("cmp_01", FIXTURES / "null.py")
    assert found.verdict.status is Status.FAIL
    assert found.witness is not None and found.witness.found == 0.0
    assert 0 < float(found.witness.wanted) < 1e-2 and float(found.witness.allowed) < 1e-6


def test_where_the_reference_overflows_nothing_is_judged(tmp_path: Path) -> None:
    file = tmp_path / "overflows.py"
    file.write_text(OVERFLOWS)
    assert judged("cmp_01", file).verdict.status is Status.PASS
    assert judged("cmp_01", file, "OffByALittle").verdict.status is Status.FAIL


def test_huge_inputs_that_the_reference_overflows_on_inside_judge_nobody(tmp_path: Path) -> None:
    file = tmp_path / "inside.py"
    file.write_text(OVERFLOWS_INSIDE)
    found = judged("cmp_01", file)
    assert found.verdict.status is Status.PASS, found.verdict.reason
    assert "overflows on the way" in found.verdict.reason
    assert judged("cmp_01", file, "SmallOnly").verdict.status is Status.FAIL


def test_parameters_that_cannot_be_matched_keep_their_initial_values_on_both_sides() -> None:
    with bench_of(FIXTURES / "values.py", "OtherNames") as bench:
        assert "not named or shaped" in bench.notes[0]
        assert bool((bench.reference("float32").weight == 1).all())
        assert cmp_01.check(bench).verdict.status is Status.PASS
