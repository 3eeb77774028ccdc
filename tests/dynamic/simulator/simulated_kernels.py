"""Triton kernels the simulator's tests run: small, each one a construct that lowers to instructions of its own."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(out + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m), mask=m)


@triton.jit
def softmax(x, out, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + i, mask=i < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * stride + i, e / tl.sum(e, axis=0), mask=i < n)


@triton.jit
def layernorm(x, w, b, out, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    m = i < n
    v = tl.load(x + row * n + i, mask=m, other=0.0).to(tl.float32)
    mean = tl.sum(v, axis=0) / n
    d = tl.where(m, v - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(d * d, axis=0) / n + eps)
    y = d * rstd * tl.load(w + i, mask=m) + tl.load(b + i, mask=m)
    tl.store(out + row * n + i, y, mask=m)


@triton.jit
def cumsum(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    v = tl.load(x + row * n + i, mask=i < n, other=0)
    tl.store(out + row * n + i, tl.cumsum(v, axis=0), mask=i < n)


@triton.jit
def sort(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.sort(tl.load(x + i)))


@triton.jit
def argmax(x, out, values, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * n + i, mask=i < n, other=-float("inf"))
    best, where = tl.max(v, axis=0, return_indices=True)
    tl.store(out + tl.program_id(0), where)
    tl.store(values + tl.program_id(0), best)


@triton.jit
def histogram(x, out, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    i = tl.arange(0, BLOCK)
    h = tl.histogram(tl.load(x + i), BINS)
    tl.store(out + tl.arange(0, BINS), h)


@triton.jit
def gather(x, index, out, N: tl.constexpr, M: tl.constexpr):
    v = tl.load(x + tl.arange(0, N))
    j = tl.load(index + tl.arange(0, M))
    tl.store(out + tl.arange(0, M), tl.gather(v, j, 0))


@triton.jit
def atomics(x, total, biggest, smallest, bits, count, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    v = tl.load(x + i, mask=m, other=0)
    tl.atomic_add(total + (i % 4), v, mask=m)
    tl.atomic_max(biggest + 0 * i, v, mask=m)
    tl.atomic_min(smallest + 0 * i, v, mask=m)
    k = tl.atomic_add(count, 1)
    tl.atomic_or(bits, 1 << (k % 32))


@triton.jit
def float_atomics(x, total, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.atomic_add(total + i % 8, tl.load(x + i, mask=m, other=0.0), mask=m)


@triton.jit
def spin_lock(lock, total, x, BLOCK: tl.constexpr):
    v = tl.sum(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)), axis=0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(total, tl.load(total) + v)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def integers(x, y, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i)
    b = tl.load(y + i)
    r = (a // b) ^ (a % b) ^ (a * b) ^ (a << 3) ^ (a >> 2) ^ tl.umulhi(a, b)
    tl.store(out + i, tl.where(a > b, r, -r))


@triton.jit
def math(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    m = i < n
    v = tl.load(x + i, mask=m, other=1.0)
    tl.store(out + 0 * n + i, tl.exp(v), mask=m)
    tl.store(out + 1 * n + i, tl.log(tl.abs(v)), mask=m)
    tl.store(out + 2 * n + i, tl.sin(v), mask=m)
    tl.store(out + 3 * n + i, tl.cos(v), mask=m)
    tl.store(out + 4 * n + i, tl.sqrt(tl.abs(v)), mask=m)
    tl.store(out + 5 * n + i, tl.rsqrt(tl.abs(v)), mask=m)
    tl.store(out + 6 * n + i, tl.sigmoid(v), mask=m)
    tl.store(out + 7 * n + i, tl.erf(v), mask=m)
    tl.store(out + 8 * n + i, tl.floor(v), mask=m)
    tl.store(out + 9 * n + i, tl.div_rn(1.0, v), mask=m)
    tl.store(out + 10 * n + i, tl.sqrt_rn(tl.abs(v)), mask=m)
    tl.store(out + 11 * n + i, tl.fma(v, v, v), mask=m)
    tl.store(out + 12 * n + i, tl.exp2(v), mask=m)
    tl.store(out + 13 * n + i, tl.log2(tl.abs(v)), mask=m)
    tl.store(out + 14 * n + i, tl.ceil(v), mask=m)


@triton.jit
def rand(out, seed, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.rand(seed, i))
    tl.store(out + BLOCK + i, tl.randn(seed, i))


@triton.jit
def convert(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty))


@triton.jit
def round_trip(x, out, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i).to(DTYPE).to(tl.float32))


@triton.jit
def dot(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] * N + n[None, :])
    tl.store(c + m[:, None] * N + n[None, :], tl.dot(x, y, input_precision=PRECISION, out_dtype=ACC))


@triton.jit
def column_sums(x, out, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    tl.store(out + j, tl.sum(tl.load(x + i[:, None] * N + j[None, :]), 0))


@triton.jit
def matmul(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr, TRANS: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in tl.range(0, K, BK, num_stages=STAGES):
        x = tl.load(
            a + m[:, None] * K + (start + k)[None, :], mask=(m < M)[:, None] & (start + k < K)[None, :], other=0.0
        )
        if TRANS:
            y = tl.load(
                b + n[:, None] * K + (start + k)[None, :], mask=(n < N)[:, None] & (start + k < K)[None, :], other=0.0
            )
            y = y.T
        else:
            y = tl.load(
                b + (start + k)[:, None] * N + n[None, :], mask=(n < N)[None, :] & (start + k < K)[:, None], other=0.0
            )
        acc = tl.dot(x, y, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc.to(c.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def attention(q, k, v, out, N, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    x = tl.load(q + rows[:, None] * D + d[None, :])
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, N, BN):
        cols = start + tl.arange(0, BN)
        s = tl.dot(x, tl.load(k + cols[:, None] * D + d[None, :]).T) * scale
        if CAUSAL:
            s = tl.where(rows[:, None] >= cols[None, :], s, -float("inf"))
        peak = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2((s - peak[:, None]) * 1.44269504)
        shrink = tl.exp2((top - peak) * 1.44269504)
        total = total * shrink + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype.element_ty), tl.load(v + cols[:, None] * D + d[None, :]), acc * shrink[:, None])
        top = peak
    tl.store(out + rows[:, None] * D + d[None, :], (acc / total[:, None]).to(out.dtype.element_ty))


@triton.jit
def tma_matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPECIALISE: tl.constexpr):
    x = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    y = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    z = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for start in tl.range(0, K, BK, warp_specialize=SPECIALISE):
        acc = tl.dot(x.load([m, start]), y.load([n, start]).T, acc)
    z.store([m, n], acc.to(c.dtype.element_ty))


@triton.jit
def host_tma_matmul(x, y, z, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for start in tl.range(0, K, BK):
        acc = tl.dot(x.load([m, start]), y.load([n, start]).T, acc)
    z.store([m, n], acc.to(tl.float16))


@triton.jit
def dot_scaled(
    a, a_scale, b, b_scale, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, KIND: tl.constexpr, PACK: tl.constexpr
):
    m, n, k, s = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K // PACK), tl.arange(0, K // 32)
    x = tl.load(a + m[:, None] * (K // PACK) + k[None, :])
    y = tl.load(b + k[:, None] * N + n[None, :])
    sx = tl.load(a_scale + m[:, None] * (K // 32) + s[None, :])
    sy = tl.load(b_scale + n[:, None] * (K // 32) + s[None, :])
    tl.store(c + m[:, None] * N + n[None, :], tl.dot_scaled(x, sx, KIND, y, sy, KIND))
