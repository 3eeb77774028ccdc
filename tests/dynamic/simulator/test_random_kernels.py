"""Random kernels agree with numpy to the bit, in fast and in checked mode."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the simulator runs programs on torch tensors")
triton = pytest.importorskip("triton", reason="the simulator runs what Triton compiles")
sys.path.insert(0, str(Path(__file__).parent))

import random_kernels  # noqa: E402

from kcontract.dynamic.engines.simulator.driver import simulate  # noqa: E402
from kcontract.dynamic.engines.simulator.launch import Options  # noqa: E402


def agree(seed: int, target: str, folder: Path, checked: bool) -> None:
    program = random_kernels.make(seed)
    inputs = program.inputs(seed)
    kernel = random_kernels.load(program.source, folder, f"random_{seed}")
    tensors = {n: torch.from_numpy(v.view("i2") if v.dtype == np.uint16 else v) for n, v in inputs.items()}
    tensors = {n: v.view(torch.bfloat16) if n[0] == "b" else v for n, v in tensors.items()}
    floats, integers = torch.zeros(4, program.size), torch.zeros(4, program.size, dtype=torch.int32)
    with simulate(target, Options(checked=checked)):
        kernel[(1,)](
            *tensors.values(), floats, integers, N=program.size, num_warps=program.warps, enable_fp_fusion=False
        )
    expected = program.reference(inputs)
    finite = np.isfinite(expected[0])
    np.testing.assert_array_equal(floats.numpy()[finite], expected[0][finite], err_msg=program.source)
    np.testing.assert_array_equal(integers.numpy(), expected[1], err_msg=program.source)


@pytest.mark.parametrize("seed", range(6))
def test_random_kernels(seed: int, tmp_path: Path) -> None:
    agree(seed, ("sm_80", "sm_90", "sm_100")[seed % 3], tmp_path, checked=seed % 2 == 0)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_many_random_kernels(target: str, tmp_path: Path) -> None:
    for seed in range(100, 200):
        agree(seed, target, tmp_path, checked=False)
