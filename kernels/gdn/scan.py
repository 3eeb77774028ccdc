"""The two state scans, forward and reverse, in one launch: they do not depend on each other.

The state is held transposed, rows of V and columns of K, in float32 registers. Both products of a chunk then have the state or
the chunk's own result on the left, straight from the accumulator's registers, and a tile from memory on the right: no trip
through shared memory stands between one chunk and the next. The rows are independent, so V is tiled over programs.

The scan is affine in the state (``S -> S M + N`` for the transposed state), so a long sequence can be cut into segments when
heads are few: `SUMMARY` runs every segment from zero, and from the identity to get M; the real scan then starts each segment
from the composition of those before it.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
# The bodies below are Triton's language, compiled for the GPU; annotations there mean compile-time constants, not Python types.

from __future__ import annotations

import triton
import triton.language as tl

from kcontract.kernels.gdn.tiles import grid2


@triton.jit
def _enter(boundary, summary, x, seq_head, segment, step, count, V, K: tl.constexpr, BV: tl.constexpr, NSEG: tl.constexpr,
           GIVEN: tl.constexpr, SUMMARY: tl.constexpr):  # fmt: skip
    """The transposed state ``[BV, K]`` before a segment, rows x: ``count`` segments lie before it, ``step`` apart (+1 or -1)."""
    d = tl.arange(0, K)
    S = tl.zeros((BV, K), dtype=tl.float32)
    if SUMMARY:
        S += tl.where((x[:, None] - V) == d[None, :], 1.0, 0.0)
    else:
        if GIVEN:
            S += tl.load(grid2(boundary + seq_head * K * V, x, d, 1, V)).to(tl.float32)
        if NSEG > 1:
            a = tl.arange(0, K)
            for j in tl.range(0, count, num_stages=1):
                other = summary + (seq_head * NSEG + segment - step * (count - j)) * K * (V + K)
                M = tl.load(grid2(other + V, a, d, 1, V + K))
                S = tl.dot(S, M, input_precision="tf32") + tl.load(grid2(other, x, d, 1, V + K))
    return S


@triton.jit
def _leave(final, summary, S, x, seq_head, segment, is_end, V, K: tl.constexpr, NSEG: tl.constexpr, SUMMARY: tl.constexpr,
           WANTED: tl.constexpr):  # fmt: skip
    d = tl.arange(0, K)
    if SUMMARY:
        tl.store(grid2(summary + (seq_head * NSEG + segment) * K * (V + K), x, d, 1, V + K), S)
    else:
        if WANTED:
            if is_end:
                tl.store(grid2(final + seq_head * K * V, x, d, 1, V), S)


@triton.jit
def _forward(
    q, v, k, r_ga, Wn, Ab, P, Qg, GC, h, Vn, o, h0, ht, summary,
    x, n, hv, hk, begin, length, chunk0, c0, c1, segment, scale, H, HV, V,
    K: tl.constexpr, C: tl.constexpr, BV: tl.constexpr, NSEG: tl.constexpr, CHANNEL: tl.constexpr, GIVEN: tl.constexpr,
    WANTED: tl.constexpr, KEEP: tl.constexpr, OUTPUT: tl.constexpr, SUMMARY: tl.constexpr, PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    i = tl.arange(0, C)
    d = tl.arange(0, K)
    seq_head = n.to(tl.int64) * HV + hv
    S = _enter(h0, summary, x, seq_head, segment, 1, segment, V, K, BV, NSEG, GIVEN, SUMMARY)
    for c in tl.range(c0, c1, num_stages=STAGES):
        tile = (chunk0 + c).to(tl.int64) * HV + hv
        inside = (i < length - c * C)[None, :] & (x < V)[:, None]
        token = (begin + c * C).to(tl.int64) * HV + hv
        v_t = tl.load(grid2(v + token * V, x, i, 1, HV * V), mask=inside, other=0.0)
        ab_t = tl.load(grid2(Ab + tile * C * C, i, i, 1, C))
        w_t = tl.load(grid2(Wn + tile * C * K, d, i, 1, K))
        s16 = S.to(k.dtype.element_ty)
        if KEEP:
            tl.store(grid2(h + tile * V * K, x, d, K, 1), s16)
        vn = tl.dot(v_t.to(Ab.dtype.element_ty), ab_t, input_precision=PRECISION)
        vn = tl.dot(s16, w_t, vn, input_precision=PRECISION)
        if KEEP:
            tl.store(grid2(Vn + tile * C * V, x, i, 1, V), vn.to(Vn.dtype.element_ty))
        if OUTPUT:
            p_t = tl.load(grid2(P + tile * C * C, i, i, 1, C))
            if CHANNEL:
                q_t = tl.load(grid2(Qg + tile * C * K, d, i, 1, K))
                out = tl.dot(s16, q_t, input_precision=PRECISION)
            else:
                q_token = ((begin + c * C).to(tl.int64) * H + hk) * K
                q_t = tl.load(grid2(q + q_token, d, i, 1, H * K), mask=(i < length - c * C)[None, :], other=0.0)
                row = scale * tl.exp(tl.load(r_ga + tile * C + i))
                out = tl.dot(s16, q_t, input_precision=PRECISION) * row[None, :]
            out = tl.dot(vn.to(P.dtype.element_ty), p_t, out, input_precision=PRECISION)
            tl.store(grid2(o + token * V, x, i, 1, HV * V), out.to(o.dtype.element_ty), mask=inside)
        if CHANNEL:
            k_tile = tl.load(grid2(k + tile * C * K, i, d, K, 1))
            S *= tl.load(GC + tile * K + d)[None, :]
        else:
            k_token = ((begin + c * C).to(tl.int64) * H + hk) * K
            k_tile = tl.load(grid2(k + k_token, i, d, H * K, 1), mask=(i < length - c * C)[:, None], other=0.0)
            ga = tl.load(r_ga + tile * C + i)
            end = tl.load(r_ga + tile * C + C - 1)
            vn *= tl.exp(end - ga)[None, :]
            S *= tl.load(GC + tile)
        S = tl.dot(vn.to(k.dtype.element_ty), k_tile, S, input_precision=PRECISION)
    _leave(ht, summary, S, x, seq_head, segment, segment == NSEG - 1, V, K, NSEG, SUMMARY, WANTED)


@triton.jit
def _reverse(
    do, k, r_ga, Wn, P, Qg, GC, dh, dVn, dht, dh0, summary,
    x, n, hv, hk, begin, length, chunk0, c0, c1, segment, H, HV, V,
    K: tl.constexpr, C: tl.constexpr, BV: tl.constexpr, NSEG: tl.constexpr, CHANNEL: tl.constexpr, GIVEN: tl.constexpr,
    WANTED: tl.constexpr, SUMMARY: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    i = tl.arange(0, C)
    d = tl.arange(0, K)
    seq_head = n.to(tl.int64) * HV + hv
    D = _enter(dht, summary, x, seq_head, segment, -1, NSEG - 1 - segment, V, K, BV, NSEG, GIVEN, SUMMARY)
    for back in tl.range(0, c1 - c0, num_stages=STAGES):
        c = c1 - 1 - back
        tile = (chunk0 + c).to(tl.int64) * HV + hv
        inside = (i < length - c * C)[None, :] & (x < V)[:, None]
        token = (begin + c * C).to(tl.int64) * HV + hv
        d16 = D.to(k.dtype.element_ty)
        if not SUMMARY:
            tl.store(grid2(dh + tile * V * K, x, d, K, 1), d16)
        if CHANNEL:
            k_t = tl.load(grid2(k + tile * C * K, d, i, 1, K))
            dvn = tl.dot(d16, k_t, input_precision=PRECISION)
            D *= tl.load(GC + tile * K + d)[None, :]
        else:
            k_token = ((begin + c * C).to(tl.int64) * H + hk) * K
            k_t = tl.load(grid2(k + k_token, d, i, 1, H * K), mask=(i < length - c * C)[None, :], other=0.0)
            ga = tl.load(r_ga + tile * C + i)
            end = tl.load(r_ga + tile * C + C - 1)
            dvn = tl.dot(d16, k_t, input_precision=PRECISION) * tl.exp(end - ga)[None, :]
            D *= tl.load(GC + tile)
        do_t = tl.load(grid2(do + token * V, x, i, 1, HV * V), mask=inside, other=0.0)
        p = tl.load(grid2(P + tile * C * C, i, i, C, 1))
        q_tile = tl.load(grid2(Qg + tile * C * K, i, d, K, 1))
        w = tl.load(grid2(Wn + tile * C * K, i, d, K, 1))
        dvn = tl.dot(do_t, p, dvn, input_precision=PRECISION)
        dvn16 = dvn.to(k.dtype.element_ty)
        if not SUMMARY:
            tl.store(grid2(dVn + tile * C * V, x, i, 1, V), dvn16)
        D = tl.dot(do_t, q_tile, D, input_precision=PRECISION)
        D = tl.dot(dvn16, w, D, input_precision=PRECISION)
    _leave(dh0, summary, D, x, seq_head, segment, segment == 0, V, K, NSEG, SUMMARY, WANTED)


@triton.jit
def scan(
    q, v, do, k, ga, Wn, Ab, P, Qg, GC, h, dh, Vn, dVn, o, h0, ht, dht, dh0, summary,
    cu_seqlens, chunk_start, scale, T, NT, N, H, HV, V,
    K: tl.constexpr, C: tl.constexpr, BV: tl.constexpr, NSEG: tl.constexpr, VARLEN: tl.constexpr, CHANNEL: tl.constexpr,
    HAS_H0: tl.constexpr, WANT_HT: tl.constexpr, HAS_DHT: tl.constexpr, WANT_DH0: tl.constexpr,
    BACKWARD: tl.constexpr, SUMMARY: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Grid (rows / BV, N * HV, NSEG, doubled when BACKWARD). Rows: V, with SUMMARY V + K.

    Forward: o and ht. BACKWARD: half of the programs go forward and keep h and Vn, half go in reverse and keep dh, dVn, dh0.
    """
    x = tl.program_id(0) * BV + tl.arange(0, BV)
    n = tl.program_id(1) // HV
    hv = tl.program_id(1) % HV
    hk = hv // (HV // H)
    segment = tl.program_id(2) % NSEG
    if VARLEN:
        begin = tl.load(cu_seqlens + n).to(tl.int64)
        length = (tl.load(cu_seqlens + n + 1) - begin).to(tl.int32)
        chunk0 = tl.load(chunk_start + n)
        chunks = tl.load(chunk_start + n + 1) - chunk0
    else:
        begin = n.to(tl.int64) * T
        length = T
        chunk0 = n * NT
        chunks = NT
    each = (chunks + NSEG - 1) // NSEG
    c0 = tl.minimum(segment * each, chunks)
    c1 = tl.minimum(c0 + each, chunks)
    half = summary + tl.num_programs(1).to(tl.int64) * NSEG * K * (V + K)
    if BACKWARD:
        if tl.program_id(2) < NSEG:
            _reverse(
                do, k, ga, Wn, P, Qg, GC, dh, dVn, dht, dh0, half, x, n, hv, hk, begin, length, chunk0, c0, c1, segment,
                H, HV, V, K, C, BV, NSEG, CHANNEL, HAS_DHT, WANT_DH0, SUMMARY, PRECISION, STAGES,
            )  # fmt: skip
        else:
            _forward(
                q, v, k, ga, Wn, Ab, P, Qg, GC, h, Vn, o, h0, ht, summary, x, n, hv, hk, begin, length, chunk0, c0, c1, segment,
                scale, H, HV, V, K, C, BV, NSEG, CHANNEL, HAS_H0, False, not SUMMARY, False, SUMMARY, PRECISION, STAGES,
            )  # fmt: skip
    else:
        _forward(
            q, v, k, ga, Wn, Ab, P, Qg, GC, h, Vn, o, h0, ht, summary, x, n, hv, hk, begin, length, chunk0, c0, c1, segment,
            scale, H, HV, V, K, C, BV, NSEG, CHANNEL, HAS_H0, WANT_HT, False, not SUMMARY, SUMMARY, PRECISION, STAGES,
        )  # fmt: skip
