"""Last launch of the backward, parallel over (chunk, query head): what is left of a chunk once the states at its two
ends are known.

A program works on 64 x 64 tiles, so that several fit on a multiprocessor and hide each other's latency. It walks the
value heads of its query head in order and sums dq and dk itself, so that no atomic is needed. No product takes a
transposed accumulator as its left operand, the form that Triton 3.4 to 3.7.0 miscompiles on Hopper: such terms are
computed transposed and turned at the end.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# The bodies below are Triton's language, compiled for the GPU; annotations there mean compile-time constants, not
# Python types.

from __future__ import annotations

import triton
import triton.language as tl

from kcontract.kernels.gdn.tiles import SIZES, decay_from, grid2, pick, place


@triton.jit(do_not_specialize=SIZES)
def gradients_scalar(
    q, k, v, beta, ga, do, h, dh, Vn, KS, Y, dq, dk, dq_sum, dk_sum, dg, db, cu_seqlens, chunk_sequence, chunk_start,
    scale, T, NT, N, H,
    V: tl.constexpr, GROUP: tl.constexpr, K: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    ROLLED: tl.constexpr, VARLEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Grid (H, chunks). Write dq, dk ``[.., H, K]``, and in float32 dg, db ``[.., H * GROUP]``.

    dq_sum and dk_sum, float32 and as large as dq and dk, carry partial sums from one value head to the next when GROUP
    > 1.
    """
    hk = tl.program_id(0)
    chunk = tl.program_id(1)
    n, first, left = place(chunk, cu_seqlens, chunk_sequence, chunk_start, T, NT, N, VARLEN, C)
    if n < N:
        i = tl.arange(0, C)
        inside = i < left
        token = (first * H + hk) * K
        HV = H * GROUP
        for u in tl.range(0, GROUP, num_stages=1):
            hv = hk * GROUP + u
            tile = chunk.to(tl.int64) * HV + hv
            value = (first * HV + hv) * V
            b = tl.load(beta + (first + i) * HV + hv, mask=inside, other=0.0).to(tl.float32)
            cum = tl.load(ga + tile * C + i)
            sd = tl.zeros((C, C), dtype=tl.float32)
            dl = tl.zeros((C, C), dtype=tl.float32)
            row_r = tl.zeros((C,), dtype=tl.float32)
            row_z = tl.zeros((C,), dtype=tl.float32)
            for start in (tl.range if ROLLED else tl.static_range)(0, V, BV):
                x = start + tl.arange(0, BV)
                rows = grid2(tile * C * V, i, x, V, 1)
                tokens = grid2(value, i, x, HV * V, 1)
                y = tl.load(Y + rows)
                ks = tl.load(KS + rows).to(tl.float32)
                v_tile = tl.load(v + tokens, mask=inside[:, None], other=0.0).to(tl.float32)
                vn = tl.load(Vn + rows)
                do_tile = tl.load(do + tokens, mask=inside[:, None], other=0.0)
                row_r += tl.sum(y.to(tl.float32) * (v_tile - ks), 1)
                row_z -= tl.sum(y.to(tl.float32) * ks, 1)
                sd = tl.dot(do_tile, tl.trans(vn), sd, input_precision=PRECISION)
                dl = tl.dot(y, tl.trans(vn), dl, input_precision=PRECISION)
            QK = tl.zeros((C, C), dtype=tl.float32)
            KK = tl.zeros((C, C), dtype=tl.float32)
            for start in (tl.range if ROLLED else tl.static_range)(0, K, BK):
                at = grid2(token, i, start + tl.arange(0, BK), H * K, 1)
                q_tile = tl.load(q + at, mask=inside[:, None], other=0.0)
                k_tile = tl.load(k + at, mask=inside[:, None], other=0.0)
                QK = tl.dot(q_tile, tl.trans(k_tile), QK, input_precision=PRECISION)
                KK = tl.dot(k_tile, tl.trans(k_tile), KK, input_precision=PRECISION)
            G = decay_from(cum, C)
            dP = scale * sd * G
            dP16 = dP.to(q.dtype.element_ty)
            dl = tl.where(i[:, None] > i[None, :], -dl * G, 0.0)
            pair = dl * KK
            row_r += tl.sum(pair, 1)
            tl.store(db + (first + i) * HV + hv, row_r, mask=inside)
            pair = pair * b[:, None] + dP * QK
            dga = tl.sum(pair, 1) - tl.sum(pair, 0)
            m16 = (dl * b[:, None]).to(q.dtype.element_ty)
            row_z *= b
            gam = tl.exp(cum)
            r = tl.exp(pick(cum, C - 1, C) - cum)
            states = 0.0
            row_k = tl.zeros((C,), dtype=tl.float32)
            for start in tl.range(0, K, BK, num_stages=1):
                d = start + tl.arange(0, BK)
                from_states = tl.zeros((C, BK), dtype=tl.float32)
                from_start = tl.zeros((C, BK), dtype=tl.float32)
                from_end = tl.zeros((C, BK), dtype=tl.float32)
                for column in (tl.range if ROLLED else tl.static_range)(0, V, BV):
                    x = column + tl.arange(0, BV)
                    state = grid2(tile * V * K, x, d, K, 1)
                    h_t = tl.load(h + state)
                    dh_t = tl.load(dh + state)
                    if ROLLED or V > BV:
                        rows = grid2(tile * C * V, i, x, V, 1)
                        y = tl.load(Y + rows)
                        vn = tl.load(Vn + rows)
                        do_tile = tl.load(do + grid2(value, i, x, HV * V, 1), mask=inside[:, None], other=0.0)
                    states += tl.sum(tl.sum(h_t.to(tl.float32) * dh_t.to(tl.float32), 1), 0)
                    from_states = tl.dot(do_tile, h_t, from_states, input_precision=PRECISION)
                    from_start = tl.dot(y, h_t, from_start, input_precision=PRECISION)
                    from_end = tl.dot(vn, dh_t, from_end, input_precision=PRECISION)
                at = grid2(token, i, d, H * K, 1)
                q_tile = tl.load(q + at, mask=inside[:, None], other=0.0)
                k_tile = tl.load(k + at, mask=inside[:, None], other=0.0)
                acc_q = (scale * gam)[:, None] * from_states
                dga += tl.sum(acc_q * q_tile.to(tl.float32), 1)
                acc_q = tl.dot(dP16, k_tile, acc_q, input_precision=PRECISION)
                acc_k = r[:, None] * from_end - (b * gam)[:, None] * from_start
                row_k += tl.sum(acc_k * k_tile.to(tl.float32), 1)
                acc_k = tl.dot(m16, k_tile, acc_k, input_precision=PRECISION)
                turned = tl.dot(tl.trans(q_tile), dP16, input_precision=PRECISION)
                turned = tl.dot(tl.trans(k_tile), m16, turned, input_precision=PRECISION)
                acc_k += tl.trans(turned)
                if GROUP > 1:
                    if u > 0:
                        acc_q += tl.load(dq_sum + at, mask=inside[:, None], other=0.0)
                        acc_k += tl.load(dk_sum + at, mask=inside[:, None], other=0.0)
                    if u < GROUP - 1:
                        tl.store(dq_sum + at, acc_q, mask=inside[:, None])
                        tl.store(dk_sum + at, acc_k, mask=inside[:, None])
                if u == GROUP - 1:
                    tl.store(dq + at, acc_q.to(dq.dtype.element_ty), mask=inside[:, None])
                    tl.store(dk + at, acc_k.to(dk.dtype.element_ty), mask=inside[:, None])
            dga += 2.0 * row_z - row_k
            end = tl.sum(row_k - row_z, 0) + tl.exp(pick(cum, C - 1, C)) * states
            reverse = tl.sum(tl.where(i[:, None] >= i[None, :], dga[:, None], 0.0), 0) + end
            tl.store(dg + (first + i) * HV + hv, reverse, mask=inside)
