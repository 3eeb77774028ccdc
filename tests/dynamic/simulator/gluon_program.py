"""A Gluon product in Tensor Memory, run in both modes: a program of its own, since LLVM may end the process."""

from __future__ import annotations

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
)

from kcontract.dynamic.engines.simulator.driver import simulate
from kcontract.dynamic.engines.simulator.options import Options


@gluon.jit
def gemm(a, b, c, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr, num_warps: gl.constexpr):
    rows: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [num_warps, 1], [1, 0])
    m = gl.arange(0, M, gl.SliceLayout(1, rows))
    n = gl.arange(0, N, gl.SliceLayout(1, rows))
    k = gl.arange(0, K, gl.SliceLayout(0, rows))
    shared: gl.constexpr = gl.NVMMASharedLayout(128, 16, rank=2)
    x = gl.allocate_shared_memory(gl.float16, [M, K], shared, gl.load(a + m[:, None] * K + k[None, :]))
    y = gl.allocate_shared_memory(gl.float16, [N, K], shared, gl.load(b + n[:, None] * K + k[None, :]))
    done = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(done, count=1)
    acc = allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([M, N], col_stride=1))
    fence_async_shared()
    tcgen05_mma(x, y.permute((1, 0)), acc, use_acc=False)
    tcgen05_commit(done)
    mbarrier.wait(done, 0)
    mbarrier.invalidate(done)
    out: gl.constexpr = gl.BlockedLayout([1, N], [32, 1], [num_warps, 1], [0, 1])
    found = gl.convert_layout(acc.load(), out)
    i = gl.arange(0, M, gl.SliceLayout(1, out))
    j = gl.arange(0, N, gl.SliceLayout(0, out))
    gl.store(c + i[:, None] * N + j[None, :], found)


def main() -> None:
    for checked in (False, True):
        with simulate("sm_100", Options(checked=checked)) as driver:
            a, b, c = torch.randn(128, 64).half(), torch.randn(64, 64).half(), torch.empty(128, 64)
            gemm[(1,)](a, b, c, M=128, N=64, K=64, num_warps=4)
            torch.testing.assert_close(c, a.float() @ b.float().t(), rtol=1e-5, atol=1e-4)
            assert driver.last is not None
            assert any(i.name.startswith("tcgen05.mma") for i in driver.last.kernel.function.instructions)
    print("right")


if __name__ == "__main__":
    main()
