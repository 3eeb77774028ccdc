"""Arithmetic that numpy has no operator for, on arrays of any shape: what one PTX instruction computes a thread.

Integers are unsigned arrays, floats are float32 or float64; every function is pure. Rules: PTX ISA 9, "Integer
Arithmetic", "Floating Point", "Logic and Shift", "Data Movement" (`prmt`). Approximate functions are computed in
float64 and rounded once: well inside the documented error of the hardware's, but not its bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from kcontract.dynamic.engines.simulator.values import Array, flush, to_f32

_SIGNED = {1: "i1", 2: "i2", 4: "i4", 8: "i8"}
_CANONICAL_NAN = np.uint32(0x7FFFFFFF)


def mul_hi(a: Array, b: Array) -> Array:
    """Upper half of the product of two unsigned or two signed arrays of one type."""
    if a.dtype.itemsize < 8:
        wide = "i8" if a.dtype.kind == "i" else "u8"
        return cast(
            Array, (a.astype(wide) * b.astype(wide) >> a.dtype.type(8 * a.dtype.itemsize).astype(wide)).astype(a.dtype)
        )
    x, y = a.view("u8"), b.view("u8")
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    x0, x1, y0, y1 = x & low, x >> half, y & low, y >> half
    middle = x1 * y0 + (x0 * y0 >> half)
    high = x1 * y1 + (middle >> half) + ((x0 * y1 + (middle & low)) >> half)
    if a.dtype.kind == "u":
        return cast(Array, high)
    negative_a, negative_b = a < 0, b < 0
    return cast(Array, (high - np.where(negative_a, y, 0) - np.where(negative_b, x, 0)).view("i8"))


def divide(a: Array, b: Array) -> Array:
    """Integer division toward zero; by zero it gives all ones, which is what hardware returns."""
    zero = b == 0
    if not zero.any():
        return _truncated(a, b)
    return np.where(
        zero,
        a.dtype.type(-1 if a.dtype.kind == "i" else np.iinfo(a.dtype).max),
        _truncated(a, np.where(zero, b.dtype.type(1), b)),
    )


def _truncated(a: Array, b: Array) -> Array:
    quotient = a // b
    if a.dtype.kind == "i":
        quotient = quotient + ((quotient * b != a) & ((a < 0) != (b < 0)))
    return quotient


def remainder(a: Array, b: Array) -> Array:
    """Remainder with the sign of ``a``; by zero it gives ``a``."""
    safe = np.where(b == 0, b.dtype.type(1), b)
    return np.where(b == 0, a, a - _truncated(a, safe) * safe)


def shift_left(a: Array, n: Array) -> Array:
    """``n`` is uint32; shifts of the width or more give 0."""
    width = 8 * a.dtype.itemsize
    amount = np.minimum(n, np.uint32(width - 1)).astype(a.dtype)
    return cast(Array, np.where(n >= width, a.dtype.type(0), a << amount))


def shift_right(a: Array, n: Array) -> Array:
    """Arithmetic on signed, logical on unsigned arrays; ``n`` is uint32 and clamped to the width."""
    width = 8 * a.dtype.itemsize
    amount = np.minimum(n, np.uint32(width - 1)).astype(a.dtype)
    if a.dtype.kind == "i":
        return cast(Array, a >> amount)
    return cast(Array, np.where(n >= width, a.dtype.type(0), a >> amount))


def funnel(a: Array, b: Array, c: Array, *, left: bool, wrap: bool) -> Array:
    """`shf`: the pair b:a shifted by c; left takes the upper half, right the lower."""
    n = (c & np.uint32(31)) if wrap else np.minimum(c, np.uint32(32))
    pair = (b.astype("u8") << np.uint64(32)) | a.astype("u8")
    if left:
        return cast(Array, ((pair << n.astype("u8")) >> np.uint64(32)).astype("u4"))
    return cast(Array, (pair >> n.astype("u8")).astype("u4"))


def permute(a: Array, b: Array, c: Array) -> Array:
    """`prmt.b32`, default mode."""
    pair = (b.astype("u8") << np.uint64(32)) | a.astype("u8")
    out: Array = np.zeros((1, 1), "u4")
    for i in range(4):
        selector = (c >> np.uint32(4 * i)) & np.uint32(15)
        byte = (pair >> ((selector & np.uint32(7)) * np.uint32(8)).astype("u8")).astype("u4") & np.uint32(255)
        sign = np.where(byte & np.uint32(128), np.uint32(255), np.uint32(0))
        byte = np.where(selector & np.uint32(8), sign, byte)
        out = out | (byte << np.uint32(8 * i))
    return out


def permute_by(a: Array, b: Array, selector: int) -> Array:
    """`prmt.b32` with a constant selector: only the shifts that are needed."""
    sources = [selector >> (4 * i) & 15 for i in range(4)]
    if any(s & 8 for s in sources):
        return permute(a, b, np.full((1, 1), selector, "u4"))
    if sources == [0, 1, 4, 5]:
        return cast(Array, (a & np.uint32(0xFFFF)) | (b << np.uint32(16)))
    if sources == [2, 3, 6, 7]:
        return cast(Array, (a >> np.uint32(16)) | (b & np.uint32(0xFFFF0000)))
    out: Array | None = None
    by_shift: dict[tuple[int, int], int] = {}
    for i, s in enumerate(sources):
        key = (s >> 2, 8 * (i - (s & 3)))
        by_shift[key] = by_shift.get(key, 0) | 0xFF << (8 * i)
    for (which, shift), mask in by_shift.items():
        word = (a, b)[which]
        word = word << np.uint32(shift) if shift > 0 else word >> np.uint32(-shift) if shift < 0 else word
        word = word & np.uint32(mask)
        out = word if out is None else out | word
    assert out is not None
    return out


def extract(a: Array, position: Array, length: Array) -> Array:
    """`bfe` on 32 or 64 bits, sign-extending when ``a`` is signed."""
    width = 8 * a.dtype.itemsize
    unsigned = a.view(f"u{a.dtype.itemsize}")
    start, count = position & np.uint32(255), length & np.uint32(255)
    field = shift_right(unsigned, start)
    mask = np.where(
        count >= width,
        unsigned.dtype.type(np.iinfo(unsigned.dtype).max),
        shift_left(np.ones_like(unsigned), count) - unsigned.dtype.type(1),
    )
    field = field & mask
    if a.dtype.kind == "u":
        return cast(Array, field)
    top = np.minimum(start + count - np.uint32(1), np.uint32(width - 1))
    sign = (shift_right(unsigned, top) & unsigned.dtype.type(1)) != 0
    return cast(Array, np.where((count != 0) & sign, field | ~mask, field).view(a.dtype))


def insert(a: Array, b: Array, position: Array, length: Array) -> Array:
    """`bfi`: the low ``length`` bits of a into b at ``position``."""
    start, count = position & np.uint32(255), length & np.uint32(255)
    width = 8 * a.dtype.itemsize
    ones = a.dtype.type(np.iinfo(a.dtype).max)
    field = np.where(count >= width, ones, shift_left(np.ones_like(a), count) - a.dtype.type(1))
    mask = shift_left(field, start)
    return (b & ~mask) | (shift_left(a, start) & mask)


def logic3(a: Array, b: Array, c: Array, table: int) -> Array:
    """`lop3.b32` by its truth table (a = 0xF0, b = 0xCC, c = 0xAA)."""
    out: Array = np.zeros((1, 1), a.dtype)
    for i in range(8):
        if table >> i & 1:
            out = out | ((a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c))
    return out


def popcount(a: Array) -> Array:
    x = a.astype("u8")
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return cast(Array, ((x * np.uint64(0x0101010101010101)) >> np.uint64(56)).astype("u4"))


def leading_zeros(a: Array) -> Array:
    """`clz`: the width for 0."""
    x = a
    bits = 8 * a.dtype.itemsize
    shift = 1
    while shift < bits:
        x = x | (x >> a.dtype.type(shift))
        shift *= 2
    return cast(Array, np.uint32(bits) - popcount(x))


def find_top(a: Array, *, shift: bool) -> Array:
    """`bfind`: place of the highest set bit (of the highest bit that differs from the sign), or 0xffffffff."""
    unsigned = a.view(f"u{a.dtype.itemsize}")
    x = np.where(a < 0, ~unsigned, unsigned) if a.dtype.kind == "i" else unsigned
    zeros = leading_zeros(x)
    width = np.uint32(8 * a.dtype.itemsize)
    found = zeros if shift else width - np.uint32(1) - zeros
    return np.where(zeros == width, np.uint32(0xFFFFFFFF), found)


def reverse_bits(a: Array) -> Array:
    flat = np.ascontiguousarray(a)
    octets = flat.view("u1").reshape(*flat.shape, a.dtype.itemsize)[..., ::-1]
    return np.ascontiguousarray(np.take(_reversed_bytes(), octets)).view(a.dtype)[..., 0]


@functools.cache
def _reversed_bytes() -> Array:
    return np.array([int(f"{i:08b}"[::-1], 2) for i in range(256)], "u1")


def dot4(a: Array, b: Array, c: Array) -> Array:
    """`dp4a`: a, b are uint32 or int32 views whose kind says how their bytes are read; c any 32-bit array."""
    total = c.view("i4").astype("i8")
    for i in range(4):
        total = total + _byte(a, i) * _byte(b, i)
    return total.astype("u8").astype("u4")


def _byte(a: Array, i: int) -> Array:
    if a.dtype.kind == "u":
        return cast(Array, ((a >> np.uint32(8 * i)) & np.uint32(255)).astype("i8"))
    return cast(Array, ((a << np.int32(24 - 8 * i)) >> np.int32(24)).astype("i8"))


def fma32(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """float32 a·b + c with one rounding.

    The product is exact in float64; the sum is rounded to odd where the second rounding could differ from a
    single one (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
    """
    p = a.astype("f8") * b
    s = p + c
    if mode == "rn":
        near = s.astype("f4")
        risky = (s.view("u8") & np.uint64(0x1FFFFFFF)) == np.uint64(0x10000000)
        tiny = (near.view("u4") & np.uint32(0x7F800000)) == 0
        if not risky.any() and not (tiny & (s != 0)).any():
            return near
    return to_f32(_odd(p, c.astype("f8"), s), mode)


def _odd(p: Array, c: Array, s: Array) -> Array:
    """The sum s = p + c in float64, rounded to odd instead of to nearest."""
    back = s - p
    error = (p - (s - back)) + (c - back)
    bits = s.view("u8")
    inexact = (error != 0) & np.isfinite(s) & ((bits & np.uint64(1)) == 0)
    away = (error > 0) == (s > 0)
    return np.where(inexact, np.where(away, bits + np.uint64(1), bits - np.uint64(1)), bits).view("f8")


def add32(a: Array, b: Array, mode: str) -> Array:
    """float32 sum with a directed rounding."""
    if mode == "rn":
        return a + b
    p, c = a.astype("f8"), b.astype("f8")
    return to_f32(_odd(p, np.broadcast_to(c, np.broadcast_shapes(p.shape, c.shape)), p + c), mode)


def fma64(a: Array, b: Array, c: Array) -> Array:
    """float64 a·b + c through an exact product and an exact sum, added once more: one rounding but for ties that
    the low parts would break (Ogita, Rump and Oishi, "Accurate sum and dot product", 2005, Dot2)."""
    p = a * b
    split = 134217729.0
    ah = a * split - (a * split - a)
    bh = b * split - (b * split - b)
    al, bl = a - ah, b - bh
    low = ((ah * bh - p) + ah * bl + al * bh) + al * bl
    s = p + c
    back = s - p
    error = (p - (s - back)) + (c - back)
    out = s + (error + low)
    odd = ~np.isfinite(out) | (np.abs(p) > 1e290) | ((np.abs(p) < 1e-280) & (p != 0))
    return np.where(odd, s, out) if odd.any() else out


def maximum(a: Array, b: Array, *, nan: bool) -> Array:
    """`max` on floats: +0 above -0; a NaN loses unless ``nan``, then the result is the canonical NaN."""
    out = np.fmax(a, b)
    zero = (a == 0) & (b == 0)
    if zero.any():
        out = np.where(zero & ~np.signbit(a), a, np.where(zero, b, out))
    return _nan_rule(a, b, out, nan)


def minimum(a: Array, b: Array, *, nan: bool) -> Array:
    """`min` on floats: -0 below +0; a NaN loses unless ``nan``."""
    out = np.fmin(a, b)
    zero = (a == 0) & (b == 0)
    if zero.any():
        out = np.where(zero & np.signbit(a), a, np.where(zero, b, out))
    return _nan_rule(a, b, out, nan)


def _nan_rule(a: Array, b: Array, out: Array, nan: bool) -> Array:
    if nan:
        bad = np.isnan(a) | np.isnan(b)
        return np.where(bad, canonical(out.dtype), out) if bad.any() else out
    bad = np.isnan(out)
    return np.where(bad, canonical(out.dtype), out) if bad.any() else out


def canonical(dtype: np.dtype[Any]) -> Any:
    """The NaN that hardware makes: 0x7fffffff for float32, 0x7ff8000000000000 for float64."""
    if dtype.itemsize == 4:
        return np.float32(np.array(_CANONICAL_NAN).view("f4"))
    return np.float64(np.nan)


def clean(out: Array) -> Array:
    """float32 with each NaN replaced by the canonical one, as arithmetic instructions return it."""
    bad = np.isnan(out)
    return np.where(bad, _CANONICAL_NAN, out.view("u4")).view("f4") if bad.any() else out


def saturate(values: Array) -> Array:
    """`.sat`: to [0, 1], NaN to +0."""
    return cast(Array, np.where(values > 0, np.minimum(values, values.dtype.type(1)), values.dtype.type(0)))


def approximate(name: str, values: Array, *, ftz: bool) -> Array:
    """ex2, lg2, sin, cos, tanh, rcp, rsqrt or sqrt of float32, rounded once from float64; ftz flushes both ends."""
    x = flush(values) if ftz else values
    wide = x.astype("f8")
    out = clean(_FUNCTIONS[name](wide).astype("f4"))
    return flush(out) if ftz else out


_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "rcp": np.reciprocal,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sqrt": np.sqrt,
}


def function64(name: str, values: Array) -> Array:
    """sqrt, rcp and rsqrt of float64."""
    return np.asarray(_FUNCTIONS[name](values))


def with_sign(values: Array, negative: Array) -> Array:
    """|values| with a sign."""
    return np.where(negative, -np.abs(values), np.abs(values))


def clamp(a: Array, dtype: str) -> Array:
    """Integers saturated to the range of another integer type, still of the type of ``a``."""
    own, other = np.iinfo(a.dtype), np.iinfo(dtype)
    return np.clip(a, max(int(own.min), int(other.min)), min(int(own.max), int(other.max)))


def to_integer(a: Array, dtype: str, mode: str) -> Array:
    """Float to integer: rni, rzi, rmi, rpi; saturating. NaN gives 0, or the top bit alone where float64 or a 64-bit
    result takes part (PTX ISA, `cvt`)."""
    wide = a.astype("f8")
    whole = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[mode](wide)
    limits = np.iinfo(dtype)
    low, high = float(limits.min), float(limits.max)
    inside = np.where(whole >= high, 0.0, np.where(whole <= low, 0.0, whole))
    inside = np.where(np.isnan(whole), 0.0, inside)
    out = inside.astype(dtype)
    out = np.where(whole >= high, limits.max, np.where(whole <= low, limits.min, out)).astype(dtype)
    nan = np.isnan(wide)
    if nan.any():
        odd = a.dtype.itemsize == 8 or limits.bits == 64
        out = np.where(nan, (np.array(1 << (limits.bits - 1), f"u{limits.bits // 8}").view(dtype) if odd else 0), out)
    return out.astype(dtype)
