"""First launch, parallel over (chunk, value head): the squares and scaled rows that the state scans multiply with.

The forward solves for A and keeps it, 8 KB a chunk and head in 16 bit; the backward reads A back.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# The bodies below are Triton's language, compiled for the GPU; annotations there mean compile-time constants, not
# Python types.

from __future__ import annotations

import triton
import triton.language as tl

from kcontract.kernels.gdn.tiles import SIZES, decay_from, grid2, inverse_of_unit_lower, pick, place


@triton.jit(do_not_specialize=SIZES)
def prepare_scalar(
    q, k, g, beta, ga, A, A32, P, P16, rows, Qg, cu_seqlens, chunk_sequence, chunk_start,
    scale, T, NT, N, H, HV,
    K: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, SOLVE: tl.constexpr, KEEP: tl.constexpr, VARLEN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Grid (HV, chunks). Write P; with SOLVE also ga, A and A32 (A before rounding), else Qg = scale Gam Q; with KEEP
    also P16, P rounded, rows ``[4, C]``, float32: Gam, r, beta, ga, and for A the N of A = I + beta N.

    The forward scan needs no Qg: it scales its product instead, one rounding fewer.
    """
    hv = tl.program_id(0)
    chunk = tl.program_id(1)
    hk = hv // (HV // H)
    n, first, left = place(chunk, cu_seqlens, chunk_sequence, chunk_start, T, NT, N, VARLEN, C)
    if n < N:
        i = tl.arange(0, C)
        inside = i < left
        tile = chunk.to(tl.int64) * HV + hv
        token = (first * H + hk) * K
        square = grid2(tile * C * C, i, i, C, 1)
        if SOLVE:
            cum = tl.cumsum(tl.load(g + (first + i) * HV + hv, mask=inside, other=0.0).to(tl.float32), 0)
        else:
            cum = tl.load(ga + tile * C + i)
        QK = tl.zeros((C, C), dtype=tl.float32)
        KK = tl.zeros((C, C), dtype=tl.float32)
        for start in tl.static_range(0, K, BK):
            d = start + tl.arange(0, BK)
            k_tile = tl.load(grid2(k + token, i, d, H * K, 1), mask=inside[:, None], other=0.0)
            q_tile = tl.load(grid2(q + token, i, d, H * K, 1), mask=inside[:, None], other=0.0)
            QK = tl.dot(q_tile, tl.trans(k_tile), QK, input_precision=PRECISION)
            if SOLVE:
                KK = tl.dot(k_tile, tl.trans(k_tile), KK, input_precision=PRECISION)
            else:
                scaled = q_tile.to(tl.float32) * (scale * tl.exp(cum))[:, None]
                tl.store(Qg + grid2(tile * C * K, i, d, K, 1), scaled.to(Qg.dtype.element_ty))
        if SOLVE:
            tl.store(ga + tile * C + i, cum)
            b = tl.load(beta + (first + i) * HV + hv, mask=inside, other=0.0).to(tl.float32)
            M = tl.where(i[:, None] > i[None, :], decay_from(cum, C) * KK, 0.0)
            a = inverse_of_unit_lower(b[:, None] * M, C, PRECISION)
            tl.store(A32 + square, a)
            if KEEP:
                a = -tl.dot(M, a, input_precision=PRECISION)
            tl.store(A + square, a.to(A.dtype.element_ty))
        p = scale * QK * decay_from(cum, C)
        tl.store(P + square, p.to(P.dtype.element_ty))
        if KEEP:
            tl.store(P16 + square, p.to(P16.dtype.element_ty))
            kept = rows + tile * 4 * C + i
            tl.store(kept, tl.exp(cum))
            tl.store(kept + C, tl.exp(pick(cum, C - 1, C) - cum))
            tl.store(kept + 2 * C, tl.load(beta + (first + i) * HV + hv, mask=inside, other=0.0).to(tl.float32))
            tl.store(kept + 3 * C, cum)
