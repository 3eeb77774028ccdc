"""Last launch of the backward, parallel over (chunk, query head): all gradients of a chunk from the states at its two ends.

One program computes dq, another dk, dv, dbeta and dg: together they would not fit in registers. Each walks the value heads of
its query head in order and sums in registers, so that no atomic is needed. Results that are needed transposed are computed
transposed: no product takes a transposed accumulator as its left operand, the form that Triton 3.4 to 3.7.0 miscompiles on
Hopper.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
# The bodies below are Triton's language, compiled for the GPU; annotations there mean compile-time constants, not Python types.

from __future__ import annotations

import triton
import triton.language as tl

from kcontract.kernels.gdn.tiles import decay_from, grid2, pick, place


@triton.jit
def gradients_scalar(
    q, k, v, beta, ga, A, GC, do, h, dh, Vn, dVn, dq, dk, dv, dg, db, cu_seqlens, chunk_sequence, chunk_start,
    scale, T, NT, N, H, V,
    GROUP: tl.constexpr, K: tl.constexpr, C: tl.constexpr, BV: tl.constexpr, VARLEN: tl.constexpr, PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Grid (2, H, chunks). Write dq, dk ``[.., H, K]``, dv ``[.., HV, V]``, and in float32 dg, db ``[.., HV]``, HV = H * GROUP."""
    hk = tl.program_id(1)
    chunk = tl.program_id(2)
    n, first, left = place(chunk, cu_seqlens, chunk_sequence, chunk_start, T, NT, N, VARLEN, C)
    if n < N:
        i = tl.arange(0, C)
        d = tl.arange(0, K)
        inside = i < left
        token = (first * H + hk) * K
        k_tile = tl.load(grid2(k + token, i, d, H * K, 1), mask=inside[:, None], other=0.0)
        if tl.program_id(0) == 0:
            _dk_dv(
                q, k, k_tile, v, beta, ga, A, GC, do, h, dh, Vn, dVn, dk, dv, dg, db,
                chunk, first, inside, token, hk, scale, H, V, GROUP, K, C, BV, PRECISION, STAGES,
            )  # fmt: skip
        else:
            total = tl.zeros((C, K), dtype=tl.float32)
            for u in tl.range(0, GROUP, num_stages=1):
                hv = hk * GROUP + u
                tile = chunk.to(tl.int64) * (H * GROUP) + hv
                cum = tl.load(ga + tile * C + i)
                row = scale * tl.exp(cum)
                sd = tl.zeros((C, C), dtype=tl.float32)
                for start in tl.range(0, V, BV, num_stages=STAGES):
                    x = start + tl.arange(0, BV)
                    value = (first * (H * GROUP) + hv) * V
                    h_t = tl.load(grid2(h + tile * V * K, x, d, K, 1))
                    vn = tl.load(grid2(Vn + tile * C * V, i, x, V, 1))
                    do_tile = tl.load(grid2(do + value, i, x, H * GROUP * V, 1), mask=inside[:, None], other=0.0)
                    sd = tl.dot(do_tile, tl.trans(vn), sd, input_precision=PRECISION)
                    scaled = (do_tile.to(tl.float32) * row[:, None]).to(do_tile.dtype)
                    total = tl.dot(scaled, h_t, total, input_precision=PRECISION)
                dP = scale * sd * decay_from(cum, C)
                total = tl.dot(dP.to(k_tile.dtype), k_tile, total, input_precision=PRECISION)
            tl.store(grid2(dq + token, i, d, H * K, 1), total.to(dq.dtype.element_ty), mask=inside[:, None])


@triton.jit
def _dk_dv(
    q, k, k_tile, v, beta, ga, A, GC, do, h, dh, Vn, dVn, dk, dv, dg, db,
    chunk, first, inside, token, hk, scale, H, V,
    GROUP: tl.constexpr, K: tl.constexpr, C: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    i = tl.arange(0, C)
    d = tl.arange(0, K)
    HV = H * GROUP
    q_tile = tl.load(grid2(q + token, i, d, H * K, 1), mask=inside[:, None], other=0.0)
    total = tl.zeros((C, K), dtype=tl.float32)
    total_t = tl.zeros((K, C), dtype=tl.float32)
    before = tl.zeros((C,), dtype=tl.float32)
    for u in tl.range(0, GROUP, num_stages=1):
        hv = hk * GROUP + u
        tile = chunk.to(tl.int64) * HV + hv
        b = tl.load(beta + (first + i) * HV + hv, mask=inside, other=0.0).to(tl.float32)
        cum = tl.load(ga + tile * C + i)
        gam = tl.exp(cum)
        r = tl.exp(pick(cum, C - 1, C) - cum)
        a_t = tl.load(grid2(A + tile * C * C, i, i, 1, C))
        sd = tl.zeros((C, C), dtype=tl.float32)
        dl = tl.zeros((C, C), dtype=tl.float32)
        row_q = tl.zeros((C,), dtype=tl.float32)
        row_b = tl.zeros((C,), dtype=tl.float32)
        row_z = tl.zeros((C,), dtype=tl.float32)
        states = 0.0
        for start in tl.range(0, V, BV, num_stages=STAGES):
            x = start + tl.arange(0, BV)
            value = (first * HV + hv) * V
            h_t = tl.load(grid2(h + tile * V * K, x, d, K, 1))
            dh_t = tl.load(grid2(dh + tile * V * K, x, d, K, 1))
            states += tl.sum(tl.sum(h_t.to(tl.float32) * dh_t.to(tl.float32), 1), 0)
            vn = tl.load(grid2(Vn + tile * C * V, i, x, V, 1))
            scaled = (vn.to(tl.float32) * r[:, None]).to(vn.dtype)
            total = tl.dot(scaled, dh_t, total, input_precision=PRECISION)
            do_tile = tl.load(grid2(do + value, i, x, HV * V, 1), mask=inside[:, None], other=0.0)
            sd = tl.dot(do_tile, tl.trans(vn), sd, input_precision=PRECISION)
            qs = tl.dot(q_tile, tl.trans(h_t), input_precision=PRECISION)
            row_q += tl.sum(qs * do_tile.to(tl.float32), 1)
            dvn = tl.load(grid2(dVn + tile * C * V, i, x, V, 1))
            y = tl.dot(a_t, dvn, input_precision=PRECISION)
            tl.store(grid2(dv + value, i, x, HV * V, 1), (b[:, None] * y).to(dv.dtype.element_ty), mask=inside[:, None])
            dl = tl.dot(y.to(vn.dtype), tl.trans(vn), dl, input_precision=PRECISION)
            ks = tl.dot(k_tile, tl.trans(h_t), input_precision=PRECISION)
            v_tile = tl.load(grid2(v + value, i, x, HV * V, 1), mask=inside[:, None], other=0.0)
            row_b += tl.sum(y * (v_tile.to(tl.float32) - gam[:, None] * ks), 1)
            z = -(b * gam)[:, None] * y
            row_z += tl.sum(z * ks, 1)
            total = tl.dot(z.to(h_t.dtype), h_t, total, input_precision=PRECISION)
        k_again = tl.load(grid2(k + token, i, d, H * K, 1), mask=inside[:, None], other=0.0).to(tl.float32)
        row_k = tl.sum(total * k_again, 1) - before
        G = decay_from(cum, C)
        dP = scale * sd * G
        dl = tl.where(i[:, None] > i[None, :], -dl * G, 0.0)
        pair = dl * tl.dot(k_tile, tl.trans(k_tile), input_precision=PRECISION)
        row_b += tl.sum(pair, 1)
        pair = pair * b[:, None] + dP * tl.dot(q_tile, tl.trans(k_tile), input_precision=PRECISION)
        dga = row_q * (scale * gam) + tl.sum(pair, 1) - tl.sum(pair, 0) - row_k + 2.0 * row_z
        end = tl.sum(row_k - row_z, 0) + tl.load(GC + tile) * states
        reverse = tl.sum(tl.where(i[:, None] >= i[None, :], dga[:, None], 0.0), 0) + end
        tl.store(dg + (first + i) * HV + hv, reverse, mask=inside)
        tl.store(db + (first + i) * HV + hv, row_b, mask=inside)
        m = (dl * b[:, None]).to(k_tile.dtype)
        total = tl.dot(m, k_tile, total, input_precision=PRECISION)
        total_t = tl.dot(tl.trans(q_tile), dP.to(k_tile.dtype), total_t, input_precision=PRECISION)
        total_t = tl.dot(tl.trans(k_tile), m, total_t, input_precision=PRECISION)
        if GROUP > 1:
            before = tl.sum(total * k_again, 1)
    total += tl.trans(total_t)
    tl.store(grid2(dk + token, i, d, H * K, 1), total.to(dk.dtype.element_ty), mask=inside[:, None])
