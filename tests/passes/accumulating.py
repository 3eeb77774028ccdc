"""Kernels that accumulate in every way Triton has, for ``test_accumulations``."""

import triton
import triton.language as tl


@triton.jit
def reduce_sum(x, o, N: tl.constexpr):
    tl.store(o, tl.sum(tl.load(x + tl.arange(0, N)), axis=0))


@triton.jit
def reduce_sum32(x, o, N: tl.constexpr):
    tl.store(o, tl.sum(tl.load(x + tl.arange(0, N)).to(tl.float32), axis=0))


@triton.jit
def reduce_max(x, o, N: tl.constexpr):
    tl.store(o, tl.max(tl.load(x + tl.arange(0, N)), axis=0))


@triton.jit
def scan_sum(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.associative_scan(tl.load(x + i), 0, add))


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def loop_sum(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    acc = tl.zeros((B,), x.dtype.element_ty)
    for k in range(n):
        acc += tl.load(x + k * B + i)
    tl.store(o + i, acc)


@triton.jit
def loop_sum_long(x, o, B: tl.constexpr, T: tl.constexpr):
    i = tl.arange(0, B)
    acc = tl.zeros((B,), x.dtype.element_ty)
    for k in range(T):
        acc += tl.load(x + k * B + i)
    tl.store(o + i, acc)


@triton.jit
def loop_sum32(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    acc = tl.zeros((B,), tl.float32)
    for k in range(n):
        acc += tl.load(x + k * B + i).to(tl.float32)
    tl.store(o + i, acc)


@triton.jit
def name_only(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    acc = tl.zeros((B,), tl.float16)
    for k in range(n):
        acc = (acc.to(tl.float32) + tl.load(x + k * B + i).to(tl.float32)).to(tl.float16)
    tl.store(o + i, acc)


@triton.jit
def both(x, o, p, n, B: tl.constexpr):
    i = tl.arange(0, B)
    acc = tl.zeros((B,), tl.float32)
    for k in range(n):
        acc += tl.load(x + k * B + i).to(tl.float32)
        tl.store(p + k * B + i, acc.to(tl.float16))
    tl.store(o + i, acc)


@triton.jit
def decay(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    acc = tl.zeros((B,), tl.bfloat16)
    for k in range(n):
        acc = acc * tl.load(x + k).to(tl.bfloat16) + tl.load(x + k * B + i)
    tl.store(o + i, acc)


@triton.jit
def partial(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    acc = tl.zeros((B,), tl.float32)
    for k in range(n):
        pair = tl.load(x + 2 * k * B + i) + tl.load(x + (2 * k + 1) * B + i)
        acc += pair.to(tl.float32)
    tl.store(o + i, acc)


@triton.jit
def atomic(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.atomic_add(o + i, tl.load(x + tl.program_id(0) * N + i))


@triton.jit
def memory_sum(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    p = o + i
    for k in range(n):
        tl.store(p, tl.load(p) + tl.load(x + k * B + i))


@triton.jit
def rmw_once(x, o, B: tl.constexpr):
    p = o + tl.arange(0, B)
    tl.store(p, tl.load(p) + tl.load(x + tl.arange(0, B)))


@triton.jit
def chain(a, b, c, o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(a + i) + tl.load(b + i) + tl.load(c + i))


@triton.jit
def chain5(a, o, B: tl.constexpr):
    i = tl.arange(0, B)
    s = tl.load(a + i)
    for k in tl.static_range(1, 5):
        s += tl.load(a + k * B + i)
    tl.store(o + i, s)


@triton.jit
def while_sum(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    acc = tl.zeros((B,), tl.float16)
    k = 0
    while k < n:
        acc += tl.load(x + k * B + i)
        k += 1
    tl.store(o + i, acc)


@triton.jit
def nested(x, o, n, m, B: tl.constexpr):
    i = tl.arange(0, B)
    acc = tl.zeros((B,), tl.float16)
    for k in range(n):
        for j in range(16):
            if j % 2 == 0:
                acc += tl.load(x + (k * m + j) * B + i)
            else:
                acc -= tl.load(x + (k * m + j) * B + i)
    tl.store(o + i, acc)


@triton.jit
def dot(a, b, c, K, M: tl.constexpr, N: tl.constexpr, B: tl.constexpr, T: tl.constexpr):
    r, s, d = tl.arange(0, M), tl.arange(0, N), tl.arange(0, B)
    acc = tl.zeros((M, N), dtype=T)
    for k in range(0, K, B):
        acc = tl.dot(
            tl.load(a + r[:, None] * K + k + d[None, :]),
            tl.load(b + (k + d)[:, None] * N + s[None, :]),
            acc,
            out_dtype=T,
        )
    tl.store(c + r[:, None] * N + s[None, :], acc)


@triton.jit
def one_dot(a, b, c, M: tl.constexpr, N: tl.constexpr, B: tl.constexpr, T: tl.constexpr):
    r, s, d = tl.arange(0, M), tl.arange(0, N), tl.arange(0, B)
    acc = tl.dot(tl.load(a + r[:, None] * B + d[None, :]), tl.load(b + d[:, None] * N + s[None, :]), out_dtype=T)
    tl.store(c + r[:, None] * N + s[None, :], acc)


@triton.jit
def attention(q, k, v, o, n, M: tl.constexpr, D: tl.constexpr, B: tl.constexpr):
    r, d, j = tl.arange(0, M), tl.arange(0, D), tl.arange(0, B)
    qq = tl.load(q + r[:, None] * D + d[None, :])
    acc = tl.zeros((M, D), tl.float32)
    total = tl.zeros((M,), tl.float32)
    m = tl.full((M,), float("-inf"), tl.float32)
    for t in range(0, n, B):
        kk = tl.load(k + (t + j)[None, :] * D + d[:, None])
        s = tl.dot(qq, kk)
        m2 = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m2[:, None])
        alpha = tl.exp(m - m2)
        total = total * alpha + tl.sum(p, 1)
        vv = tl.load(v + (t + j)[:, None] * D + d[None, :])
        acc = acc * alpha[:, None]
        acc = tl.dot(p.to(tl.float16), vv, acc)
        m = m2
    tl.store(o + r[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.float16))


@triton.jit
def packed_sum(x, o, n, B: tl.constexpr):
    """Adds pairs of float16 in one 32-bit register by inline assembly."""
    i = tl.arange(0, B)
    acc = tl.zeros((B,), tl.int32)
    for k in range(n):
        pair = tl.load(x + k * B + i)
        acc = tl.inline_asm_elementwise(
            "add.rn.f16x2 $0, $1, $2;", "=r,r,r", [acc, pair], dtype=tl.int32, is_pure=True, pack=1
        )
    tl.store(o + i, acc)


@triton.jit
def packed_add(x, y, o, B: tl.constexpr):
    i = tl.arange(0, B)
    pair = tl.inline_asm_elementwise(
        "add.rn.f16x2 $0, $1, $2;", "=r,r,r", [tl.load(x + i), tl.load(y + i)], dtype=tl.int32, is_pure=True, pack=1
    )
    tl.store(o + i, pair)


@triton.jit
def count_mask(x, o, N: tl.constexpr):
    """A float16 sum of zeros and ones: exact up to 2048."""
    i = tl.arange(0, N)
    tl.store(o, tl.sum((tl.load(x + i) > 0).to(tl.float16), axis=0))


@triton.jit
def masked_sum(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o, tl.sum(tl.load(x + i, mask=i < n, other=0.0), axis=0))


@triton.jit
def pick(x, o, k, B: tl.constexpr):
    """A sum with one term that is not zero."""
    i = tl.arange(0, B)
    tl.store(o, tl.sum(tl.where(i == k, tl.load(x + i), 0.0), axis=0))


@triton.jit
def times(a, b):
    return a * b


@triton.jit
def product(x, o, N: tl.constexpr):
    tl.store(o, tl.reduce(tl.load(x + tl.arange(0, N)), 0, times))
