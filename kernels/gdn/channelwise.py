"""The first and last launch for a gate of its own in each channel of K (`prepare` and `gradients` are their scalar
counterparts).

The decay now stands inside the sums over channels, ``sum_d a_id b_jd exp(ga_id - ga_jd)``. Splitting it into a factor
for i and a factor for j overflows unless the reference point lies between them, so the chunk is cut into blocks of 16
rows: pairs of different blocks meet at the later block's first row, where both factors are at most 1 and a matrix
product serves; pairs inside a block (offsets 0 to 15) are summed directly.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# The bodies below are Triton's language, compiled for the GPU; annotations there mean compile-time constants, not
# Python types.

from __future__ import annotations

import triton
import triton.language as tl

from kcontract.kernels.gdn.tiles import SIZES, grid2, inverse_of_unit_lower, place


@triton.jit
def _meet(cum, s, i):
    """Decay factors ``(of rows in block s, of rows before it)`` relative to the first row of block s; 0 elsewhere."""
    reference = tl.sum(tl.where(i[:, None] == s * 16, cum, 0.0), 0)
    at = (i // 16 == s)[:, None]
    before = (i < s * 16)[:, None]
    left = tl.where(at, tl.exp(tl.where(at, cum - reference[None, :], 0.0)), 0.0)
    right = tl.where(before, tl.exp(tl.where(before, reference[None, :] - cum, 0.0)), 0.0)
    return left, right


@triton.jit(do_not_specialize=SIZES)
def prepare_channel(
    q, k, g, beta, A, A32, P, Qg, Kg, Kr, GC, cu_seqlens, chunk_sequence, chunk_start,
    scale, T, NT, N, H, HV,
    K: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, SOLVE: tl.constexpr, VARLEN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Grid (HV, chunks). Write P, Qg = scale Gam Q, Kg = Gam K, Kr = r K, GC; with SOLVE also A and A32."""
    hv = tl.program_id(0)
    chunk = tl.program_id(1)
    hk = hv // (HV // H)
    n, first, left_over = place(chunk, cu_seqlens, chunk_sequence, chunk_start, T, NT, N, VARLEN, C)
    if n < N:
        i = tl.arange(0, C)
        inside = i < left_over
        tile = chunk.to(tl.int64) * HV + hv
        shared = (first * H + hk) * K
        own = (first * HV + hv) * K
        QK = tl.zeros((C, C), dtype=tl.float32)
        KK = tl.zeros((C, C), dtype=tl.float32)
        for start in tl.range(0, K, BK, num_stages=1):
            d = start + tl.arange(0, BK)
            q_tile = tl.load(grid2(q + shared, i, d, H * K, 1), mask=inside[:, None], other=0.0).to(tl.float32)
            k_tile = tl.load(grid2(k + shared, i, d, H * K, 1), mask=inside[:, None], other=0.0).to(tl.float32)
            cum = tl.cumsum(tl.load(grid2(g + own, i, d, HV * K, 1), mask=inside[:, None], other=0.0).to(tl.float32), 0)
            for s in tl.range(1, C // 16, num_stages=1):
                left, right = _meet(cum, s, i)
                if SOLVE:
                    met = tl.trans(right * k_tile)
                    QK = tl.dot(left * q_tile, met, QK, input_precision=PRECISION)
                    KK = tl.dot(left * k_tile, met, KK, input_precision=PRECISION)
                else:
                    met = tl.trans((right * k_tile).to(k.dtype.element_ty))
                    QK = tl.dot((left * q_tile).to(k.dtype.element_ty), met, QK, input_precision=PRECISION)
            difference = tl.zeros((C, BK), dtype=tl.float32)
            for s in tl.range(0, 16, num_stages=1):
                j = i - s
                pair = (j >= i // 16 * 16) & inside
                step = tl.load(grid2(g + own, j + 1, d, HV * K, 1), mask=(pair & (s > 0))[:, None], other=0.0)
                difference += step.to(tl.float32)
                other = tl.load(grid2(k + shared, j, d, H * K, 1), mask=pair[:, None], other=0.0).to(tl.float32)
                other *= tl.exp(difference)
                hit = (i[None, :] == j[:, None]) & pair[:, None]
                QK += tl.where(hit, tl.sum(q_tile * other, 1)[:, None], 0.0)
                if SOLVE:
                    KK += tl.where(hit, tl.sum(k_tile * other, 1)[:, None], 0.0)
            last = tl.sum(tl.where(i[:, None] == C - 1, cum, 0.0), 0)
            rows = grid2(tile * C * K, i, d, K, 1)
            gam = tl.exp(cum)
            tl.store(Qg + rows, (scale * gam * q_tile).to(Qg.dtype.element_ty))
            tl.store(Kg + rows, (gam * k_tile).to(Kg.dtype.element_ty))
            tl.store(Kr + rows, (tl.exp(last[None, :] - cum) * k_tile).to(Kr.dtype.element_ty))
            tl.store(GC + tile * K + d, tl.exp(last))
        square = grid2(tile * C * C, i, i, C, 1)
        tl.store(P + square, (scale * QK).to(P.dtype.element_ty))
        if SOLVE:
            b = tl.load(beta + (first + i) * HV + hv, mask=inside, other=0.0).to(tl.float32)
            a = inverse_of_unit_lower(tl.where(i[:, None] > i[None, :], b[:, None] * KK, 0.0), C, PRECISION)
            tl.store(A + square, a.to(A.dtype.element_ty))
            tl.store(A32 + square, a)


@triton.jit(do_not_specialize=SIZES)
def gradients_channel(
    q, k, v, g, beta, do, h, dh, Vn, KS, Y, dq, dk, dq_sum, dk_sum, dg, db, cu_seqlens, chunk_sequence, chunk_start,
    scale, T, NT, N, H, V,
    GROUP: tl.constexpr, K: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, VARLEN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Grid (H, chunks). As `gradients_scalar`, with dg ``[.., HV, K]``."""
    hk = tl.program_id(0)
    chunk = tl.program_id(1)
    n, first, left_over = place(chunk, cu_seqlens, chunk_sequence, chunk_start, T, NT, N, VARLEN, C)
    if n < N:
        i = tl.arange(0, C)
        inside = i < left_over
        HV = H * GROUP
        shared = (first * H + hk) * K
        for u in tl.range(0, GROUP, num_stages=1):
            hv = hk * GROUP + u
            tile = chunk.to(tl.int64) * HV + hv
            value = (first * HV + hv) * V
            own = (first * HV + hv) * K
            b = tl.load(beta + (first + i) * HV + hv, mask=inside, other=0.0).to(tl.float32)
            dP = tl.zeros((C, C), dtype=tl.float32)
            dP_t = tl.zeros((C, C), dtype=tl.float32)
            dL = tl.zeros((C, C), dtype=tl.float32)
            dL_t = tl.zeros((C, C), dtype=tl.float32)
            row_b = tl.zeros((C,), dtype=tl.float32)
            for start in tl.range(0, V, BV, num_stages=1):
                x = start + tl.arange(0, BV)
                rows = grid2(tile * C * V, i, x, V, 1)
                tokens = grid2(value, i, x, HV * V, 1)
                vn = tl.load(Vn + rows)
                y = tl.load(Y + rows)
                do_tile = tl.load(do + tokens, mask=inside[:, None], other=0.0)
                dP = tl.dot(do_tile, tl.trans(vn), dP, input_precision=PRECISION)
                dP_t = tl.dot(vn, tl.trans(do_tile), dP_t, input_precision=PRECISION)
                dL = tl.dot(y, tl.trans(vn), dL, input_precision=PRECISION)
                dL_t = tl.dot(vn, tl.trans(y), dL_t, input_precision=PRECISION)
                v_tile = tl.load(v + tokens, mask=inside[:, None], other=0.0).to(tl.float32)
                row_b += tl.sum(y.to(tl.float32) * (v_tile - tl.load(KS + rows).to(tl.float32)), 1)
            dP = tl.where(i[:, None] >= i[None, :], scale * dP, 0.0)
            dP_t = tl.where(i[:, None] <= i[None, :], scale * dP_t, 0.0)
            dL = tl.where(i[:, None] > i[None, :], -dL, 0.0)
            dL_t = tl.where(i[:, None] < i[None, :], -dL_t, 0.0)
            for start in tl.range(0, K, BK, num_stages=1):
                d = start + tl.arange(0, BK)
                at = grid2(shared, i, d, H * K, 1)
                gates = grid2(own, i, d, HV * K, 1)
                q_tile = tl.load(q + at, mask=inside[:, None], other=0.0).to(tl.float32)
                k_tile = tl.load(k + at, mask=inside[:, None], other=0.0).to(tl.float32)
                cum = tl.cumsum(tl.load(g + gates, mask=inside[:, None], other=0.0).to(tl.float32), 0)
                acc_q = tl.zeros((C, BK), dtype=tl.float32)
                row_k = tl.zeros((C, BK), dtype=tl.float32)
                column = tl.zeros((C, BK), dtype=tl.float32)
                for s in tl.range(1, C // 16, num_stages=1):
                    left, right = _meet(cum, s, i)
                    here = (i // 16 == s)[:, None] & (i < s * 16)[None, :]
                    there = (i < s * 16)[:, None] & (i // 16 == s)[None, :]
                    other = (right * k_tile).to(q.dtype.element_ty)
                    p = tl.where(here, dP, 0.0).to(q.dtype.element_ty)
                    acc_q += left * tl.dot(p, other, input_precision=PRECISION)
                    m = tl.where(here, dL, 0.0).to(q.dtype.element_ty)
                    row_k += left * tl.dot(m, other, input_precision=PRECISION)
                    p = tl.where(there, dP_t, 0.0).to(q.dtype.element_ty)
                    m = tl.where(there, dL_t, 0.0).to(q.dtype.element_ty)
                    part = tl.dot(p, (left * q_tile).to(q.dtype.element_ty), input_precision=PRECISION)
                    part = tl.dot(
                        m, (left * k_tile * b[:, None]).to(q.dtype.element_ty), part, input_precision=PRECISION
                    )
                    column += right * part
                back = tl.zeros((C, BK), dtype=tl.float32)
                ahead = tl.zeros((C, BK), dtype=tl.float32)
                for s in tl.range(0, 16, num_stages=1):
                    j = i - s
                    pair = (j >= i // 16 * 16) & inside
                    later = pair & (s > 0)
                    back += tl.load(grid2(g + own, j + 1, d, HV * K, 1), mask=later[:, None], other=0.0).to(tl.float32)
                    other = tl.load(grid2(k + shared, j, d, H * K, 1), mask=pair[:, None], other=0.0).to(tl.float32)
                    other *= tl.exp(back)
                    hit = (i[None, :] == j[:, None]) & pair[:, None]
                    acc_q += tl.sum(tl.where(hit, dP, 0.0), 1)[:, None] * other
                    row_k += tl.sum(tl.where(hit, dL, 0.0), 1)[:, None] * other
                    j = i + s
                    pair = (j < i // 16 * 16 + 16) & (j < left_over)
                    later = pair & (s > 0)
                    ahead += tl.load(grid2(g + own, j, d, HV * K, 1), mask=later[:, None], other=0.0).to(tl.float32)
                    hit = (i[None, :] == j[:, None]) & pair[:, None]
                    other = tl.load(grid2(q + shared, j, d, H * K, 1), mask=pair[:, None], other=0.0).to(tl.float32)
                    part = tl.sum(tl.where(hit, dP_t, 0.0), 1)[:, None] * other
                    other = tl.load(grid2(k + shared, j, d, H * K, 1), mask=pair[:, None], other=0.0).to(tl.float32)
                    weight = tl.sum(tl.where(hit, dL_t * b[None, :], 0.0), 1)
                    column += tl.exp(ahead) * (part + weight[:, None] * other)
                row_b += tl.sum(k_tile * row_k, 1)
                row_k *= b[:, None]
                from_states = tl.zeros((C, BK), dtype=tl.float32)
                from_start = tl.zeros((C, BK), dtype=tl.float32)
                from_end = tl.zeros((C, BK), dtype=tl.float32)
                ends = tl.zeros((BK,), dtype=tl.float32)
                for top in tl.range(0, V, BV, num_stages=1):
                    x = top + tl.arange(0, BV)
                    state = grid2(tile * V * K, x, d, K, 1)
                    rows = grid2(tile * C * V, i, x, V, 1)
                    h_t = tl.load(h + state)
                    dh_t = tl.load(dh + state)
                    ends += tl.sum(h_t.to(tl.float32) * dh_t.to(tl.float32), 0)
                    do_tile = tl.load(grid2(do + value, i, x, HV * V, 1), mask=inside[:, None], other=0.0)
                    from_states = tl.dot(do_tile, h_t, from_states, input_precision=PRECISION)
                    from_end = tl.dot(tl.load(Vn + rows), dh_t, from_end, input_precision=PRECISION)
                    from_start = tl.dot(tl.load(Y + rows), h_t, from_start, input_precision=PRECISION)
                gam = tl.exp(cum)
                last = tl.sum(tl.where(i[:, None] == C - 1, cum, 0.0), 0)
                acc_q += scale * gam * from_states
                from_end *= tl.exp(last[None, :] - cum)
                row_k -= b[:, None] * gam * from_start
                column += from_end
                dga = q_tile * acc_q + k_tile * (row_k - column)
                ends = tl.exp(last) * ends + tl.sum(k_tile * from_end, 0)
                dga = tl.cumsum(dga, 0, reverse=True) + ends[None, :]
                tl.store(dg + gates, dga, mask=inside[:, None])
                row_k += column
                if GROUP > 1:
                    if u > 0:
                        acc_q += tl.load(dq_sum + at, mask=inside[:, None], other=0.0)
                        row_k += tl.load(dk_sum + at, mask=inside[:, None], other=0.0)
                    if u < GROUP - 1:
                        tl.store(dq_sum + at, acc_q, mask=inside[:, None])
                        tl.store(dk_sum + at, row_k, mask=inside[:, None])
                if u == GROUP - 1:
                    tl.store(dq + at, acc_q.to(dq.dtype.element_ty), mask=inside[:, None])
                    tl.store(dk + at, row_k.to(dk.dtype.element_ty), mask=inside[:, None])
            tl.store(db + (first + i) * HV + hv, row_b, mask=inside)
