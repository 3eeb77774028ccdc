"""Words that lanes of one store write: which differ by rounding, and which are floating-point values at all."""

from __future__ import annotations

import numpy as np
import pytest

from kcontract.dynamic.engines.simulator import floats
from kcontract.ir.ptx import parse

_TEXT = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out)
{{
.reg .b16 %h<9>;
.reg .b32 %r<9>;
.reg .b64 %d<9>;
.reg .pred %p1;
ld.param.b64 %d1, [out];
{body}
ret;
}}
"""


@pytest.mark.parametrize(("body", "form", "butterfly"), [
    ("add.f32 %r2, %r1, %r1;\nst.global.b32 [%d1], %r2;", "f32", False),
    ("add.s32 %r2, %r1, %r1;\nst.global.b32 [%d1], %r2;", "", False),
    ("fma.rn.ftz.f32 %r2, %r1, %r1, %r1;\nshfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;\nmov.b32 %r4, %r3;\n"
     "st.shared.b32 [%r5], %r4;", "f32", False),
    ("cvt.rn.bf16.f32 %h1, %r1;\nmov.b32 %r2, {%h1, %h1};\nst.global.v2.b32 [%d1], {%r2, %r2};", "bf16", False),
    ("cvt.rn.f16x2.f32 %r2, %r1, %r1;\nst.global.b32 [%d1], %r2;", "f16", False),
    ("add.f32 %r2, %r1, %r1;\nmov.u32 %r3, %tid.x;\nst.global.v2.b32 [%d1], {%r2, %r3};", "", False),
    ("add.f32 %r2, %r1, %r1;\nadd.s32 %r3, %r1, %r1;\nselp.b32 %r4, %r2, %r3, %p1;\n"
     "st.global.b32 [%d1], %r4;", "", False),
    ("ld.global.b32 %r2, [%d1];\nst.global.b32 [%d1+4], %r2;", "", False),
    ("cvt.rzi.s32.f32 %r2, %r1;\nst.global.b32 [%d1], %r2;", "", False),
    ("shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;\nadd.f32 %r3, %r1, %r2;\nst.global.b32 [%d1], %r3;", "f32", True),
    ("shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;\nadd.f32 %r3, %r1, %r2;\nadd.f32 %r4, %r3, %r3;\n"
     "st.global.v2.b32 [%d1], {%r3, %r4};", "f32", False),
])  # fmt: skip
def test_the_format_of_a_store(body: str, form: str, butterfly: bool) -> None:
    (function,) = parse(_TEXT.format(body=body)).functions
    index = max(i.index for i in function.instructions if i.opcode == "st")
    assert floats.stored(function, index) == (form, butterfly)


def test_close_is_a_few_ulp_of_finite_values() -> None:
    one = np.float32(1).view("u4")
    most = np.float32(np.finfo("f4").max).view("u4")
    a = np.array([one, one, one, most, most + 1, 0, 0x7FC00000], "u4")
    b = np.array([one + 4, one + 5, one | 0x80000000, most - 1, most, 3, 0x7FC00001], "u4")
    assert floats.close(a, b, "f32", False).tolist() == [True, False, False, True, False, True, False]
    assert (floats.close(b, a, "f32", False) == floats.close(a, b, "f32", False)).all()
    halves = np.array([0x3C003C00, 0x3C003C00], "u4"), np.array([0x3C013C00, 0x3C013D00], "u4")
    assert floats.close(*halves, "f16", False).tolist() == [True, True, False, True]


def test_a_cancelled_sum_may_differ_by_rounding_of_its_terms() -> None:
    a, b = np.array([1e-6, 1, 1], "f4"), np.array([-1e-7, 1, 1 + 1e-5], "f4")
    assert floats.close(a.view("u4"), b.view("u4"), "f32", False).tolist() == [False, True, False]
    assert floats.close(a.view("u4"), (a * 0).view("u4"), "f32", True).tolist() == [False, False, False]
    a[0], b[0] = 4e-7, 0
    assert floats.close(a.view("u4"), b.view("u4"), "f32", True).tolist() == [True, True, False]
