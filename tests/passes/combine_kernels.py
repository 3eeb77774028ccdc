"""Reductions and scans with combine functions that are, and are not, associative and commutative."""

import triton
import triton.language as tl


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def subtract(a, b):
    return a - b


@triton.jit
def mean(a, b):
    return (a + b) * 0.5


@triton.jit
def squares(a, b):
    return a * a + b * b


@triton.jit
def larger_magnitude(a, b):
    return tl.where(tl.abs(a) > tl.abs(b), a, b)


@triton.jit
def first(a, b):
    return a


@triton.jit
def capped_add(a, b):
    return tl.minimum(a + b, 1.0)


@triton.jit
def log_sum(a, b):
    top = tl.maximum(a, b)
    return top + tl.log(tl.exp(a - top) + tl.exp(b - top))


@triton.jit
def softmax(m1, s1, m2, s2):
    m = tl.maximum(m1, m2)
    return m, s1 * tl.exp(m1 - m) + s2 * tl.exp(m2 - m)


@triton.jit
def recurrence(a1, b1, a2, b2):
    return a1 * a2, a2 * b1 + b2


@triton.jit
def recurrence_without_decay(a1, b1, a2, b2):
    return a1, a2 * b1 + b2


@triton.jit
def segmented(f1, v1, f2, v2):
    return tl.maximum(f1, f2), tl.where(f2 > 0.5, v2, v1 + v2)


@triton.jit
def peak(a1, b1, a2, b2):
    return tl.maximum(a1, a2 + b1), b1 + b2


@triton.jit
def both(a1, b1, a2, b2):
    return a1 + a2, tl.maximum(b1, b2)


@triton.jit
def welford(m1, s1, w1, m2, s2, w2):
    delta = m2 - m1
    w = w1 + w2
    ratio = tl.where(w == 0.0, 0.0, w2 / w)
    return m1 + delta * ratio, s1 + s2 + delta * delta * w1 * ratio, w


@triton.jit
def reduce_one(x, o, n, BLOCK: tl.constexpr, F: tl.constexpr):
    value = tl.load(x + tl.arange(0, BLOCK))
    if F == "add":
        found = tl.reduce(value, 0, add)
    elif F == "subtract":
        found = tl.reduce(value, 0, subtract)
    elif F == "mean":
        found = tl.reduce(value, 0, mean)
    elif F == "squares":
        found = tl.reduce(value, 0, squares)
    elif F == "larger_magnitude":
        found = tl.reduce(value, 0, larger_magnitude)
    elif F == "first":
        found = tl.reduce(value, 0, first)
    elif F == "capped_add":
        found = tl.reduce(value, 0, capped_add)
    elif F == "log_sum":
        found = tl.reduce(value, 0, log_sum)
    elif F == "max":
        found = tl.max(value, 0)
    tl.store(o, found)


@triton.jit
def reduce_two(x, o, n, BLOCK: tl.constexpr, F: tl.constexpr):
    at = tl.arange(0, BLOCK)
    pair = (tl.load(x + at), tl.load(x + n + at))
    if F == "softmax":
        a, b = tl.reduce(pair, 0, softmax)
    elif F == "recurrence":
        a, b = tl.reduce(pair, 0, recurrence)
    elif F == "both":
        a, b = tl.reduce(pair, 0, both)
    tl.store(o, a)
    tl.store(o + 1, b)


@triton.jit
def scan_two(x, o, n, BLOCK: tl.constexpr, F: tl.constexpr):
    at = tl.arange(0, BLOCK)
    pair = (tl.load(x + at), tl.load(x + n + at))
    if F == "recurrence":
        a, b = tl.associative_scan(pair, 0, recurrence)
    elif F == "recurrence_without_decay":
        a, b = tl.associative_scan(pair, 0, recurrence_without_decay)
    elif F == "segmented":
        a, b = tl.associative_scan(pair, 0, segmented)
    elif F == "peak":
        a, b = tl.associative_scan(pair, 0, peak)
    tl.store(o + at, a)
    tl.store(o + n + at, b)


@triton.jit
def reduce_welford(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    a, b, c = tl.reduce((value, value * 0.0, tl.where(at < n, 1.0, 0.0)), 0, welford)
    tl.store(o, a + b + c)


@triton.jit
def index_of_max(x, o, n, BLOCK: tl.constexpr, TIES: tl.constexpr):
    tl.store(o, tl.argmax(tl.load(x + tl.arange(0, BLOCK)), 0, tie_break_left=TIES))


@triton.jit
def index_of_min(x, o, n, BLOCK: tl.constexpr, TIES: tl.constexpr):
    tl.store(o, tl.argmin(tl.load(x + tl.arange(0, BLOCK)), 0, tie_break_left=TIES))
