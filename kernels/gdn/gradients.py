"""Last launch of the backward, parallel over (chunk, query head): all gradients of a chunk from the states at its two ends.

A program walks the value heads of its query head in order and sums dq and dk in registers, so that no atomic is needed. Results
that are needed transposed are computed transposed: no product takes a transposed accumulator as its left operand, the form that
Triton 3.4 to 3.7.0 miscompiles on Hopper.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
# The bodies below are Triton's language, compiled for the GPU; annotations there mean compile-time constants, not Python types.

from __future__ import annotations

import triton
import triton.language as tl

from kcontract.kernels.gdn.tiles import decay_from, grid2, pick, place


@triton.jit
def gradients_scalar(
    q, k, v, beta, ga, A, GC, do, h, dh, VnT, dVnT, dq, dk, dv, dg, db, cu_seqlens, chunk_sequence, chunk_start,
    scale, T, NT, N, H, V,
    GROUP: tl.constexpr, K: tl.constexpr, C: tl.constexpr, BV: tl.constexpr, VARLEN: tl.constexpr, PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Write dq, dk ``[.., H, K]``, dv ``[.., HV, V]``, and in float32 dg, db ``[.., HV]``, HV = H * GROUP."""
    hk = tl.program_id(0)
    chunk = tl.program_id(1)
    n, first, left = place(chunk, cu_seqlens, chunk_sequence, chunk_start, T, NT, N, VARLEN, C)
    if n < N:
        i = tl.arange(0, C)
        d = tl.arange(0, K)
        inside = i < left
        token = (first * H + hk) * K
        q_tile = tl.load(grid2(q + token, i, d, H * K, 1), mask=inside[:, None], other=0.0)
        k_tile = tl.load(grid2(k + token, i, d, H * K, 1), mask=inside[:, None], other=0.0)
        total_q = tl.zeros((C, K), dtype=tl.float32)
        total_k = tl.zeros((K, C), dtype=tl.float32)
        for u in tl.range(0, GROUP, num_stages=1):
            hv = hk * GROUP + u
            HV = H * GROUP
            tile = chunk.to(tl.int64) * HV + hv
            b = tl.load(beta + (first + i) * HV + hv, mask=inside, other=0.0).to(tl.float32)
            cum = tl.load(ga + tile * C + i)
            gam = tl.exp(cum)
            r = tl.exp(pick(cum, C - 1, C) - cum)
            a = tl.load(grid2(A + tile * C * C, i, i, C, 1))
            acc_q = tl.zeros((C, K), dtype=tl.float32)
            acc_k = tl.zeros((K, C), dtype=tl.float32)
            sd = tl.zeros((C, C), dtype=tl.float32)
            dl_t = tl.zeros((C, C), dtype=tl.float32)
            row_b = tl.zeros((C,), dtype=tl.float32)
            row_z = tl.zeros((C,), dtype=tl.float32)
            states = 0.0
            for start in tl.range(0, V, BV, num_stages=STAGES):
                x = start + tl.arange(0, BV)
                value = (first * HV + hv) * V
                by_row = grid2(tile * V * C, x, i, C, 1)
                h_t = tl.load(grid2(h + tile * V * K, x, d, K, 1))
                dh_t = tl.load(grid2(dh + tile * V * K, x, d, K, 1))
                dvn_t = tl.load(dVnT + by_row)
                vn_t = tl.load(VnT + by_row)
                vn = tl.load(grid2(VnT + tile * V * C, i, x, 1, C))
                v_t = tl.load(grid2(v + value, x, i, 1, HV * V), mask=inside[None, :], other=0.0)
                do_tile = tl.load(grid2(do + value, i, x, HV * V, 1), mask=inside[:, None], other=0.0)
                ks_t = tl.dot(h_t, tl.trans(k_tile), input_precision=PRECISION)
                y_t = tl.dot(dvn_t, a, input_precision=PRECISION)
                z_t = -(b * gam)[None, :] * y_t
                row_b += tl.sum(y_t * (v_t.to(tl.float32) - gam[None, :] * ks_t), 0)
                row_z += tl.sum(z_t * ks_t, 0)
                tl.store(
                    grid2(dv + value, x, i, 1, HV * V), (b[None, :] * y_t).to(dv.dtype.element_ty), mask=inside[None, :]
                )
                acc_q = tl.dot(do_tile, h_t, acc_q, input_precision=PRECISION)
                sd = tl.dot(do_tile, vn_t, sd, input_precision=PRECISION)
                dl_t = tl.dot(vn, y_t.to(vn.dtype), dl_t, input_precision=PRECISION)
                acc_k = tl.dot(tl.trans(h_t), z_t.to(h_t.dtype), acc_k, input_precision=PRECISION)
                rvn_t = (vn_t.to(tl.float32) * r[None, :]).to(vn_t.dtype)
                acc_k = tl.dot(tl.trans(dh_t), rvn_t, acc_k, input_precision=PRECISION)
                states += tl.sum(tl.sum(h_t.to(tl.float32) * dh_t.to(tl.float32), 1), 0)
            QK = tl.dot(q_tile, tl.trans(k_tile), input_precision=PRECISION)
            KK = tl.dot(k_tile, tl.trans(k_tile), input_precision=PRECISION)
            dP = scale * sd * decay_from(cum, C)
            gates = dP * QK
            upper = i[:, None] < i[None, :]
            later = tl.where(upper, tl.exp(tl.where(upper, cum[None, :] - cum[:, None], 0.0)), 0.0)
            dl_t = -dl_t * later
            row_b += tl.sum(dl_t * KK, 0)
            m_t = dl_t * b[None, :]
            triangle = m_t * KK
            acc_q *= (scale * gam)[:, None]
            row_k = tl.sum(acc_k * tl.trans(k_tile).to(tl.float32), 0)
            dga = tl.sum(acc_q * q_tile.to(tl.float32), 1) + tl.sum(gates, 1) - tl.sum(triangle, 1)
            dga += tl.sum(triangle, 0) - tl.sum(gates, 0) - row_k + 2.0 * row_z
            end = tl.sum(row_k - row_z, 0) + tl.load(GC + tile) * states
            reverse = tl.sum(tl.where(i[:, None] >= i[None, :], dga[:, None], 0.0), 0) + end
            tl.store(dg + (first + i) * HV + hv, reverse, mask=inside)
            tl.store(db + (first + i) * HV + hv, row_b, mask=inside)
            dP16 = dP.to(k_tile.dtype)
            m16 = m_t.to(k_tile.dtype)
            acc_q = tl.dot(dP16, k_tile, acc_q, input_precision=PRECISION)
            acc_k = tl.dot(tl.trans(q_tile), dP16, acc_k, input_precision=PRECISION)
            acc_k = tl.dot(tl.trans(k_tile), m16, acc_k, input_precision=PRECISION)
            acc_k = tl.dot(tl.trans(k_tile), tl.trans(m16), acc_k, input_precision=PRECISION)
            total_q += acc_q
            total_k += acc_k
        tl.store(grid2(dq + token, i, d, H * K, 1), total_q.to(dq.dtype.element_ty), mask=inside[:, None])
        tl.store(grid2(dk + token, d, i, 1, H * K), total_k.to(dk.dtype.element_ty), mask=inside[None, :])
