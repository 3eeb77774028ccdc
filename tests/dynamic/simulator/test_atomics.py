"""Atomics run in orders drawn from the seed, so that a result that depends on the order shows."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from faulty_ptx import _FRAME

from kcontract.dynamic.engines.simulator.engine import SimulatorEngine
from kcontract.dynamic.engines.simulator.launch import Options
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
