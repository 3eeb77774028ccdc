"""Last launch of the backward for Hopper (sm_90) in Gluon: K = V = 128, 16-bit inputs, a scalar gate.

What `gradients` computes, from the states and rows that `hopper_scan` keeps. A program is one warpgroup; everything it
reads passes through 113 KB of shared memory, so two programs fit on a multiprocessor. dP lies there too and is read
both ways round; dL is computed both ways round, so that its symmetric sum stays in registers. Row sums pass through
shared memory: the assembler would put them off otherwise, and keep and spill what they add up.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# The bodies below are Gluon, compiled for the GPU; annotations there mean compile-time constants, not Python types.

from __future__ import annotations

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    async_copy,
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from kcontract.kernels.gdn.hopper_scan import CHUNK, PLAIN, WIDTH, fetch
from kcontract.kernels.gdn.tiles import SIZES

HALF = gl.constexpr(64)
"""Channels of K at a time."""


@gluon.jit
def _write(pointer, x, shared, row_stride, left):
    """Write the first ``left`` rows of x, by way of ``shared``."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    rows = gl.arange(0, CHUNK, gl.SliceLayout(1, layout))
    cols = gl.arange(0, HALF, gl.SliceLayout(0, layout))
    shared.store(x.to(pointer.dtype.element_ty))
    at = pointer + (rows[:, None] * row_stride + cols[None, :])
    gl.store(at, shared.load(layout), mask=(rows < left)[:, None])


@gluon.jit(do_not_specialize=SIZES)
def backward_gradients(
    q, k, rows, do, h, dh, W, Y, dq, dk, dv, dg, db, cu_seqlens, chunk_sequence, chunk_start, scale, T, NT, N, H, HV,
    VARLEN: gl.constexpr,
):  # fmt: skip
    """Grid (HV, chunks). Write dq, dk ``[.., HV, K]``, one for each value head, dv, and in float32 dg, db."""
    acc: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    left_of: gl.constexpr = gl.DotOperandLayout(0, acc, 2)
    flat: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    lines: gl.constexpr = gl.BlockedLayout([1, HALF], [32, 1], [4, 1], [1, 0])
    dtype: gl.constexpr = q.dtype.element_ty
    wide_s: gl.constexpr = gl.NVMMASharedLayout.get_default_for([CHUNK, WIDTH], dtype)
    half_s: gl.constexpr = gl.NVMMASharedLayout.get_default_for([CHUNK, HALF], dtype)

    hv = gl.program_id(0)
    hk = hv // (HV // H)
    chunk = gl.program_id(1)
    if VARLEN:
        n = gl.load(chunk_sequence + chunk)
        begin = gl.load(cu_seqlens + n, mask=n < N, other=0).to(gl.int64)
        finish = gl.load(cu_seqlens + n + 1, mask=n < N, other=0).to(gl.int64)
        first = begin + (chunk - gl.load(chunk_start + n, mask=n < N, other=0)).to(gl.int64) * CHUNK
        left = (finish - first).to(gl.int32)
    else:
        n = chunk // NT
        first = n.to(gl.int64) * T + (chunk % NT) * CHUNK
        left = T - (chunk % NT) * CHUNK
    if n < N:
        q_s = gl.allocate_shared_memory(dtype, [CHUNK, HALF], half_s)
        p_s = gl.allocate_shared_memory(dtype, [CHUNK, CHUNK], half_s)
        k_s = gl.allocate_shared_memory(dtype, [2, CHUNK, HALF], half_s)
        do_s = gl.allocate_shared_memory(dtype, [CHUNK, WIDTH], wide_s)
        w_s = gl.allocate_shared_memory(dtype, [CHUNK, WIDTH], wide_s)
        y_s = gl.allocate_shared_memory(dtype, [CHUNK, WIDTH], wide_s)
        h_s = gl.allocate_shared_memory(dtype, [WIDTH, HALF], half_s)
        dh_s = gl.allocate_shared_memory(dtype, [WIDTH, HALF], half_s)
        sums_s = gl.allocate_shared_memory(gl.float32, [2, CHUNK], PLAIN)
        line: gl.constexpr = gl.SliceLayout(1, acc)
        token = (first * H + hk) * WIDTH
        for kb in gl.static_range(2):
            fetch(k_s.index(kb), k + token + kb * HALF, H * WIDTH, left, CHUNK, HALF)
        i = gl.arange(0, CHUNK, gl.SliceLayout(1, acc))
        j = gl.arange(0, CHUNK, gl.SliceLayout(0, acc))
        below = i[:, None] > j[None, :]
        above = i[:, None] < j[None, :]
        zero = gl.zeros([CHUNK, CHUNK], gl.float32, acc)
        tile = chunk.to(gl.int64) * HV + hv
        value = (first * HV + hv) * WIDTH
        state = tile * (WIDTH * WIDTH)
        fetch(do_s, do + value, HV * WIDTH, left, CHUNK, WIDTH)
        fetch(w_s, W + tile * (CHUNK * WIDTH), WIDTH, CHUNK, CHUNK, WIDTH)
        fetch(y_s, Y + tile * (CHUNK * WIDTH), WIDTH, CHUNK, CHUNK, WIDTH)
        async_copy.commit_group()
        fetch(h_s, h + state, WIDTH, WIDTH, WIDTH, HALF)
        fetch(dh_s, dh + state, WIDTH, WIDTH, WIDTH, HALF)
        fetch(q_s, q + token, H * WIDTH, left, CHUNK, HALF)
        async_copy.commit_group()

        kept = rows + tile * (4 * CHUNK)
        async_copy.wait_group(1)
        fence_async_shared()
        s = warpgroup_mma(do_s, w_s.permute((1, 0)), zero, use_acc=False, is_async=True)
        b = gl.load(kept + 2 * CHUNK + i)
        b_j = gl.load(kept + 2 * CHUNK + j)
        cum = gl.load(kept + 3 * CHUNK + i)
        cum_j = gl.load(kept + 3 * CHUNK + j)
        gates = gl.exp(-gl.abs(cum[:, None] - cum_j[None, :]))
        s = warpgroup_mma_wait(0, deps=[s])
        p_s.store((gl.where(above, 0.0, s * gates) * (scale * b_j)[None, :]).to(dtype))

        low = warpgroup_mma(y_s, w_s.permute((1, 0)), zero, use_acc=False, is_async=True)
        low_t = warpgroup_mma(w_s, y_s.permute((1, 0)), zero, use_acc=False, is_async=True)
        pairs = warpgroup_mma(k_s.index(0), k_s.index(0).permute((1, 0)), zero, use_acc=False, is_async=True)
        pairs = warpgroup_mma(k_s.index(1), k_s.index(1).permute((1, 0)), pairs, is_async=True)
        gates *= b[:, None] * -b_j[None, :]
        fence_async_shared()
        low, low_t, pairs = warpgroup_mma_wait(0, deps=[low, low_t, pairs])
        low *= gates
        sums_s.index(0).store(gl.sum(gl.where(below, low * pairs, 0.0), 1))
        low_t *= gates
        both = gl.where(below, low, gl.where(above, low_t, 0.0))
        both = gl.convert_layout(both.to(dtype), left_of)

        dga = 2.0 * sums_s.index(0).load(line)
        gam = gl.load(kept + i)
        r = gl.load(kept + CHUNK + i)
        last = 0.0
        states = 0.0
        for kb in gl.static_range(2):
            async_copy.wait_group(0)
            fence_async_shared()
            states += gl.sum(gl.sum(h_s.load(lines).to(gl.float32) * dh_s.load(lines).to(gl.float32), 1), 0)
            x_q = warpgroup_mma(do_s, h_s, zero, use_acc=False, is_async=True)
            x_y = warpgroup_mma(y_s, h_s, zero, use_acc=False, is_async=True)
            x_k = warpgroup_mma(w_s, dh_s, zero, use_acc=False, is_async=True)
            x_q, x_y, x_k = warpgroup_mma_wait(0, deps=[x_q, x_y, x_k])
            if kb == 0:
                fetch(h_s, h + state + HALF, WIDTH, WIDTH, WIDTH, HALF)
                fetch(dh_s, dh + state + HALF, WIDTH, WIDTH, WIDTH, HALF)
                async_copy.commit_group()
            k_tile = k_s.index(kb).load(acc).to(gl.float32)
            x_q *= (scale * gam)[:, None]
            x_q = warpgroup_mma(p_s, k_s.index(kb), x_q, is_async=True)
            x_y *= gam[:, None]
            sums_s.index(0).store(gl.sum(x_y * k_tile, 1))
            x_k *= (b * r)[:, None]
            last += gl.sum(gl.sum(x_k * k_tile, 1), 0)
            x_k -= b[:, None] * x_y
            x_k = warpgroup_mma(p_s.permute((1, 0)), q_s, x_k, is_async=True)
            x_k = warpgroup_mma(both, k_s.index(kb), x_k, is_async=True)
            x_q, x_k = warpgroup_mma_wait(0, deps=[x_q, x_k])
            q_tile = q_s.load(acc).to(gl.float32)
            if kb == 0:
                fetch(q_s, q + token + HALF, H * WIDTH, left, CHUNK, HALF)
                async_copy.commit_group()
            sums_s.index(1).store(gl.sum(x_q * q_tile - x_k * k_tile, 1))
            dga += sums_s.index(1).load(line) - 2.0 * b * sums_s.index(0).load(line)
            offset = value + kb * HALF
            _write(dq + offset, x_q, k_s.index(kb), HV * WIDTH, left)
            _write(dk + offset, x_k, k_s.index(kb), HV * WIDTH, left)
        sums_s.index(0).store(dga)
        total = last + gl.load(kept + CHUNK - 1) * states
        dga_j = sums_s.index(0).load(gl.SliceLayout(0, acc))
        back = gl.sum(gl.where(below, 0.0, dga_j[None, :]), 1) + total
        gl.store(dg + (first + i) * HV + hv, back, mask=i < left)

        row = gl.arange(0, CHUNK, gl.SliceLayout(1, flat))
        b_row = gl.load(kept + 2 * CHUNK + row)
        row_b = gl.zeros([CHUNK], gl.float32, gl.SliceLayout(1, flat))
        for half in gl.static_range(2):
            y = y_s.slice(half * HALF, HALF, dim=1).load(flat).to(gl.float32)
            row_b += gl.sum(y * w_s.slice(half * HALF, HALF, dim=1).load(flat).to(gl.float32), 1)
            at = value + (row[:, None] * (HV * WIDTH) + gl.arange(0, HALF, gl.SliceLayout(0, flat))[None, :])
            gl.store(dv + at + half * HALF, (y * b_row[:, None]).to(dv.dtype.element_ty), mask=(row < left)[:, None])
        gl.store(db + (first + row) * HV + hv, row_b, mask=row < left)


@triton.jit(do_not_specialize=["rows"])
def sum_of_heads(dq, dk, dq_heads, dk_heads, rows, GROUP: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr):
    """Grid (rows / BLOCK, 2). dq and dk ``[rows, K]`` from ``[rows, GROUP, K]``, summed in float32."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, K)
    inside = (i < rows)[:, None]
    out = dq if tl.program_id(1) == 0 else dk
    heads = dq_heads if tl.program_id(1) == 0 else dk_heads
    total = tl.zeros((BLOCK, K), dtype=tl.float32)
    for u in tl.static_range(GROUP):
        at = heads + (i.to(tl.int64)[:, None] * GROUP + u) * K + d[None, :]
        total += tl.load(at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + i.to(tl.int64)[:, None] * K + d[None, :], total.to(out.dtype.element_ty), mask=inside)
