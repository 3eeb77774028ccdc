"""First launch, parallel over (chunk, value head): everything the state scans multiply with.

Forward and backward share it. The forward solves for A and keeps it, 8 KB a chunk and head; the backward reads A back.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
# The bodies below are Triton's language, compiled for the GPU; annotations there mean compile-time constants, not Python types.

from __future__ import annotations

import triton
import triton.language as tl

from kcontract.kernels.gdn.tiles import decay_from, grid2, inverse_of_unit_lower, pick, place


@triton.jit
def prepare_scalar(
    q, k, g, beta, ga, A, Wn, Ab, P, Qg, GC, cu_seqlens, chunk_sequence, chunk_start,
    scale, T, NT, N, H, HV,
    K: tl.constexpr, C: tl.constexpr, SOLVE: tl.constexpr, VARLEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write, a chunk and head: Wn = -A diag(beta Gam) K, Ab = A diag(beta), P, Qg = scale Gam Q, GC; with SOLVE ga and A,
    and no Qg: the forward scan scales its product instead, one rounding fewer."""
    hv = tl.program_id(0)
    chunk = tl.program_id(1)
    hk = hv // (HV // H)
    n, first, left = place(chunk, cu_seqlens, chunk_sequence, chunk_start, T, NT, N, VARLEN, C)
    if n < N:
        i = tl.arange(0, C)
        d = tl.arange(0, K)
        inside = i < left
        tile = chunk.to(tl.int64) * HV + hv
        token = (first * H + hk) * K
        k_tile = tl.load(grid2(k + token, i, d, H * K, 1), mask=inside[:, None], other=0.0)
        q_tile = tl.load(grid2(q + token, i, d, H * K, 1), mask=inside[:, None], other=0.0)
        b = tl.load(beta + (first + i) * HV + hv, mask=inside, other=0.0).to(tl.float32)
        square = grid2(tile * C * C, i, i, C, 1)
        if SOLVE:
            cum = tl.cumsum(tl.load(g + (first + i) * HV + hv, mask=inside, other=0.0).to(tl.float32), 0)
            tl.store(ga + tile * C + i, cum)
        else:
            cum = tl.load(ga + tile * C + i)
        G = decay_from(cum, C)
        gam = tl.exp(cum)
        if SOLVE:
            KK = tl.dot(k_tile, tl.trans(k_tile), input_precision=PRECISION)
            L = tl.where(i[:, None] > i[None, :], b[:, None] * G * KK, 0.0)
            a = inverse_of_unit_lower(L, C, PRECISION)
            tl.store(A + square, a.to(A.dtype.element_ty))
        else:
            a = tl.load(A + square).to(tl.float32)
        w = tl.dot((a * (b * gam)[None, :]).to(k_tile.dtype), k_tile, input_precision=PRECISION)
        rows = grid2(tile * C * K, i, d, K, 1)
        tl.store(Wn + rows, (-w).to(Wn.dtype.element_ty))
        tl.store(Ab + square, (a * b[None, :]).to(Ab.dtype.element_ty))
        p = tl.dot(q_tile, tl.trans(k_tile), input_precision=PRECISION)
        tl.store(P + square, (scale * p * G).to(P.dtype.element_ty))
        if not SOLVE:
            tl.store(Qg + rows, (q_tile.to(tl.float32) * (scale * gam)[:, None]).to(Qg.dtype.element_ty))
        tl.store(GC + tile, tl.exp(pick(cum, C - 1, C)))
