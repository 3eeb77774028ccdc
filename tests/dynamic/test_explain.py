"""A failed run names its cause: the static finding on the kernel that wrote the wrong output, at its line."""

import textwrap

import pytest

from kcontract.dynamic.problems.kernelbench import load
from kcontract.dynamic.verify import chosen, verify
from kcontract.errors import UsageError
from kcontract.model import FLOOR, GATES, Status

SUMS = """
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def other(x, out, n, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        v = tl.load(x + tl.program_id(0) * n + at, at < n, 0.0)
        tl.store(out + tl.program_id(0), tl.max(v.to(tl.float32), 0))

    @triton.jit
    def row_sum(x, out, n, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        v = tl.load(x + tl.program_id(0) * n + at, at < n, 0.0)
        tl.store(out + tl.program_id(0), tl.sum(v, 0))

    class Model(torch.nn.Module):
        def forward(self, x):
            return x.amax(1).float(), x.sum(1)

    class ModelNew(torch.nn.Module):
        def forward(self, x):
            largest = torch.empty(x.shape[0], device=x.device)
            out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
            block = triton.next_power_of_2(x.shape[1])
            other[(x.shape[0],)](x.contiguous(), largest, x.shape[1], BLOCK=block)
            row_sum[(x.shape[0],)](x.contiguous(), out, x.shape[1], BLOCK=block)
            return largest, out

    def get_inputs():
        return [torch.randn(4, 512).half()]
"""


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    path = tmp_path_factory.mktemp("explain") / "sums.py"
    path.write_text(textwrap.dedent(SUMS))
    line = 1 + next(k for k, text in enumerate(path.read_text().splitlines()) if "tl.sum(v, 0)" in text)
    return verify(load(str(path)), engine="sim:sm_90", only=["ORD-01", "PRC-02", "CMP-01"]), line


def test_the_cause_is_the_sum_in_the_kernel_of_the_wrong_output(result):
    found, line = result
    verdict = next(v for v in found.report.verdicts if v.gate == "ORD-01")
    assert verdict.status is Status.FAIL
    assert found.witnesses["ORD-01"].output == "output 1"
    assert f"cause: sum of 512 terms kept in float16, wanted float32 at sums.py:{line}" in verdict.reason


def test_gates_are_chosen_by_id_or_the_floor():
    assert chosen(["cmp-01,exc-01"]) == ("CMP-01", "EXC-01")
    assert set(chosen([], floor=True)) == set(FLOOR)
    assert set(chosen([])) == set(GATES)
    with pytest.raises(UsageError, match="no gate 'X'"):
        chosen(["X"])
