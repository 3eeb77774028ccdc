"""Number formats: how PTX's narrow floating-point types are read, rounded and packed in numpy.

Registers are numpy arrays of bits; this file turns bits of a format into float32 or float64 values and back. Rules:
PTX ISA 9, "Fundamental Types", "Alternate Floating-Point Data Formats", and `cvt` for rounding and saturation.
It knows nothing of instructions or threads.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

#: numpy's name of each register representation.
DTYPE = {
    name: np.dtype(name) for name in ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "bool", "c16")
}


@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating-point format of ``exponent`` and ``mantissa`` bits, without its sign bit counted.

    ``infinity`` tells whether all-ones exponents hold Inf and NaN as in IEEE 754; ``nan`` is the positive NaN's
    pattern where the format has one; ``top`` the largest finite pattern.
    """

    exponent: int
    mantissa: int
    infinity: bool
    nan: int | None
    top: int

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa


#: OCP formats have no infinity except e5m2; PTX names without the packing suffix.
FORMATS = {
    "f16": Format(5, 10, True, 0x7FFF, 0x7BFF),
    "bf16": Format(8, 7, True, 0x7FFF, 0x7F7F),
    "tf32": Format(8, 10, True, 0x3FFFF, 0x3FBFF),
    "e4m3": Format(4, 3, False, 0x7F, 0x7E),
    "e5m2": Format(5, 2, True, 0x7F, 0x7B),
    "e2m1": Format(2, 1, False, None, 0x7),
    "e2m3": Format(2, 3, False, None, 0x1F),
    "e3m2": Format(3, 2, False, None, 0x1F),
    "ue4m3": Format(4, 3, False, 0x7F, 0x7E),
}


@functools.cache
def table(name: str) -> Array:
    """Values of all patterns of a format of at most 8 bits, as float32 of shape (256,); higher bits are ignored."""
    if name == "ue8m0":
        values = np.exp2(np.arange(256, dtype="f8") - 127).astype("f4")
        values[255] = np.nan
        return cast(Array, values)
    form = FORMATS[name]
    codes = np.arange(256) & ((1 << form.bits) - 1)
    exponent = (codes >> form.mantissa) & ((1 << form.exponent) - 1)
    fraction = (codes & ((1 << form.mantissa) - 1)) / (1 << form.mantissa)
    values = np.where(exponent == 0, fraction * 2.0 ** (1 - form.bias), (1 + fraction) * 2.0 ** (exponent - form.bias))
    low = codes & ((1 << (form.bits - 1)) - 1)
    if form.infinity:
        last = exponent == (1 << form.exponent) - 1
        values = np.where(last, np.where(fraction == 0, np.inf, np.nan), values)
    elif form.nan is not None:
        values = np.where(low == form.nan, np.nan, values)
    sign = np.where(codes >> (form.bits - 1) != 0, -1.0, 1.0)
    return np.asarray(values if name == "ue4m3" else values * sign, dtype="f4")


def decode(bits: Array, name: str) -> Array:
    """Values of patterns ``bits`` (unsigned integers) of a format, as float32 (float64 for ``f64``)."""
    if name == "f16":
        return np.asarray(bits, dtype="u2").view("f2").astype("f4")
    if name == "bf16":
        return cast(Array, (np.asarray(bits, dtype="u4") << np.uint32(16)).view("f4"))
    if name == "f32":
        return np.asarray(bits, dtype="u4").view("f4")
    if name == "f64":
        return np.asarray(bits, dtype="u8").view("f8")
    if name == "tf32":
        return cast(Array, (np.asarray(bits, dtype="u4") & np.uint32(0xFFFFE000)).view("f4"))
    return np.take(table(name), np.asarray(bits, dtype="u1"))


def bf16(values: Array) -> Array:
    """float32 to bfloat16 bits (uint16), nearest even; NaN becomes 0x7fff as `cvt.rn.bf16.f32` gives."""
    bits = np.ascontiguousarray(values, dtype="f4").view("u4")
    out = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype("u2")
    bad = np.isnan(values)
    return cast(Array, np.where(bad, np.uint16(0x7FFF), out) if bad.any() else out)


def f16(values: Array) -> Array:
    """float32 or float64 to half bits (uint16), nearest even; NaN becomes 0x7fff."""
    out = np.asarray(values).astype("f2").view("u2")
    bad = np.isnan(values)
    return np.where(bad, np.uint16(0x7FFF), out) if bad.any() else out


def encode(values: Array, name: str, mode: str = "rn", *, finite: bool = False, relu: bool = False) -> Array:
    """Round float32 or float64 ``values`` to a format's bit patterns (uint8, uint16 or uint32).

    ``mode``: rn (nearest even), rna (nearest, ties away), rz, rm, rp. ``finite`` is PTX's `.satfinite`: overflow
    and infinities give the largest finite value. ``relu`` clamps negatives and NaN to +0. NaN gives the canonical
    NaN, or the largest finite value where the format has no NaN (PTX ISA, `cvt`).
    """
    if not finite and not relu and mode == "rn" and name in ("f16", "bf16") and values.dtype == np.float32:
        return f16(values) if name == "f16" else bf16(values)
    form = FORMATS[name]
    if name == "ue4m3":
        values = np.abs(values)
    wide = np.asarray(values, dtype="f8")
    nan = np.isnan(wide)
    if relu:
        wide = np.where(nan | (wide < 0), 0.0, wide)
        nan = np.zeros_like(nan)
    negative = np.signbit(wide)
    size = np.abs(np.where(nan, 0.0, wide))
    infinite = np.isinf(size)
    size = np.where(infinite, 1.0, size)
    _, exponent = np.frexp(size)
    exponent = np.maximum(np.where(size == 0, -2000, exponent - 1), 1 - form.bias)
    scaled = np.ldexp(size, form.mantissa - exponent)
    whole = _round(scaled, mode, negative)
    codes = whole.astype("i8") + ((exponent.astype("i8") + form.bias - 1) << form.mantissa)
    over = (codes > form.top) & ~infinite
    limit = (((1 << form.exponent) - 1) << form.mantissa) if form.infinity else form.nan
    toward_zero = (mode == "rz") | ((mode == "rm") & ~negative) | ((mode == "rp") & negative)
    if finite or limit is None:
        codes = np.where(over | infinite, form.top, codes)
    else:
        codes = np.where(infinite | (over & ~toward_zero), limit, np.where(over, form.top, codes))
    codes = np.where(negative, codes | (1 << (form.bits - 1)), codes) if name != "ue4m3" else codes
    codes = np.where(nan, form.top if form.nan is None else form.nan, codes)
    if name == "tf32":
        return np.asarray(np.where(nan, 0x7FFFFFFF, codes << 13), dtype="u4")
    return codes.astype("u1" if form.bits <= 8 else "u2")


def encode_scale(values: Array, mode: str) -> Array:
    """float32 to ue8m0 exponents (uint8), rz or rp, saturating to finite; NaN gives 255."""
    size = np.abs(np.asarray(values, dtype="f8"))
    fraction, exponent = np.frexp(np.where(np.isfinite(size) & (size > 0), size, 1.0))
    power = exponent - 1 + ((fraction > 0.5) if mode == "rp" else 0)
    power = np.where(size == 0, -127, np.where(np.isinf(size), 127, power))
    return np.asarray(np.where(np.isnan(size), 255, np.clip(power + 127, 0, 254)), dtype="u1")


def _round(scaled: Array, mode: str, negative: Array) -> Array:
    """Non-negative reals to whole numbers; ``negative`` is the sign of what they stand for."""
    if mode == "rn":
        return np.rint(scaled)
    if mode == "rna":
        return np.floor(scaled + 0.5)
    if mode == "rz":
        return np.floor(scaled)
    up = negative if mode == "rm" else ~negative
    return np.where(up, np.ceil(scaled), np.floor(scaled))


def to_f32(wide: Array, mode: str) -> Array:
    """float64 to float32 with a directed rounding: rn, rz, rm, rp."""
    near = wide.astype("f4")
    if mode == "rn":
        return near
    back = near.astype("f8")
    above, below = back > wide, back < wide
    if mode == "rz":
        above, below = above & (wide > 0), below & (wide < 0)
    elif mode == "rm":
        below = np.zeros_like(below)
    else:
        above = np.zeros_like(above)
    near = np.where(above, np.nextafter(near, np.float32(-np.inf)), near)
    return np.where(below, np.nextafter(near, np.float32(np.inf)), near)


def flush(values: Array) -> Array:
    """float32 with subnormals replaced by zeros of the same sign (`.ftz`)."""
    bits = values.view("u4")
    small = (bits & np.uint32(0x7F800000)) == 0
    return np.where(small, bits & np.uint32(0x80000000), bits).view("f4") if small.any() else values
