"""Tensor copies (TMA) from host and device descriptors, warp specialisation and block-scaled products."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the simulator runs programs on torch tensors")
triton = pytest.importorskip("triton", reason="the simulator runs what Triton compiles")
sys.path.insert(0, str(Path(__file__).parent))

import simulated_kernels as K  # noqa: E402
from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

from kcontract.dynamic.engines.simulator.driver import SimulatedDriver, simulate  # noqa: E402
from kcontract.dynamic.engines.simulator.faults import Fault  # noqa: E402
from kcontract.dynamic.engines.simulator.launch import Options  # noqa: E402


@pytest.fixture(
    params=(pytest.param("sm_80", marks=pytest.mark.slow), pytest.param("sm_90", marks=pytest.mark.slow), "sm_100")
)
def sim(request: pytest.FixtureRequest) -> Iterator[SimulatedDriver]:
    torch.manual_seed(0)
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8))
    with simulate(request.param, Options(checked=True)) as driver:  # correct programs get no diagnosis
        yield driver


@pytest.mark.parametrize("specialise", [False, True])
def test_device_descriptors_with_tails(sim: SimulatedDriver, specialise: bool) -> None:
    m, n, k = 200, 104, 136
    a, b = torch.randn(m, k).half(), torch.randn(n, k).half()
    c = torch.full((m, n), 7.0).half()

    def launch() -> None:
        K.tma_matmul[(2, 2)](a, b, c, m, n, k, BM=128, BN=64, BK=64, SPECIALISE=specialise)

    if specialise and sim.device.target.capability == 100 and triton.__version__ < "3.7":
        # Triton 3.6 invalidates mbarriers that commits, which nobody waits for, have yet to arrive on.
        with pytest.raises(Fault, match=r"mbarrier-invalid: tcgen05\.commit"):
            launch()
        sim.options = Options()
    launch()
    torch.testing.assert_close(c.double(), a.double() @ b.double().t(), rtol=2e-3, atol=2e-2)


def test_host_descriptors(sim: SimulatedDriver) -> None:
    m, n, k = 256, 128, 128
    a, b, c = torch.randn(m, k).half(), torch.randn(n, k).half(), torch.empty(m, n).half()
    x, y = TensorDescriptor.from_tensor(a, [128, 64]), TensorDescriptor.from_tensor(b, [64, 64])
    z = TensorDescriptor.from_tensor(c, [128, 64])
    K.host_tma_matmul[(2, 2)](x, y, z, k, BM=128, BN=64, BK=64)
    torch.testing.assert_close(c.double(), a.double() @ b.double().t(), rtol=2e-3, atol=2e-2)


_E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


@pytest.mark.parametrize("kind", ["e4m3", "e5m2", "e2m1"])
def test_block_scaled_products(sim: SimulatedDriver, kind: str) -> None:
    if sim.device.target.capability == 80:
        pytest.skip("Triton has no e4m3 before sm_89 and lowers e2m1 through it")
    size, k = 128, 128
    scale_a, scale_b = (torch.randint(124, 131, (size, k // 32), dtype=torch.uint8) for _ in range(2))
    if kind == "e2m1":
        codes_a, codes_b = torch.randint(0, 16, (size, k)), torch.randint(0, 16, (k, size))
        table = torch.tensor(_E2M1 + [-v for v in _E2M1], dtype=torch.float64)
        wide_a, wide_b = table[codes_a], table[codes_b]
        a = (codes_a[:, ::2] | codes_a[:, 1::2] << 4).to(torch.uint8)
        b = (codes_b[::2] | codes_b[1::2] << 4).to(torch.uint8)
    else:
        to = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}[kind]
        a, b = torch.randn(size, k).to(to), torch.randn(k, size).to(to)
        wide_a, wide_b = a.double(), b.double()
    c = torch.empty(size, size)
    K.dot_scaled[(1,)](a, scale_a, b, scale_b, c, M=size, N=size, K=k, KIND=kind, PACK=2 if kind == "e2m1" else 1)
    left = wide_a * torch.exp2(scale_a.double() - 127).repeat_interleave(32, 1)
    right = wide_b * torch.exp2(scale_b.double() - 127).repeat_interleave(32, 1).t()
    expected = left @ right
    assert (c.double() - expected).abs().max() <= 1e-2 * expected.abs().max()
