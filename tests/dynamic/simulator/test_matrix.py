"""Matrix products on three generations of tensor cores: mma.sync, wgmma and tcgen05, against torch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the simulator runs programs on torch tensors")
triton = pytest.importorskip("triton", reason="the simulator runs what Triton compiles")
sys.path.insert(0, str(Path(__file__).parent))

import simulated_kernels as K  # noqa: E402
import triton.language as tl  # noqa: E402

from kcontract.dynamic.engines.simulator.driver import SimulatedDriver, simulate  # noqa: E402

#: One target a run by default; the others are marked slow, for their compile times.
TARGETS = (pytest.param("sm_80", marks=pytest.mark.slow), pytest.param("sm_90", marks=pytest.mark.slow), "sm_100")


@pytest.fixture(params=TARGETS)
def sim(request: pytest.FixtureRequest) -> Iterator[SimulatedDriver]:
    torch.manual_seed(0)
    with simulate(request.param) as driver:
        yield driver


_TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64,
          "i8": torch.int8, "fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2}  # fmt: skip


def skip_missing(sim: SimulatedDriver, *kinds: str) -> None:
    if "fp8e4nv" in kinds and sim.device.target.capability == 80:
        pytest.skip("Triton has no e4m3 before sm_89")


@pytest.mark.parametrize(
    ("kind", "precision"),
    [("fp16", "tf32"), ("bf16", "tf32"), ("fp32", "tf32"), ("fp32", "tf32x3"), ("fp32", "ieee"), ("i8", "tf32"),
     ("fp8e4nv", "tf32"), ("fp8e5", "tf32")],
)  # fmt: skip
def test_dot(sim: SimulatedDriver, kind: str, precision: str) -> None:
    skip_missing(sim, kind)
    if kind == "i8":
        a, b = (torch.randint(-128, 128, (64, 64), dtype=torch.int8) for _ in range(2))
        c, acc = torch.empty(64, 64, dtype=torch.int32), tl.int32
    else:
        a, b = (torch.randn(64, 64).to(_TYPES[kind]) for _ in range(2))
        c, acc = torch.empty(64, 64), tl.float32
    K.dot[(1,)](a, b, c, M=64, N=64, K=64, PRECISION=precision, ACC=acc)
    expected = a.double() @ b.double()
    error = (c.double() - expected).abs().max().item()
    assert error <= {"i8": 0.0, "fp32": 6e-2 if precision == "tf32" else 2e-5}.get(kind, 2e-5 * 8)


def test_dot_accumulates_in_half_where_asked(sim: SimulatedDriver) -> None:
    a, b = (torch.randint(-2, 3, (64, 64)).half() for _ in range(2))
    c = torch.empty(64, 64, dtype=torch.float16)
    K.dot[(1,)](a, b, c, M=64, N=64, K=64, PRECISION="tf32", ACC=tl.float16)
    assert torch.equal(c.double(), a.double() @ b.double())


@pytest.mark.parametrize(
    ("kind", "trans", "tile"),
    [("fp16", False, (128, 64, 64)), ("bf16", True, (64, 64, 32))]
    + [
        pytest.param(kind, trans, tile, marks=pytest.mark.slow)
        for kind in ("fp16", "bf16", "fp8e5")
        for trans in (False, True)
        for tile in ((128, 64, 64), (64, 64, 32))
    ],
)
def test_matmul_pipelined_with_tails(sim: SimulatedDriver, kind: str, trans: bool, tile: tuple[int, int, int]) -> None:
    m, n, k = 160, 96, 112
    a, b = torch.randn(m, k).to(_TYPES[kind]), torch.randn(k, n).to(_TYPES[kind])
    c = torch.empty(m, n, dtype=torch.float32)
    grid = (triton.cdiv(m, tile[0]), triton.cdiv(n, tile[1]))
    given = b.t().contiguous() if trans else b
    K.matmul[grid](a, given, c, m, n, k, BM=tile[0], BN=tile[1], BK=tile[2], STAGES=3, TRANS=trans)
    torch.testing.assert_close(c.double(), a.double() @ b.double(), rtol=1e-5, atol=2e-4)


@pytest.mark.parametrize(
    ("kind", "causal", "rows"),
    [("fp16", False, 128), ("bf16", True, 64)]
    + [pytest.param(*case, marks=pytest.mark.slow) for case in (("bf16", False, 128), ("fp16", True, 64))],
)
def test_attention(sim: SimulatedDriver, kind: str, causal: bool, rows: int) -> None:
    q, k, v = (torch.randn(256, 64).to(_TYPES[kind]) for _ in range(3))
    out = torch.empty_like(q)
    K.attention[(256 // rows,)](q, k, v, out, 256, 0.125, BM=rows, BN=64, D=64, CAUSAL=causal)
    s = q.double() @ k.double().t() * 0.125
    if causal:
        s = s.masked_fill(torch.ones(256, 256).triu(1).bool(), float("-inf"))
    expected = torch.softmax(s, 1) @ v.double()
    torch.testing.assert_close(out.double(), expected, rtol=2e-2, atol=2e-2 if kind == "bf16" else 3e-3)
