"""Last launch of the backward for Hopper (sm_90) in Gluon: K = V = 128, 16-bit inputs, a scalar gate.

What `gradients` computes, from the states and rows that `hopper_scan` keeps. A program is one warpgroup; everything it
reads is copied to shared memory at once, 112 KB, so that two programs fit on a multiprocessor. Terms with a transposed
left operand come from products computed both ways round, so that each stays in registers. Row sums pass through shared
memory: the assembler would put them off otherwise, and keep and spill what they add up.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# The bodies below are Gluon, compiled for the GPU; annotations there mean compile-time constants, not Python types.

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    async_copy,
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from kcontract.kernels.gdn.hopper_scan import CHUNK, PLAIN, WIDTH, fetch

HALF = gl.constexpr(64)
"""Channels of K at a time."""


@gluon.jit
def _finish(x, shared, sums, out, offset, row_stride, left, u, GROUP: gl.constexpr, layout: gl.constexpr):
    """Add the value heads before this one; write the sum, or with the last value head the result by way of ``shared``."""
    if GROUP > 1:
        rows = gl.arange(0, CHUNK, gl.SliceLayout(1, layout))
        cols = gl.arange(0, HALF, gl.SliceLayout(0, layout))
        at = sums + offset + (rows[:, None] * row_stride + cols[None, :])
        inside = (rows < left)[:, None]
        if u > 0:
            x += gl.load(at, mask=inside, other=0.0)
        if u < GROUP - 1:
            gl.store(at, x, mask=inside)
    if u == GROUP - 1:
        wide: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
        line = gl.arange(0, CHUNK, gl.SliceLayout(1, wide))
        column = gl.arange(0, HALF, gl.SliceLayout(0, wide))
        shared.store(x.to(out.dtype.element_ty))
        to = out + offset + (line[:, None] * row_stride + column[None, :])
        gl.store(to, shared.load(wide), mask=(line < left)[:, None])


@gluon.jit
def backward_gradients(
    q, k, v, rows, do, h, dh, Vn, Y, dq, dk, dv, dq_sum, dk_sum, dg, db, cu_seqlens, chunk_sequence, chunk_start,
    scale, T, NT, N, H,
    GROUP: gl.constexpr, VARLEN: gl.constexpr,
):  # fmt: skip
    """Grid (H, chunks). Arguments as those of `gradients_scalar`; dv, ``[.., H * GROUP, V]``, is written here too."""
    acc: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    left_of: gl.constexpr = gl.DotOperandLayout(0, acc, 2)
    flat: gl.constexpr = gl.BlockedLayout([1, 8], [2, 16], [4, 1], [1, 0])
    lines: gl.constexpr = gl.BlockedLayout([1, HALF], [32, 1], [4, 1], [1, 0])
    dtype: gl.constexpr = q.dtype.element_ty
    wide_s: gl.constexpr = gl.NVMMASharedLayout.get_default_for([CHUNK, WIDTH], dtype)
    half_s: gl.constexpr = gl.NVMMASharedLayout.get_default_for([CHUNK, HALF], dtype)

    hk = gl.program_id(0)
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
        q_s = gl.allocate_shared_memory(dtype, [2, CHUNK, HALF], half_s)
        k_s = gl.allocate_shared_memory(dtype, [2, CHUNK, HALF], half_s)
        do_s = gl.allocate_shared_memory(dtype, [CHUNK, WIDTH], wide_s)
        vn_s = gl.allocate_shared_memory(dtype, [CHUNK, WIDTH], wide_s)
        y_s = gl.allocate_shared_memory(dtype, [CHUNK, WIDTH], wide_s)
        h_s = gl.allocate_shared_memory(dtype, [WIDTH, HALF], half_s)
        dh_s = gl.allocate_shared_memory(dtype, [WIDTH, HALF], half_s)
        sums_s = gl.allocate_shared_memory(gl.float32, [3, CHUNK], PLAIN)
        line: gl.constexpr = gl.SliceLayout(1, acc)
        HV = H * GROUP
        token = (first * H + hk) * WIDTH
        for kb in gl.static_range(2):
            fetch(q_s.index(kb), q + token + kb * HALF, H * WIDTH, left, CHUNK, HALF)
            fetch(k_s.index(kb), k + token + kb * HALF, H * WIDTH, left, CHUNK, HALF)
        i = gl.arange(0, CHUNK, gl.SliceLayout(1, acc))
        j = gl.arange(0, CHUNK, gl.SliceLayout(0, acc))
        below = i[:, None] > j[None, :]
        above = i[:, None] < j[None, :]
        zero = gl.zeros([CHUNK, CHUNK], gl.float32, acc)
        for u in range(GROUP):
            hv = hk * GROUP + u
            tile = chunk.to(gl.int64) * HV + hv
            value = (first * HV + hv) * WIDTH
            state = tile * (WIDTH * WIDTH)
            fetch(do_s, do + value, HV * WIDTH, left, CHUNK, WIDTH)
            fetch(vn_s, Vn + tile * (CHUNK * WIDTH), WIDTH, CHUNK, CHUNK, WIDTH)
            fetch(y_s, Y + tile * (CHUNK * WIDTH), WIDTH, CHUNK, CHUNK, WIDTH)
            async_copy.commit_group()
            fetch(h_s, h + state, WIDTH, WIDTH, WIDTH, HALF)
            fetch(dh_s, dh + state, WIDTH, WIDTH, WIDTH, HALF)
            async_copy.commit_group()

            token_row = gl.arange(0, CHUNK, gl.SliceLayout(1, flat))
            at = value + (token_row[:, None] * (HV * WIDTH) + gl.arange(0, WIDTH, gl.SliceLayout(0, flat))[None, :])
            within = (token_row < left)[:, None]
            v_tile = gl.load(v + at, mask=within, other=0.0)
            kept = rows + tile * (4 * CHUNK)
            b_token = gl.load(kept + 2 * CHUNK + token_row)
            async_copy.wait_group(1)
            fence_async_shared()
            y = y_s.load(flat).to(gl.float32)
            sums_s.index(0).store(gl.sum(y * v_tile.to(gl.float32), 1))
            gl.store(dv + at, (y * b_token[:, None]).to(dv.dtype.element_ty), mask=within)
            s = warpgroup_mma(do_s, vn_s.permute((1, 0)), zero, use_acc=False, is_async=True)
            s_t = warpgroup_mma(vn_s, do_s.permute((1, 0)), zero, use_acc=False, is_async=True)
            cum = gl.load(kept + 3 * CHUNK + i)
            cum_j = gl.load(kept + 3 * CHUNK + j)
            gates = gl.exp(-gl.abs(cum[:, None] - cum_j[None, :]))
            s, s_t = warpgroup_mma_wait(0, deps=[s, s_t])
            dP = gl.convert_layout((scale * gl.where(above, 0.0, s * gates)).to(dtype), left_of)
            dP_t = gl.convert_layout((scale * gl.where(below, 0.0, s_t * gates)).to(dtype), left_of)

            low = warpgroup_mma(y_s, vn_s.permute((1, 0)), zero, use_acc=False, is_async=True)
            low_t = warpgroup_mma(vn_s, y_s.permute((1, 0)), zero, use_acc=False, is_async=True)
            pairs = warpgroup_mma(k_s.index(0), k_s.index(0).permute((1, 0)), zero, use_acc=False, is_async=True)
            pairs = warpgroup_mma(k_s.index(1), k_s.index(1).permute((1, 0)), pairs, is_async=True)
            b = gl.load(kept + 2 * CHUNK + i)
            b_j = gl.load(kept + 2 * CHUNK + j)
            low, low_t, pairs = warpgroup_mma_wait(0, deps=[low, low_t, pairs])
            pairs *= gates
            low = gl.where(below, -low, 0.0)
            sums_s.index(1).store(gl.sum(low * pairs, 1))
            low_t = gl.where(above, -low_t, 0.0) * b_j[None, :]
            sums_s.index(2).store(gl.sum(low_t * pairs, 1))
            both = gl.convert_layout((gates * (low * b[:, None] + low_t)).to(dtype), left_of)

            row_l = sums_s.index(1).load(line)
            row_b = sums_s.index(0).load(line) + row_l
            dga = b * row_l - sums_s.index(2).load(line)
            gam = gl.load(kept + i)
            r = gl.load(kept + CHUNK + i)
            last = gl.zeros([CHUNK], gl.float32, line)
            states = 0.0
            for kb in gl.static_range(2):
                async_copy.wait_group(0)
                fence_async_shared()
                states += gl.sum(gl.sum(h_s.load(lines).to(gl.float32) * dh_s.load(lines).to(gl.float32), 1), 0)
                x_q = warpgroup_mma(do_s, h_s, zero, use_acc=False, is_async=True)
                x_y = warpgroup_mma(y_s, h_s, zero, use_acc=False, is_async=True)
                x_k = warpgroup_mma(vn_s, dh_s, zero, use_acc=False, is_async=True)
                x_q, x_y, x_k = warpgroup_mma_wait(0, deps=[x_q, x_y, x_k])
                if kb == 0:
                    fetch(h_s, h + state + HALF, WIDTH, WIDTH, WIDTH, HALF)
                    fetch(dh_s, dh + state + HALF, WIDTH, WIDTH, WIDTH, HALF)
                    async_copy.commit_group()
                k_tile = k_s.index(kb).load(acc).to(gl.float32)
                x_q *= (scale * gam)[:, None]
                x_q = warpgroup_mma(dP, k_s.index(kb), x_q, is_async=True)
                x_y *= gam[:, None]
                sums_s.index(0).store(gl.sum(x_y * k_tile, 1))
                x_k *= r[:, None]
                sums_s.index(1).store(gl.sum(x_k * k_tile, 1))
                x_k -= b[:, None] * x_y
                x_k = warpgroup_mma(dP_t, q_s.index(kb), x_k, is_async=True)
                x_q, x_k = warpgroup_mma_wait(0, deps=[x_q, x_k])
                q_tile = q_s.index(kb).load(acc).to(gl.float32)
                sums_s.index(2).store(gl.sum(x_q * q_tile - x_k * k_tile, 1))
                row_y = sums_s.index(0).load(line)
                last += sums_s.index(1).load(line)
                row_b -= row_y
                dga += sums_s.index(2).load(line) - 2.0 * b * row_y
                x_k = warpgroup_mma(both, k_s.index(kb), x_k)
                offset = token + kb * HALF
                _finish(x_q, q_s.index(kb), dq_sum, dq, offset, H * WIDTH, left, u, GROUP, acc)
                _finish(x_k, k_s.index(kb), dk_sum, dk, offset, H * WIDTH, left, u, GROUP, acc)
            gl.store(db + (first + i) * HV + hv, row_b, mask=i < left)
            sums_s.index(0).store(dga)
            total = gl.sum(last, 0) + gl.load(kept + CHUNK - 1) * states
            dga_j = sums_s.index(0).load(gl.SliceLayout(0, acc))
            back = gl.sum(gl.where(below, 0.0, dga_j[None, :]), 1) + total
            gl.store(dg + (first + i) * HV + hv, back, mask=i < left)
