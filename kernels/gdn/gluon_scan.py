"""The reverse state scan for sm_100 in Gluon, with Tensor Memory laid out by hand.

The same step as `scan._reverse` for a scalar gate, K in (64, 128) and tiles of 128 rows of V, one program a tile and
head. Rows of V are the 128 lanes of Tensor Memory, so every product is M = 128. Columns of 32 bits at K = 128:

    D         128   the transposed gradient of the state, float32, resident for the whole scan
    D16        64   its 16-bit copy, left operand of the first product
    chunk      64   dVn, later Y, float32
    local      64   dO^T P, float32
    left       32   the 16-bit left operand made from `chunk`
    total     352   of 512 (the allocation is rounded up to a power of two)

It is a subject for checks of the compiler's output and the model of the native kernel. `chunk_gated_delta_rule` does
not launch it: its PTX has run in a simulator, never on an sm_100 device. It compiles with Triton 3.6 and 3.9; for other
targets the compiler aborts the process.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# The bodies below are Gluon, compiled for the GPU; annotations there mean compile-time constants, not Python types.

from __future__ import annotations

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


@gluon.jit
def _stage(shared, pointer, rows, cols, row_stride, limit):
    """Copy a tile into shared memory; rows from ``limit`` on become zeros."""
    tile = gl.load(pointer + rows[:, None] * row_stride + cols[None, :], mask=(rows < limit)[:, None], other=0.0)
    shared.store(tile)


@gluon.jit
def reverse_scan(
    k, do, beta, ga, A, P, Qg, dh, Y, dv, dht, dh0, T, NT, H, HV, V,
    K: gl.constexpr, C: gl.constexpr, num_warps: gl.constexpr,
):  # fmt: skip
    """Grid (V / 128, B * HV). Buffers as in `scan`; dht is read and dh0 written, both float32 ``[B, HV, K, V]``."""
    ROWS: gl.constexpr = 128
    dtype: gl.constexpr = k.dtype.element_ty
    wide: gl.constexpr = gl.BlockedLayout([1, 8], [32 // (K // 8), K // 8], [num_warps, 1], [1, 0])
    square: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [num_warps, 1], [1, 0])
    turned: gl.constexpr = gl.BlockedLayout([8, 1], [16, 2], [1, num_warps], [0, 1])
    state: gl.constexpr = gl.BlockedLayout([1, K], [32, 1], [num_warps, 1], [0, 1])
    chunk: gl.constexpr = gl.BlockedLayout([1, C], [32, 1], [num_warps, 1], [0, 1])

    n = gl.program_id(1) // HV
    hv = gl.program_id(1) % HV
    hk = hv // (HV // H)
    top = gl.program_id(0) * ROWS

    D = allocate_tensor_memory(gl.float32, [ROWS, K], TensorMemoryLayout([ROWS, K], col_stride=1))
    D16 = allocate_tensor_memory(dtype, [ROWS, K], TensorMemoryLayout([ROWS, K], col_stride=1))
    acc = allocate_tensor_memory(gl.float32, [ROWS, C], TensorMemoryLayout([ROWS, C], col_stride=1))
    local = allocate_tensor_memory(gl.float32, [ROWS, C], TensorMemoryLayout([ROWS, C], col_stride=1))
    left = allocate_tensor_memory(dtype, [ROWS, C], TensorMemoryLayout([ROWS, C], col_stride=1))
    k_shared = gl.allocate_shared_memory(dtype, [C, K], gl.NVMMASharedLayout.get_default_for([C, K], dtype))
    q_shared = gl.allocate_shared_memory(dtype, [C, K], gl.NVMMASharedLayout.get_default_for([C, K], dtype))
    do_shared = gl.allocate_shared_memory(dtype, [C, ROWS], gl.NVMMASharedLayout.get_default_for([C, ROWS], dtype))
    p_shared = gl.allocate_shared_memory(dtype, [C, C], gl.NVMMASharedLayout.get_default_for([C, C], dtype))
    a_shared = gl.allocate_shared_memory(dtype, [C, C], gl.NVMMASharedLayout.get_default_for([C, C], dtype))
    done = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(done, count=1)

    x = top + gl.arange(0, ROWS, gl.SliceLayout(1, state))
    d = gl.arange(0, K, gl.SliceLayout(0, state))
    boundary = (n * HV + hv).to(gl.int64) * K * V + x[:, None] + d[None, :] * V
    D.store(gl.load(dht + boundary))
    wide_rows = gl.arange(0, C, gl.SliceLayout(1, wide))
    wide_cols = gl.arange(0, K, gl.SliceLayout(0, wide))
    flat: gl.constexpr = gl.BlockedLayout([1, 8], [2, 16], [num_warps, 1], [1, 0])
    do_rows = gl.arange(0, C, gl.SliceLayout(1, flat))
    do_cols = gl.arange(0, ROWS, gl.SliceLayout(0, flat))
    square_rows = gl.arange(0, C, gl.SliceLayout(1, square))
    square_cols = gl.arange(0, C, gl.SliceLayout(0, square))
    i = gl.arange(0, C, gl.SliceLayout(0, chunk))
    out_x = top + gl.arange(0, ROWS, gl.SliceLayout(1, turned))
    out_i = gl.arange(0, C, gl.SliceLayout(0, turned))
    kept_x = top + gl.arange(0, ROWS, gl.SliceLayout(1, wide))

    phase = 0
    for back in range(NT):
        c = NT - 1 - back
        tile = (n * NT + c).to(gl.int64) * HV + hv
        first = n.to(gl.int64) * T + c * C
        limit = T - c * C
        _stage(k_shared, k + (first * H + hk) * K, wide_rows, wide_cols, H * K, limit)
        _stage(q_shared, Qg + tile * C * K, wide_rows, wide_cols, K, C)
        _stage(do_shared, do + (first * HV + hv) * V + top, do_rows, do_cols, HV * V, limit)
        _stage(p_shared, P + tile * C * C, square_rows, square_cols, C, C)
        _stage(a_shared, A + tile * C * C, square_rows, square_cols, C, C)
        cum = gl.load(ga + tile * C + i)
        end = gl.load(ga + tile * C + C - 1)
        b = gl.load(beta + (first + i) * HV + hv, mask=i < limit, other=0.0).to(gl.float32)

        whole = D.load(state)
        whole16 = whole.to(dtype)
        D16.store(whole16)
        gl.store(dh + tile * V * K + kept_x[:, None] * K + wide_cols[None, :], gl.convert_layout(whole16, wide))
        D.store(whole * gl.exp(end))
        fence_async_shared()
        tcgen05_mma(D16, k_shared.permute((1, 0)), acc, use_acc=False)
        tcgen05_mma(do_shared.permute((1, 0)), p_shared, local, use_acc=False)
        tcgen05_mma(do_shared.permute((1, 0)), q_shared, D, use_acc=True)
        tcgen05_commit(done)
        mbarrier.wait(done, phase)
        phase ^= 1

        dvn = acc.load(chunk) * gl.exp(end - cum)[None, :] + local.load(chunk)
        left.store(dvn.to(dtype))
        tcgen05_mma(left, a_shared, acc, use_acc=False)
        tcgen05_commit(done)
        mbarrier.wait(done, phase)
        phase ^= 1

        y = acc.load(chunk)
        out = Y + tile * C * V + out_x[:, None] + out_i[None, :] * V
        gl.store(out, gl.convert_layout(y.to(dtype), turned))
        y *= b[None, :]
        out = dv + (first * HV + hv) * V + out_x[:, None] + out_i[None, :] * (HV * V)
        gl.store(out, gl.convert_layout(y.to(dtype), turned), mask=(out_i < limit)[None, :])
        left.store((y * -gl.exp(cum)[None, :]).to(dtype))
        tcgen05_mma(left, k_shared, D, use_acc=True)
        tcgen05_commit(done)
        mbarrier.wait(done, phase)
        phase ^= 1
    gl.store(dh0 + boundary, D.load(state))
    mbarrier.invalidate(done)
