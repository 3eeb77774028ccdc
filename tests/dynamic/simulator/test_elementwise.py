"""Kernels without matrix products, each run from its PTX for three targets and compared with torch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the simulator runs programs on torch tensors")
triton = pytest.importorskip("triton", reason="the simulator runs what Triton compiles")
sys.path.insert(0, str(Path(__file__).parent))

import simulated_kernels as K  # noqa: E402

from kcontract.dynamic.engines.simulator.driver import SimulatedDriver, simulate  # noqa: E402

#: One target a run by default; the others are marked slow, for their compile times.
TARGETS = (pytest.param("sm_80", marks=pytest.mark.slow), "sm_90", pytest.param("sm_100", marks=pytest.mark.slow))


@pytest.fixture(params=TARGETS)
def sim(request: pytest.FixtureRequest) -> Iterator[SimulatedDriver]:
    torch.manual_seed(0)
    with simulate(request.param) as driver:
        yield driver


def test_add_with_a_tail(sim: SimulatedDriver) -> None:
    x, y, out = torch.randn(1000), torch.randn(1000), torch.full((1000,), 7.0)
    K.add[(2,)](x, y, out, 999, BLOCK=512)
    assert torch.equal(out[:999], (x + y)[:999])
    assert out[999] == 7.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_softmax(sim: SimulatedDriver, dtype: Any) -> None:
    x = torch.randn(8, 1000).to(dtype)
    out = torch.empty(8, 1000)
    K.softmax[(8,)](x, out, 1000, 1000, BLOCK=1024)
    torch.testing.assert_close(out, torch.softmax(x.float(), 1), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_layernorm(sim: SimulatedDriver, dtype: Any) -> None:
    x, w, b = torch.randn(5, 1000).to(dtype), torch.randn(1000), torch.randn(1000)
    out = torch.empty_like(x)
    K.layernorm[(5,)](x, w, b, out, 1000, 1e-5, BLOCK=1024)
    expected = torch.nn.functional.layer_norm(x.float(), (1000,), w, b, 1e-5)
    rtol = 1e-4 if dtype == torch.float32 else 2e-3
    torch.testing.assert_close(out.float(), expected, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_cumsum(sim: SimulatedDriver, dtype: Any) -> None:
    x = torch.randint(-50, 50, (3, 1000)).to(dtype)
    out = torch.empty_like(x)
    K.cumsum[(3,)](x, out, 1000, BLOCK=1024)
    assert torch.equal(out, torch.cumsum(x, 1, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_sort(sim: SimulatedDriver, dtype: Any) -> None:
    x = torch.randn(256).mul(1000).to(dtype)
    out = torch.empty_like(x)
    K.sort[(1,)](x, out, BLOCK=256)
    assert torch.equal(out, torch.sort(x).values)


def test_argmax(sim: SimulatedDriver) -> None:
    x = torch.randn(4, 500)
    out, values = torch.empty(4, dtype=torch.int32), torch.empty(4)
    K.argmax[(4,)](x, out, values, 500, BLOCK=512)
    assert torch.equal(out.long(), x.argmax(1)) and torch.equal(values, x.max(1).values)


def test_histogram(sim: SimulatedDriver) -> None:
    x = torch.randint(0, 32, (512,), dtype=torch.int32)
    out = torch.empty(32, dtype=torch.int32)
    K.histogram[(1,)](x, out, 512, BLOCK=512, BINS=32)
    assert torch.equal(out.long(), torch.bincount(x, minlength=32))


def test_gather(sim: SimulatedDriver) -> None:
    x, index = torch.randn(256), torch.randint(0, 256, (128,), dtype=torch.int32)
    out = torch.empty(128)
    K.gather[(1,)](x, index, out, N=256, M=128)
    assert torch.equal(out, x[index.long()])


def test_integer_atomics(sim: SimulatedDriver) -> None:
    x = torch.randint(-1000, 1000, (1000,), dtype=torch.int32)
    total, big = torch.zeros(4, dtype=torch.int32), torch.full((1,), -(2**31), dtype=torch.int32)
    small, bits, count = (
        torch.full((1,), 2**31 - 1, dtype=torch.int32),
        torch.zeros(1, dtype=torch.int32),
        torch.zeros(1, dtype=torch.int32),
    )
    K.atomics[(4,)](x, total, big, small, bits, count, 1000, BLOCK=256)
    assert torch.equal(total, torch.nn.functional.pad(x, (0, 0)).reshape(-1, 4).sum(0).int())
    assert (int(big), int(small), int(bits), int(count)) == (max(0, int(x.max())), min(0, int(x.min())), 15, 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_float_atomics(sim: SimulatedDriver, dtype: Any) -> None:
    x = torch.randint(-3, 4, (1000,)).to(dtype)
    total = torch.zeros(8, dtype=dtype)
    K.float_atomics[(4,)](x, total, 1000, BLOCK=256)
    assert torch.equal(total.float(), x.float().reshape(-1, 8).sum(0))


def test_spin_lock(sim: SimulatedDriver) -> None:
    lock, total = torch.zeros(1, dtype=torch.int32), torch.zeros(1)
    x = torch.randint(0, 9, (4, 128)).float()
    K.spin_lock[(4,)](lock, total, x, BLOCK=128)
    assert float(total) == float(x.sum()) and int(lock) == 0


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_integers(sim: SimulatedDriver, dtype: Any) -> None:
    x = torch.randint(-(2**30), 2**30, (128,)).to(dtype)
    y = torch.randint(1, 2**15, (128,)).to(dtype) * torch.where(torch.rand(128) < 0.5, -1, 1).to(dtype)
    out = torch.empty_like(x)
    K.integers[(1,)](x, y, out, BLOCK=128)
    bits = 32 if dtype == torch.int32 else 64
    a, b = [int(v) for v in x], [int(v) for v in y]

    def one(p: int, q: int) -> int:
        quotient = abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)
        high = ((p % 2**bits) * (q % 2**bits)) >> bits
        r = quotient ^ (p - quotient * q) ^ (p * q) ^ (p << 3) ^ (p >> 2) ^ high
        r = r if p > q else -r
        return (r + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)

    assert out.tolist() == [one(p, q) for p, q in zip(a, b, strict=True)]


def test_math(sim: SimulatedDriver) -> None:
    x = torch.cat([torch.randn(200) * 3, torch.tensor([0.5, 1e-3, -1e4, 1e5, 3e6, 2.0])])
    n = len(x)
    out = torch.empty(15, n)
    K.math[(1,)](x, out, n, BLOCK=256)
    v, a = x.double(), x.double().abs()
    expected = [v.exp(), a.log(), v.sin(), v.cos(), a.sqrt(), a.rsqrt(), v.sigmoid(), v.erf(), v.floor(), 1 / v,
                a.sqrt(), v * v + v, v.exp2(), a.log2(), v.ceil()]  # fmt: skip
    for k, want in enumerate(expected):
        torch.testing.assert_close(
            out[k].double(), want.float().double(), rtol=2e-5, atol=2e-6, msg=lambda m, k=k: f"{k}: {m}"
        )
    assert torch.equal(out[9], 1 / x)
    assert torch.equal(out[10], torch.from_numpy(np.sqrt(x.abs().numpy())))  # torch's own is not correctly rounded


def test_random_numbers_are_tritons_own(sim: SimulatedDriver) -> None:
    out = torch.empty(512)
    K.rand[(1,)](out, 7, BLOCK=256)
    assert 0 <= float(out[:256].min()) < 0.05 and 0.95 < float(out[:256].max()) < 1
    assert abs(float(out[256:].mean())) < 0.2 and 0.8 < float(out[256:].std()) < 1.2


_FROM = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64, "i8": torch.int8,
         "i16": torch.int16, "i64": torch.int64}  # fmt: skip


@pytest.mark.parametrize(
    ("source", "target"),
    [("fp32", "fp16"), ("fp32", "bf16"), ("fp16", "i8"), ("i8", "bf16"), ("bf16", "fp32"), ("fp64", "i32")]
    + [pytest.param(s, t, marks=pytest.mark.slow) for s in _FROM for t in ("fp16", "bf16", "fp32", "i8", "i32")],
)
def test_convert(sim: SimulatedDriver, source: str, target: str) -> None:
    to = {**_FROM, "i32": torch.int32}[target]
    x = (torch.randn(512, dtype=torch.float64) * 30).to(_FROM[source])
    out = torch.empty(512, dtype=to)
    K.convert[(1,)](x, out, BLOCK=512)
    assert torch.equal(out, x.to(to))


@pytest.mark.parametrize("name", ["float8e4nv", "float8e5"])
def test_eight_bit_floats(sim: SimulatedDriver, name: str) -> None:
    if name == "float8e4nv" and sim.device.target.capability == 80:
        pytest.skip("Triton has no e4m3 before sm_89")
    import triton.language as tl

    x = torch.cat(
        [torch.randn(500) * 20, torch.tensor([0.0, -0.0, 1e-4, 300.0, 448.0, 2e-3, 0.3, -1e-3, 100.0, 0.1, 0.2, 7.0])]
    )
    out = torch.empty(512)
    K.round_trip[(1,)](x, out, DTYPE=getattr(tl, name), BLOCK=512)
    kind = {"float8e4nv": torch.float8_e4m3fn, "float8e5": torch.float8_e5m2}[name]
    assert torch.equal(out, x.to(kind).float())
