"""Atomics run in orders drawn from the seed, so that a result that depends on the order shows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from faulty_ptx import _FRAME

from kcontract.dynamic.engines.simulator.engine import SimulatorEngine
from kcontract.dynamic.engines.simulator.options import Options
from kcontract.ir.artifact import Artifact
from kcontract.ir.launch import Launch
from kcontract.ir.target import Target

#: Each thread of four CTAs adds its word of in to the first word of out.
_SUM = """mov.u32 %r20, %ctaid.x;
shl.b32 %r20, %r20, 9;
cvt.u64.u32 %d7, %r20;
add.s64 %d4, %d4, %d7;
ld.global.b32 %r6, [%d4];
"""


def total(kind: str, how: str, values: np.ndarray, seed: int | None) -> bytes:
    op = f"atom.global.add.{kind} %r7, [%d2], %r6;\nst.global.b32 [%d5+64], %r7;" if how == "atom" else (
        f"red.global.add.{kind} [%d2], %r6;")  # fmt: skip
    artifact = Artifact("k", Target.parse("sm_100"), ptx=_FRAME.format(body=_SUM + op), metadata={"shared": 1024})
    out = np.zeros(1024, values.dtype)
    engine = SimulatorEngine("sm_100", Options(seed=seed))
    assert engine.run(artifact, Launch((4, 1, 1)), {"in": values, "out": out}).diagnoses == ()
    return out[:1].tobytes()


@pytest.mark.parametrize("how", ["atom", "red"])
def test_a_float_sum_depends_on_the_order_and_an_integer_sum_does_not(how: str) -> None:
    random = np.random.default_rng(0)
    floats = (random.standard_normal(1024) * 10.0 ** random.integers(-3, 4, 1024)).astype("f4")
    integers = random.integers(0, 1 << 30, 1024).astype("u4")
    seeds = range(6)
    assert len({total("f32", how, floats, s) for s in seeds}) > 1
    assert len({total("u32", how, integers, s) for s in seeds}) == 1
    assert len({total("f32", how, floats, 3) for _ in range(3)}) == 1, "a seed gives one order"
    assert total("u32", how, integers, None) == integers[:512].sum(dtype="u4").tobytes()


def test_exact_float_sums_agree_in_every_order() -> None:
    floats = np.random.default_rng(1).integers(-1000, 1000, 1024).astype("f4")
    assert {total("f32", "red", floats, s) for s in range(4)} == {floats[:512].sum().tobytes()}


@pytest.mark.parametrize(("operation", "wanted"), [
    ("atom.global.add.u64 %d9, [%d8], %d6;", lambda old, x: old + x),
    ("red.global.max.s64 [%d8], %d6;", lambda old, x: np.maximum(old, x)),
    ("atom.global.exch.b64 %d9, [%d8], %d6;", lambda old, x: x),
    ("atom.global.cas.b64 %d9, [%d8], %d10, %d6;", lambda old, x: x),
    ("ld.global.b64 %d9, [%d8];\ncopysign.f64 %d9, %d9, %d6;\nst.global.b64 [%d8], %d9;",
     lambda old, x: np.copysign(x.view("f8"), old.view("f8")).view("i8")),
])  # fmt: skip
def test_words_of_64_bits_are_whole(operation: str, wanted: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> None:
    body = (
        "shl.b64 %d7, %d3, 1;\nadd.s64 %d8, %d2, %d7;\nadd.s64 %d7, %d1, %d7;\nld.global.b64 %d6, [%d7];\n"
        "ld.global.b64 %d10, [%d8];\n" + operation
    )
    random = np.random.default_rng(0)
    old, given = (random.integers(-(1 << 62), 1 << 62, 512) for _ in range(2))
    out = old.copy()
    artifact = Artifact("k", Target.parse("sm_100"), ptx=_FRAME.format(body=body), metadata={"shared": 1024})
    record = SimulatorEngine("sm_100").run(artifact, Launch((1, 1, 1)), {"in": given, "out": out})
    assert record.diagnoses == ()
    np.testing.assert_array_equal(out[:128], wanted(old[:128], given[:128]))
