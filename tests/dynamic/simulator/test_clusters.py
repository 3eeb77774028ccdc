"""Clusters, multicast, gathers, reductions, two-CTA products and copies into Tensor Memory give the right words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cluster_ptx import PROGRAMS, Program

from kcontract.dynamic.engines.simulator.engine import prepare
from kcontract.dynamic.engines.simulator.kernel import decode
from kcontract.dynamic.engines.simulator.options import Options


@pytest.mark.parametrize("checked", [False, True], ids=["fast", "checked"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_program(program: Program, checked: bool) -> None:
    given, out = program.fill(), np.zeros(1024, "u4")
    start = [x.__array_interface__["data"][0] for x in (given, out)]
    cube = int.from_bytes(program.map_of(*start), "little")
    grid = prepare(
        decode(program.text()), (program.ctas, 1, 1), {"in": given, "out": out, "map": cube}, 16384,
        options=Options(checked=checked), cluster=(program.ctas, 1, 1),
    )  # fmt: skip
    grid.run()
    np.testing.assert_array_equal(out, program.wanted(given))


@pytest.mark.parametrize("target", [pytest.param("sm_90", marks=pytest.mark.slow), "sm_100"])
def test_triton_kernels_of_two_ctas(target: str) -> None:
    torch = pytest.importorskip("torch", reason="Triton launches on torch tensors")
    pytest.importorskip("triton", reason="the kernels are Triton's")
    import simulated_kernels as K

    from kcontract.dynamic.engines.simulator.driver import simulate

    torch.manual_seed(0)
    x, out = torch.randn(64, 128), torch.empty(128)
    a, b, c = torch.randn(256, 64).half(), torch.randn(64, 128).half(), torch.empty(256, 128)
    with simulate(target, Options(checked=True)) as driver:
        K.column_sums[(1,)](x, out, M=64, N=128, num_ctas=2)
        assert driver.last is not None and driver.last.cluster_size == 2
        torch.testing.assert_close(out, x.sum(0))
        K.matmul[(1, 1)](a, b, c, 256, 128, 64, BM=256, BN=128, BK=64, STAGES=1, TRANS=False, num_ctas=2)
        torch.testing.assert_close(c, a.float() @ b.float(), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_the_assembler_takes_it(program: Program, tmp_path: Path) -> None:
    compiler = pytest.importorskip("triton.backends.nvidia.compiler", reason="Triton brings the assembler")
    (tmp_path / "k.ptx").write_text(program.text())
    command = [compiler.get_ptxas(100).path, "-arch=sm_100a", str(tmp_path / "k.ptx"), "-o", str(tmp_path / "k")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
