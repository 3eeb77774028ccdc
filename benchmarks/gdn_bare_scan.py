"""Times the smallest wgmma scan (gdn_bare_scan.cu, two dependent products a chunk and no results) beside the reverse
half of the Hopper backward's scan, which does five products a chunk and writes dh and Y.

    python benchmarks/gdn_bare_scan.py

Needs an sm_90 GPU and nvcc. K = V = 128. One line a size: microseconds of each, and a chunk's step of each. First the
bare scan is checked against float64.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path
from typing import Any

SIZES = [(1, 2048, 8), (1, 8192, 8), (8, 2048, 32)]


def build(folder: str) -> Any:
    source = Path(__file__).with_suffix(".cu")
    library = Path(folder, "bare_scan.so")
    target = "-gencode=arch=compute_90a,code=sm_90a"
    subprocess.run(["nvcc", "-O3", target, "-Xcompiler", "-fPIC", "-shared", source, "-o", library], check=True)
    return ctypes.CDLL(str(library)).launch


def call(launch: Any, k: Any, state: Any, decay: float) -> None:
    import torch

    heads, chunks = k.shape[:2]
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    pointers = (ctypes.c_void_p(k.data_ptr()), ctypes.c_void_p(state.data_ptr()))
    error = launch(*pointers, heads, state.shape[1] // 64, chunks, ctypes.c_float(decay), stream)
    if error:
        raise SystemExit(f"CUDA error {error}")


def inputs(heads: int, chunks: int) -> tuple[Any, Any]:
    import torch

    torch.manual_seed(0)
    k = torch.nn.functional.normalize(torch.randn(heads, chunks, 64, 128, device="cuda"), dim=-1)
    return (0.5 * k).bfloat16(), torch.randn(heads, 128, 128, device="cuda")


def error(launch: Any) -> float:
    """Relative error against float64; rounding Z and D to bfloat16 accounts for 1e-3 to 1e-2."""
    k, state = inputs(4, 8)
    want = state.double()
    for c in range(8):
        tile = k[:, c].double()
        want = 0.9 * want - want @ tile.mT @ tile
    call(launch, k, state, 0.9)
    return float((state.double() - want).norm() / want.norm())


def reverse_scan(B: int, T: int, H: int) -> Any:
    """The reverse half of `backward_scans`, alone."""
    import torch

    from kcontract.kernels.gdn.hopper_scan import backward_scans

    tiles = B * T // 64
    draw = lambda *shape: torch.randn(*shape, device="cuda").bfloat16()  # noqa: E731
    q, k, v, do = (draw(B, T, H, 128) for _ in range(4))
    N, P, h, Y = draw(tiles, H, 64, 64), draw(tiles, H, 64, 64), draw(tiles, H, 128, 128), draw(tiles, H, 64, 128)
    rows = 1e-3 * torch.rand(tiles, H, 4, 64, device="cuda")
    return lambda: backward_scans[(2, B * H, 1)](
        q, k, v, do, rows, N, P, h, h, Y, Y, rows, rows, rows, rows, rows, 0.1, T, T // 64, H, H,
        VARLEN=False, HAS_H0=False, HAS_DHT=False, WANT_DH0=False, num_warps=4,
    )  # fmt: skip


def main() -> None:
    import triton

    with tempfile.TemporaryDirectory() as folder:
        launch = build(folder)
        print(f"error against float64 {error(launch):.1e}")
        for B, T, H in SIZES:
            k, state = inputs(B * H, T // 64)
            bare = lambda k=k, state=state: call(launch, k, state, 0.9)  # noqa: E731
            times = [
                1e3 * float(triton.testing.do_bench_cudagraph(x, rep=20, return_mode="median"))
                for x in (bare, reverse_scan(B, T, H))
            ]
            steps = [x / (T // 64) for x in times]
            print(
                f"{B}x{T}x{H} bare {times[0]:.0f} us ({steps[0]:.2f} a step) reverse scan {times[1]:.0f} us "
                f"({steps[1]:.2f} a step) ratio {times[1] / times[0]:.2f}"
            )


if __name__ == "__main__":
    main()
