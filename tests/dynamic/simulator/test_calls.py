"""Functions that a kernel calls: Triton's noinline ones and libdevice's, which stay ``.func`` in the PTX."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="kernels run on torch tensors")
pytest.importorskip("triton", reason="Triton compiles the kernels")

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

sys.path.insert(0, str(Path(__file__).parent))

from faulty_ptx import Seeded

from kcontract.dynamic.engines.simulator.driver import simulate
from kcontract.dynamic.engines.simulator.engine import SimulatorEngine
from kcontract.dynamic.engines.simulator.kernel import decode
from kcontract.dynamic.engines.simulator.options import Options
from kcontract.errors import InputError
from kcontract.ir.artifact import Artifact
from kcontract.ir.launch import Launch
from kcontract.ir.target import Target


@triton.jit(noinline=True)
def halved_until_small(value, limit):
    turns = 0
    while value > limit:
        value = value / 2
        turns += 1
    return value, turns


@triton.jit(noinline=True)
def outer(scale, limit):
    small, turns = halved_until_small(scale, limit)
    other, _ = halved_until_small(small * 64, limit / 2)
    return small, other, turns


@triton.jit
def calling(x, out, turns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    small, other, count = outer(tl.load(x + tl.program_id(0)), 1.5)
    tl.store(out + at, tl.load(x + at) * small + other)
    tl.store(turns + tl.program_id(0), count)


@triton.jit
def elementary(x, sin, cos, tan, power, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    tl.store(sin + at, libdevice.sin(value))
    tl.store(cos + at, libdevice.cos(value))
    tl.store(tan + at, libdevice.tan(value))
    tl.store(power + at, libdevice.pow(tl.abs(value), value / 1000))


def until_small(value: np.ndarray, limit: float) -> tuple[np.ndarray, np.ndarray]:
    value, turns = value.copy(), np.zeros(value.shape, "i4")
    while (more := value > limit).any():
        value[more] /= 2
        turns[more] += 1
    return value, turns


@pytest.mark.parametrize("target", ["sm_80", "sm_100"])
def test_functions_that_stay_functions_are_called(target: str) -> None:
    x = torch.arange(512, dtype=torch.float32) + 3
    out, turns = torch.zeros(512), torch.zeros(4, dtype=torch.int32)
    with simulate(target, Options(checked=True)) as driver:
        calling[(4,)](x, out, turns, BLOCK=128, num_warps=2)
        assert driver.last is not None
        assert sum(f.kind == "func" for f in driver.last.kernel.program.functions) >= 2
    small, count = until_small(x[:4].numpy(), 1.5)
    other, _ = until_small(small * 64, 0.75)
    assert turns.tolist() == count.tolist()
    want = x.numpy().reshape(4, 128) * small[:, None] + other[:, None]
    assert np.abs(out.numpy().reshape(4, 128) - want).max() <= np.spacing(want.max())


def test_float64_functions_of_libdevice() -> None:
    """Arguments from tiny to huge take every branch, the slow reduction of sin and cos too."""
    x = torch.cat([torch.linspace(-300, 300, 64, dtype=torch.float64), 10 ** torch.linspace(-300, 300, 64).double()])
    made = [torch.zeros(128, dtype=torch.float64) for _ in range(4)]
    with simulate("sm_90") as driver:
        elementary[(1,)](x, *made, BLOCK=128, num_warps=1)
        assert driver.last is not None
        assert any(f.kind == "func" and not f.declared_only for f in driver.last.kernel.program.functions)
    for name, got in zip(("sin", "cos", "tan"), made, strict=False):
        assert torch.allclose(got, getattr(torch, name)(x), rtol=1e-15, atol=0), name
    want = torch.pow(x.abs(), x / 1000)
    finite = want.isfinite()
    assert torch.allclose(made[3][finite], want[finite], rtol=1e-14, atol=0)
    assert made[3][~finite].isinf().all()


#: A function that leaves by two returns and is called under a predicate, twice.
TWICE = """.func (.param .b32 result) twice(.param .b32 value, .param .align 8 .b8 both[8])
{
.reg .pred %p<2>;
.reg .b32 %r<4>;
ld.param.b32 %r1, [value];
ld.param.b32 %r2, [both+4];
setp.gt.u32 %p1, %r1, 63;
@%p1 bra large;
add.s32 %r3, %r1, %r2;
st.param.b32 [result], %r3;
ret;
large:
st.param.b32 [result], 7;
ret;
}
"""
CALLS = """mov.b32 %r9, 1000;
setp.lt.u32 %p5, %r1, 96;
{ .param .b32 a; .param .align 8 .b8 b[8]; .param .b32 c;
st.param.b32 [a], %r1;
st.param.b32 [b+4], 100;
st.param.b32 [c], 5;
@%p5 call.uni (c), twice, (a, b);
ld.param.b32 %r9, [c]; }
{ .param .b32 a; .param .align 8 .b8 b[8]; .param .b32 c;
st.param.b32 [a], 1;
st.param.b32 [b+4], %r9;
call.uni (c), twice, (a, b);
ld.param.b32 %r9, [c]; }
st.global.b32 [%d5], %r9;
"""


def module(functions: str, body: str) -> str:
    text = Seeded("k", "", body).text(False)
    return text.replace(".visible .entry", functions + ".visible .entry")


def test_each_thread_has_its_own_arguments() -> None:
    artifact = Artifact("k", Target.parse("sm_90"), ptx=module(TWICE, CALLS), metadata={"shared": 16384})
    out = np.zeros(1024, "u4")
    record = SimulatorEngine("sm_90").run(artifact, Launch((1, 1, 1)), {"in": np.zeros(1024, "u4"), "out": out})
    assert record.diagnoses == ()
    thread = np.arange(128)
    assert (out[:128] == np.where(thread < 64, thread + 100, np.where(thread < 96, 7, 5)) + 1).all()


@pytest.mark.parametrize(
    ("functions", "body", "what", "line"),
    [
        (".func loop()\n{\ncall.uni loop;\nret;\n}\n", "call.uni loop;", "loop calls itself", "call.uni loop;"),
        (TWICE, "call.uni twice;", "twice has other parameters or results than the call gives it", "call.uni twice;"),
        ("", "call.uni nobody;", "only functions with a body in this module", "call.uni nobody;"),
        (TWICE, "call.uni (%r1), %d1, (%r2);", "only functions with a body in this module", "call.uni (%r1)"),
        (TWICE, CALLS.replace("[b+4], 100", "[b+8], 100"), "b has 8 bytes", "[b+8]"),
    ],
)
def test_calls_that_cannot_be_followed_are_refused(functions: str, body: str, what: str, line: str) -> None:
    text = module(functions, body)
    with pytest.raises(InputError, match=what) as refused:
        decode(text)
    assert refused.value.line is not None
    assert line in text.splitlines()[refused.value.line - 1]
