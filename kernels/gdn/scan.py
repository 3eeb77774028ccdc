"""The two state scans, forward and reverse, in one launch: they do not depend on each other.

The state is held transposed, rows of V and columns of K, in float32 registers. Each product of a chunk then has the
state or the chunk's own result on the left, straight from the accumulator's registers, and a tile from memory on the
right: no trip through shared memory stands between one product and the next. The rows are independent, so V is tiled
over programs.

The scan is affine in the state (``S -> S M + N`` for the transposed state), so a long sequence can be cut into segments
when heads are few: SUMMARY runs every segment from zero, and from the identity to get M; the real scan then starts each
segment from the composition of those before it.

Tiles of 16 or 32 rows are for GPUs where 64 do not fit: their products are mma.sync, with no Tensor Memory, and a
chunk's tiles are loaded where they are used, one after the other and k twice, so that they share their shared memory.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# The bodies below are Triton's language, compiled for the GPU; annotations there mean compile-time constants, not
# Python types.

from __future__ import annotations

import triton
import triton.language as tl

from kcontract.kernels.gdn.tiles import SIZES, grid2


@triton.jit
def _enter(
    boundary, summary, x, seq_head, segment, step, count, V,
    K: tl.constexpr, BV: tl.constexpr, NSEG: tl.constexpr, GIVEN: tl.constexpr, SUMMARY: tl.constexpr,
):  # fmt: skip
    """The transposed state ``[BV, K]`` before a segment, rows x: ``count`` segments lie before it, ``step`` apart (+1
    or -1).
    """
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
def _leave(
    final, summary, S, x, seq_head, segment, is_end, V,
    K: tl.constexpr, NSEG: tl.constexpr, SUMMARY: tl.constexpr, WANTED: tl.constexpr,
):  # fmt: skip
    d = tl.arange(0, K)
    if SUMMARY:
        tl.store(grid2(summary + (seq_head * NSEG + segment) * K * (V + K), x, d, 1, V + K), S)
    else:
        if WANTED:  # noqa: SIM102, WANTED is known when the kernel is compiled and is_end is not
            if is_end:
                tl.store(grid2(final + seq_head * K * V, x, d, 1, V), S)


@triton.jit
def _forward(
    q, k, v, beta, ga, A, P, Qg, Kg, GC, h, Vn, KS, o, h0, ht, summary,
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
        inside = i < length - c * C
        first = (begin + c * C).to(tl.int64)
        value = grid2((first * HV + hv) * V, x, i, 1, HV * V)
        within = inside[None, :] & (x < V)[:, None]
        s16 = S.to(k.dtype.element_ty)
        b = tl.load(beta + (first + i) * HV + hv, mask=inside, other=0.0).to(tl.float32)
        a = tl.load(grid2(A + tile * C * C, i, i, C, 1))
        v_t = tl.load(v + value, mask=within, other=0.0).to(tl.float32)
        if CHANNEL:
            k_tile = tl.load(grid2(k + tile * C * K, i, d, K, 1))
            kg_tile = tl.load(grid2(Kg + tile * C * K, i, d, K, 1))
            ks = tl.dot(s16, tl.trans(kg_tile), input_precision=PRECISION)
        else:
            k_tile = tl.load(grid2(k + (first * H + hk) * K, i, d, H * K, 1), mask=inside[:, None], other=0.0)
            cum = tl.load(ga + tile * C + i)
            end = tl.load(ga + tile * C + C - 1)
            ks = tl.dot(s16, tl.trans(k_tile), input_precision=PRECISION) * tl.exp(cum)[None, :]
        right = (b[None, :] * (v_t - ks)).to(A.dtype.element_ty)
        vn = tl.dot(right, tl.trans(a), input_precision=PRECISION)
        if KEEP:
            tl.store(grid2(h + tile * V * K, x, d, K, 1), s16)
            kept = grid2(tile * C * V, x, i, 1, V)
            tl.store(KS + kept, ks.to(KS.dtype.element_ty))
            tl.store(Vn + kept, vn.to(Vn.dtype.element_ty))
        if OUTPUT:
            p = tl.load(grid2(P + tile * C * C, i, i, C, 1))
            if CHANNEL:
                q_tile = tl.load(grid2(Qg + tile * C * K, i, d, K, 1))
                out = tl.dot(S.to(Qg.dtype.element_ty), tl.trans(q_tile), input_precision=PRECISION)
            else:
                q_tile = tl.load(grid2(q + (first * H + hk) * K, i, d, H * K, 1), mask=inside[:, None], other=0.0)
                out = tl.dot(s16, tl.trans(q_tile), input_precision=PRECISION) * (scale * tl.exp(cum))[None, :]
            out = tl.dot(vn.to(P.dtype.element_ty), tl.trans(p), out, input_precision=PRECISION)
            tl.store(o + value, out.to(o.dtype.element_ty), mask=within)
        if CHANNEL:
            S *= tl.load(GC + tile * K + d)[None, :]
        else:
            S *= tl.exp(end)
            vn *= tl.exp(end - cum)[None, :]
        if BV < 64:
            if CHANNEL:
                k_tile = tl.load(grid2(k + tile * C * K, i, d, K, 1))
            else:
                k_tile = tl.load(grid2(k + (first * H + hk) * K, i, d, H * K, 1), mask=inside[:, None], other=0.0)
        vn16 = vn.to(k.dtype.element_ty)
        S = tl.dot(vn16, k_tile, S, input_precision=PRECISION)
        if CHANNEL and OUTPUT and k.dtype.element_ty != tl.float32:
            # k_tile, r K, is rounded already: without the rest of vn the state's error would pass 2.4e-3.
            S = tl.dot((vn - vn16.to(tl.float32)).to(k.dtype.element_ty), k_tile, S, input_precision=PRECISION)
    _leave(ht, summary, S, x, seq_head, segment, segment == NSEG - 1, V, K, NSEG, SUMMARY, WANTED)


@triton.jit
def _reverse(
    k, do, beta, ga, A, P, Qg, Kg, GC, dh, Y, dv, dht, dh0, summary,
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
        inside = i < length - c * C
        first = (begin + c * C).to(tl.int64)
        value = grid2((first * HV + hv) * V, x, i, 1, HV * V)
        within = inside[None, :] & (x < V)[:, None]
        d16 = D.to(k.dtype.element_ty)
        b = tl.load(beta + (first + i) * HV + hv, mask=inside, other=0.0).to(tl.float32)
        do_t = tl.load(do + value, mask=within, other=0.0)
        if BV < 64:
            decay = tl.load(GC + tile * K + d)[None, :] if CHANNEL else tl.exp(tl.load(ga + tile * C + C - 1))
            q_tile = tl.load(grid2(Qg + tile * C * K, i, d, K, 1))
            D = tl.dot(do_t, q_tile, D * decay, input_precision=PRECISION)
        else:
            p = tl.load(grid2(P + tile * C * C, i, i, C, 1))
            a = tl.load(grid2(A + tile * C * C, i, i, C, 1))
            q_tile = tl.load(grid2(Qg + tile * C * K, i, d, K, 1))
        if CHANNEL:
            k_tile = tl.load(grid2(k + tile * C * K, i, d, K, 1))
            dvn = tl.dot(d16, tl.trans(k_tile), input_precision=PRECISION)
        else:
            k_tile = tl.load(grid2(k + (first * H + hk) * K, i, d, H * K, 1), mask=inside[:, None], other=0.0)
            cum = tl.load(ga + tile * C + i)
            end = tl.load(ga + tile * C + C - 1)
            dvn = tl.dot(d16, tl.trans(k_tile), input_precision=PRECISION) * tl.exp(end - cum)[None, :]
        if BV < 64:
            p = tl.load(grid2(P + tile * C * C, i, i, C, 1))
            a = tl.load(grid2(A + tile * C * C, i, i, C, 1))
        dvn = tl.dot(do_t, p, dvn, input_precision=PRECISION)
        y = tl.dot(dvn.to(k.dtype.element_ty), a, input_precision=PRECISION)
        if not SUMMARY:
            tl.store(grid2(dh + tile * V * K, x, d, K, 1), d16)
            tl.store(grid2(Y + tile * C * V, x, i, 1, V), y.to(Y.dtype.element_ty))
        y *= b[None, :]
        if not SUMMARY:
            tl.store(dv + value, y.to(dv.dtype.element_ty), mask=within)
        if CHANNEL:
            left = tl.load(grid2(Kg + tile * C * K, i, d, K, 1))
        else:
            y *= tl.exp(cum)[None, :]
            left = k_tile
            if BV < 64:
                left = tl.load(grid2(k + (first * H + hk) * K, i, d, H * K, 1), mask=inside[:, None], other=0.0)
        if BV >= 64:
            D *= tl.load(GC + tile * K + d)[None, :] if CHANNEL else tl.exp(end)
            D = tl.dot(do_t, q_tile, D, input_precision=PRECISION)
        D = tl.dot((-y).to(k.dtype.element_ty), left, D, input_precision=PRECISION)
    _leave(dh0, summary, D, x, seq_head, segment, segment == 0, V, K, NSEG, SUMMARY, WANTED)


@triton.jit(do_not_specialize=SIZES)
def scan(
    q, k, v, do, beta, ga, A, P, Qg, Kg, GC, h, dh, Vn, KS, Y, o, dv, h0, ht, dht, dh0, summary,
    cu_seqlens, chunk_start, scale, T, NT, N, H, HV, V,
    K: tl.constexpr, C: tl.constexpr, BV: tl.constexpr, NSEG: tl.constexpr, VARLEN: tl.constexpr, CHANNEL: tl.constexpr,
    HAS_H0: tl.constexpr, WANT_HT: tl.constexpr, HAS_DHT: tl.constexpr, WANT_DH0: tl.constexpr,
    BACKWARD: tl.constexpr, SUMMARY: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Grid (rows / BV, N * HV, NSEG, doubled when BACKWARD). Rows: V, with SUMMARY V + K.

    Forward: o and ht. BACKWARD: half of the programs go forward and keep h, Vn and KS, half go in reverse and keep dh,
    Y, dv and dh0. With CHANNEL, k points at the prepared rows Kr.
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
                k, do, beta, ga, A, P, Qg, Kg, GC, dh, Y, dv, dht, dh0, half,
                x, n, hv, hk, begin, length, chunk0, c0, c1, segment, H, HV, V,
                K, C, BV, NSEG, CHANNEL, HAS_DHT, WANT_DH0, SUMMARY, PRECISION, STAGES,
            )  # fmt: skip
        else:
            _forward(
                q, k, v, beta, ga, A, P, Qg, Kg, GC, h, Vn, KS, o, h0, ht, summary,
                x, n, hv, hk, begin, length, chunk0, c0, c1, segment, scale, H, HV, V,
                K, C, BV, NSEG, CHANNEL, HAS_H0, False, not SUMMARY, False, SUMMARY, PRECISION, STAGES,
            )  # fmt: skip
    else:
        _forward(
            q, k, v, beta, ga, A, P, Qg, Kg, GC, h, Vn, KS, o, h0, ht, summary,
            x, n, hv, hk, begin, length, chunk0, c0, c1, segment, scale, H, HV, V,
            K, C, BV, NSEG, CHANNEL, HAS_H0, WANT_HT, False, not SUMMARY, SUMMARY, PRECISION, STAGES,
        )  # fmt: skip
