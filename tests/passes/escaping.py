"""Kernels whose 16-bit sums are written so that a careless reader of TTGIR misses them."""

import triton
import triton.language as tl


@triton.jit
def add_up_and_round(a, b):
    return (a.to(tl.float32) + b.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def reduce_rounding(x, o, N: tl.constexpr):
    tl.store(o, tl.reduce(tl.load(x + tl.arange(0, N)), 0, add_up_and_round))


@triton.jit
def add_both(a, b, c, d):
    return a + c, b + d


@triton.jit
def tuple_second(x, o, N: tl.constexpr):
    value = tl.load(x + tl.arange(0, N))
    _, narrow = tl.reduce((value.to(tl.float32), value), 0, add_both)
    tl.store(o, narrow)


@triton.jit
def sum_and_greatest(a, b, c, d):
    return a + c, tl.where(b > d, b, d)


@triton.jit
def tuple_greatest(x, o, N: tl.constexpr):
    """Honest: only a comparison is made in 16 bits."""
    value = tl.load(x + tl.arange(0, N))
    total, top = tl.reduce((value.to(tl.float32), value), 0, sum_and_greatest)
    tl.store(o, (total + top.to(tl.float32)).to(tl.bfloat16))


@triton.jit
def dot_rounded(a, b, c, K, SCALE, M: tl.constexpr, N: tl.constexpr, B: tl.constexpr, HALF: tl.constexpr):
    """The accumulator is rounded (HALF: kept and rescaled) in 16 bits on every trip."""
    r, s, d = tl.arange(0, M), tl.arange(0, N), tl.arange(0, B)
    acc = tl.zeros((M, N), dtype=tl.float16 if HALF else tl.float32)
    for k in range(0, K, B):
        left = tl.load(a + r[:, None] * K + k + d[None, :])
        right = tl.load(b + (k + d)[:, None] * N + s[None, :])
        if HALF:
            acc = tl.dot(left, right, (acc * SCALE).to(tl.float16), out_dtype=tl.float16)
        else:
            acc = tl.dot(left, right, acc).to(tl.float16).to(tl.float32)
    tl.store(c + r[:, None] * N + s[None, :], acc)


@triton.jit
def dot_rescaled(a, b, c, K, SCALE, M: tl.constexpr, N: tl.constexpr, B: tl.constexpr):
    """Honest: the accumulator is rescaled in float32."""
    r, s, d = tl.arange(0, M), tl.arange(0, N), tl.arange(0, B)
    acc = tl.zeros((M, N), dtype=tl.float32)
    for k in range(0, K, B):
        left = tl.load(a + r[:, None] * K + k + d[None, :])
        acc = tl.dot(left, tl.load(b + (k + d)[:, None] * N + s[None, :]), acc * SCALE)
    tl.store(c + r[:, None] * N + s[None, :], acc)


@triton.jit
def sum_of_sums(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o, tl.sum(tl.sum(tl.load(x + i[:, None] * N + i[None, :]), 1), 0))


@triton.jit
def running_mean(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    acc = tl.zeros((B,), tl.bfloat16)
    for k in range(n):
        acc = ((acc * k + tl.load(x + k * B + i)) / (k + 1)).to(tl.bfloat16)
    tl.store(o + i, acc)


@triton.jit
def unrolled(x, o, B: tl.constexpr, T: tl.constexpr):
    i = tl.arange(0, B)
    acc = tl.zeros((B,), tl.bfloat16)
    for k in tl.static_range(T):
        acc = (acc.to(tl.float32) + tl.load(x + k * B + i)).to(tl.bfloat16)
    tl.store(o + i, acc)


@triton.jit
def rounded_now_and_then(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    acc = tl.zeros((B,), tl.float32)
    for k in range(n):
        value = tl.load(x + k * B + i)
        acc = acc + value
        if k % 2 == 0:
            acc = (acc.to(tl.bfloat16) + value).to(tl.float32)
    tl.store(o + i, acc.to(tl.bfloat16))


@triton.jit(noinline=True)
def outlined_add(a, b):
    return a + b


@triton.jit
def through_a_call(x, o, n):
    acc = tl.load(x).to(tl.bfloat16) * 0
    for k in range(n):
        acc = outlined_add(acc, tl.load(x + k))
    tl.store(o, acc)


@triton.jit
def as_bits(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    acc = tl.zeros((B,), tl.int16)
    for k in range(n):
        acc = (acc.to(tl.bfloat16, bitcast=True) + tl.load(x + k * B + i)).to(tl.int16, bitcast=True)
    tl.store(o + i, acc.to(tl.bfloat16, bitcast=True))


@triton.jit
def through_memory(x, o, n, m, B: tl.constexpr):
    i = tl.arange(0, B)
    for k in range(n):
        for r in range(m):
            at = o + r * B + i
            tl.store(at, tl.load(at) + tl.load(x + (k * m + r) * B + i))


@triton.jit
def count_in_a_loop(x, o, B: tl.constexpr, T: tl.constexpr):
    """Honest: a count of zeros and ones, exact up to 2048."""
    i = tl.arange(0, B)
    acc = tl.zeros((B,), tl.float16)
    for k in range(T):
        acc += (tl.load(x + k * B + i) > 0).to(tl.float16)
    tl.store(o + i, acc)


@triton.jit
def count_from_a_loaded_value(x, o, B: tl.constexpr, T: tl.constexpr):
    """What the count is added to is rounded: it need not be an integer."""
    i = tl.arange(0, B)
    acc = tl.load(o + i)
    for k in range(T):
        acc += (tl.load(x + k * B + i) > 0).to(tl.float16)
    tl.store(o + i, acc)
