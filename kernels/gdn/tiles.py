"""Pieces shared by the Triton kernels: where a chunk lies, decays inside it, and the triangular inverse.

A chunk is CHUNK rows of one sequence and one value head. Per-chunk buffers are laid out ``[chunk, HV, ...]`` and whole:
rows past the end of a sequence hold zeros (gates: the last value), so only inputs and outputs in token order need
masks.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# The bodies below are Triton's language, compiled for the GPU; annotations there mean compile-time constants, not
# Python types.

from __future__ import annotations

import triton
import triton.language as tl

SIZES = ("T", "NT", "N", "H", "HV")
"""Arguments that Triton must not specialise on, so that no new length or number of heads compiles a kernel again."""


@triton.jit
def place(chunk, cu_seqlens, chunk_sequence, chunk_start, T, NT, N, VARLEN: tl.constexpr, C: tl.constexpr):
    """Return (sequence, first token, tokens from there to the sequence's end); sequence N marks an unused chunk."""
    if VARLEN:
        n = tl.load(chunk_sequence + chunk)
        inside = n < N
        begin = tl.load(cu_seqlens + n, mask=inside, other=0).to(tl.int64)
        end = tl.load(cu_seqlens + n + 1, mask=inside, other=0).to(tl.int64)
        first = (chunk - tl.load(chunk_start + n, mask=inside, other=0)).to(tl.int64) * C
        return n, begin + first, (end - begin - first).to(tl.int32)
    else:  # noqa: RET505, one branch is chosen when the kernel is compiled
        n = chunk // NT
        i = chunk % NT
        return n, n.to(tl.int64) * T + i * C, T - i * C


@triton.jit
def grid2(pointer, rows, cols, row_stride, col_stride):
    """Pointers of a ``[len(rows), len(cols)]`` tile."""
    return pointer + rows[:, None] * row_stride + cols[None, :] * col_stride


@triton.jit
def decay_from(ga, C: tl.constexpr):
    """``exp(ga_i - ga_j)`` for i >= j, else 0."""
    i = tl.arange(0, C)
    lower = i[:, None] >= i[None, :]
    return tl.where(lower, tl.exp(tl.where(lower, ga[:, None] - ga[None, :], 0.0)), 0.0)


@triton.jit
def pick(x, index, C: tl.constexpr):
    """``x[index]`` of a vector of C."""
    return tl.sum(tl.where(tl.arange(0, C) == index, x, 0.0), 0)


@triton.jit
def inverse_of_unit_lower(L, C: tl.constexpr, PRECISION: tl.constexpr):
    """``(I + L)^-1`` for a strictly lower L ``[C, C]`` in float32.

    The diagonal 16 x 16 blocks by forward substitution, all at once, because repeated squaring of a whole chunk cancels
    catastrophically when keys repeat; then the blocks are joined by a series that ends after C / 16 terms.
    """
    B: tl.constexpr = 16
    NB: tl.constexpr = C // B
    i = tl.arange(0, C)
    same = (i[:, None] // B) == (i[None, :] // B)
    eye = tl.where(i[:, None] == i[None, :], 1.0, 0.0)
    blocks = tl.sum(tl.reshape(tl.where(same, L, 0.0), (NB, B, NB, B)), 2)
    row = tl.arange(0, B)[None, :, None]
    X = -blocks
    for r in range(2, B):
        line = tl.sum(tl.where(row == r, blocks, 0.0), 1)
        new = -line - tl.sum(line[:, :, None] * X, 1)
        X = tl.where(row == r, new[:, None, :], X)
    wide = tl.broadcast_to(X[:, :, None, :], (NB, B, NB, B))
    X2 = tl.where(same, tl.reshape(wide, (C, C)), 0.0) + eye
    M = tl.dot(X2, tl.where(same, 0.0, L), input_precision=PRECISION)
    M2 = tl.dot(M, M, input_precision=PRECISION)
    series = eye - M
    series += tl.dot(series, M2, input_precision=PRECISION)
    return tl.dot(series, X2, input_precision=PRECISION)
