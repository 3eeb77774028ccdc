"""Matrix instructions on warps: ldmatrix, stmatrix and mma.sync, and how tensor cores sum.

Fragment layouts: PTX ISA 9, "Warp Level Matrix Instructions". All shapes of mma.sync follow one rule: with lane
32 = (group of 8, quarter of 4) and p elements in a 32-bit register, A's register i holds row group + 8 (i mod 2) and
columns p·quarter + 4p (i div 2), B's register i rows p·quarter + 4p·i of column group, C's element i row
group + 8 (i div 2), column 2·quarter + i mod 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from kcontract.dynamic.engines.simulator import memory, values
from kcontract.dynamic.engines.simulator.faults import Fault, Unsupported
from kcontract.dynamic.engines.simulator.strand import Strand
from kcontract.dynamic.engines.simulator.values import Array


def warps_of(strand: Strand) -> int:
    if not strand.warps:
        raise Fault("divergent-warp", "a warp-wide matrix instruction runs while part of the warp is elsewhere")
    return strand.warps


# ---- ldmatrix, stmatrix


def _rows_of(strand: Strand, address: Array, count: int) -> Array:
    """Addresses of the rows of ``count`` 8 by 8 matrices, (rows, warps, 8 count)."""
    address = memory.own(address, strand.machine.grid.cluster_size)
    full = np.broadcast_to(address, (address.shape[0], strand.t)).reshape(-1, warps_of(strand), 32)
    return full[..., : 8 * count]


def load_matrices(strand: Strand, address: Array, count: int, transpose: bool) -> list[Array]:
    """`ldmatrix.m8n8.x{count}.b16`: one uint32 a thread and matrix."""
    rows = _rows_of(strand, address, count)
    shared = strand.machine.shared
    base = strand.cta[:, :, None]
    index = shared.index(base, rows, 16, 16)
    if strand.machine.checker is not None:
        touch(strand, np.broadcast_to(base, index.shape), np.broadcast_to(rows, index.shape), "read")
    data = shared.view("c16").take(index)
    tiles = data.view("u2").reshape(*index.shape[:2], count, 8, 8)
    if transpose:
        tiles = np.swapaxes(tiles, -1, -2)
    words = np.ascontiguousarray(np.moveaxis(tiles, 2, 0)).view("u4")
    return list(words.reshape(count, index.shape[0], strand.t))


def store_matrices(strand: Strand, address: Array, parts: list[Array], transpose: bool, mask: Array | None) -> None:
    """`stmatrix.m8n8.x{count}.b16`; a warp stores where its first thread's mask holds."""
    count, w = len(parts), warps_of(strand)
    rows = np.broadcast_to(_rows_of(strand, address, count), (strand.b, w, 8 * count))
    words = np.empty((strand.b, w, count, 32), "u4")
    for k, p in enumerate(parts):
        words[:, :, k] = strand.full(p).reshape(strand.b, w, 32)
    tiles = words.view("u2").reshape(strand.b, w, count, 8, 8)
    if transpose:
        tiles = np.ascontiguousarray(np.swapaxes(tiles, -1, -2))
    data = tiles.view("c16").reshape(strand.b, w, 8 * count)
    shared = strand.machine.shared
    base = np.broadcast_to(strand.cta[:, :, None], rows.shape)
    warp = np.broadcast_to((strand.tid[0, ::32] >> 5)[None, :, None], rows.shape)
    if mask is not None:
        keep = strand.full(mask).reshape(strand.b, w, 32)[..., 0]
        rows, data, base, warp = rows[keep], data[keep], base[keep], warp[keep]
    index = shared.index(base, rows, 16, 16)
    if strand.machine.checker is not None:
        strand.machine.checker.touch(base.reshape(-1), rows.reshape(-1), 16, warp.reshape(-1), "write")
    shared.view("c16")[index] = data
    strand.machine.version += 1


def touch(strand: Strand, row: Array, address: Array, how: str) -> None:
    """Tell checked mode of 16-byte accesses, (rows, warps, ...)."""
    checker = strand.machine.checker
    assert checker is not None
    warp = np.broadcast_to((strand.tid[0, ::32] >> 5)[None, :, None], row.shape)
    checker.touch(row.reshape(-1), address.reshape(-1), 16, warp.reshape(-1), how)


# ---- sums


@dataclass(frozen=True)
class Adder:
    """How a tensor core sums one instruction's products, bit for bit as measured on an H200 (mma.sync and wgmma of
    f16, bf16, tf32 and fp8: ``benchmarks/simulator_vs_gpu.py``) and as published for B200 (sf-tensor/tcgen05).

    Each exact product counts with the sum of its factors' exponents; all products and the accumulator are cut to
    ``bits`` fraction bits below the largest exponent, summed exactly, and the sum is cut to float32, or to ``keep``
    fraction bits. ``low_a`` and ``low_b`` are the smallest exponents of the factors' formats (subnormals have those).
    """

    low_a: int = -126
    low_b: int = -126
    bits: int = 25
    keep: int | None = None
    half: bool = False


def adder(a: str, b: str, *, half: bool, coarse: bool = False) -> Adder:
    """The adder for element kinds; ``half``: f16 results; ``coarse``: wgmma of 8-bit floats, which keeps 13 bits."""
    low = [1 - values.FORMATS[k].bias if k in values.FORMATS else -126 for k in (a, b)]
    return Adder(low[0], low[1], 13, 13, half) if coarse else Adder(low[0], low[1], half=half)


def multiply(a: Array, b: Array, c: Array | None, mode: str, how: Adder) -> Array:
    """a @ b + c. ``fp32``: float32 sums of exact products in numpy's order. ``hardware``: what ``how`` says; float64
    where the result is rounded to f16 next. Integers are int32 with wrap-around; float64 stays float64."""
    if a.dtype.kind == "i":
        exact = np.matmul(a.astype("f8"), b.astype("f8")).astype("i8")
        return cast(Array, (exact if c is None else exact + c).astype("u8").astype("u4").view("i4"))
    if mode == "fp32" or a.dtype == np.float64:
        out = np.matmul(a, b)
        return cast(Array, out if c is None else c + out)
    return _truncated(a, b, c, how)


def _truncated(a: Array, b: Array, c: Array | None, how: Adder) -> Array:
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    out = np.empty((*shape, a.shape[-2], b.shape[-1]), "f8" if how.half else "f4")
    a2 = np.broadcast_to(a, (*shape, *a.shape[-2:])).reshape(-1, *a.shape[-2:]).astype("f8")
    b2 = np.broadcast_to(b, (*shape, *b.shape[-2:])).reshape(-1, *b.shape[-2:]).astype("f8")
    c2 = None if c is None else np.broadcast_to(c, out.shape).reshape(-1, *out.shape[-2:]).astype("f8")
    flat = out.reshape(-1, *out.shape[-2:])
    for k in range(len(flat)):
        exponent_b = _exponents(b2[k], how.low_b)
        for start in range(0, a2.shape[1], 16):
            rows = slice(start, start + 16)
            exponents = _exponents(a2[k, rows], how.low_a)[:, :, None] + exponent_b
            terms = a2[k, rows, :, None] * b2[k]
            flat[k, rows] = _cut_sum(terms, exponents, None if c2 is None else c2[k, rows], how)
    return out


def _exponents(x: Array, low: int) -> Array:
    return np.where(x == 0, -4000, np.maximum(np.frexp(np.where(np.isfinite(x), x, 0.0))[1] - 1, low))


def _cut_sum(terms: Array, exponents: Array, old: Array | None, how: Adder) -> Array:
    """Sum of float64 terms over axis 1, plus ``old``, in the adder's fixed point."""
    top = exponents.max(axis=1)
    if old is not None:
        top = np.maximum(top, _exponents(old, -126))
    unit = np.ldexp(1.0, np.maximum(top, -300) - how.bits)
    plain = terms.sum(axis=1) if old is None else terms.sum(axis=1) + old
    total = np.trunc(np.where(np.isfinite(terms), terms, 0.0) / unit[:, None]).sum(axis=1) * unit
    if old is not None:
        total = total + np.trunc(np.where(np.isfinite(old), old, 0.0) / unit) * unit
    if how.keep is not None:
        last = np.ldexp(1.0, np.frexp(total)[1] - 1 - how.keep)
        total = np.trunc(total / last) * last
    return np.where(np.isfinite(plain), total if how.half else values.to_f32(total, "rz"), plain)


# ---- mma.sync


@dataclass(frozen=True)
class Shape:
    """One form of mma.sync: m, n, k; element kinds of A, B, and of C and D."""

    m: int
    n: int
    k: int
    a: str
    b: str
    c: str

    @property
    def per(self) -> int:
        """Elements of A or B in one register."""
        return 1 if self.a in ("f64", "tf32") else 4 if self.a in _BYTES else 2


_BYTES = ("s8", "u8", "e4m3", "e5m2")


def elements(bits: Array, kind: str) -> Array:
    """Decode registers (..., last axis contiguous) to float32, float64 or int32, one more axis for packed ones."""
    if kind == "f64":
        return bits.view("f8")[..., None]
    if kind == "tf32":
        return values.decode(bits, "tf32")[..., None]
    if kind in ("f16", "bf16"):
        return values.decode(bits.view("u2").reshape(*bits.shape, 2), kind)
    if kind in ("s8", "u8"):
        return bits.view("i1" if kind == "s8" else "u1").reshape(*bits.shape, 4).astype("i4")
    return values.decode(bits.view("u1").reshape(*bits.shape, 4), kind)


def stack(strand: Strand, registers: list[Array]) -> Array:
    """Registers as one array (count, b, warps, 8, 4)."""
    out = np.empty((len(registers), strand.b, strand.t), registers[0].dtype)
    for k, r in enumerate(registers):
        out[k] = r
    return out.reshape(len(registers), strand.b, warps_of(strand), 8, 4)


def left(strand: Strand, registers: list[Array], shape: Shape, count: int) -> Array:
    """A fragments of ``count`` matrices as (b, warps, count, m, k)."""
    x = elements(stack(strand, registers), shape.a)
    halves = shape.m // 8
    x = x.reshape(count, -1, halves, *x.shape[1:])  # matrix, i div 2, i mod 2, b, w, group, quarter, element
    x = x.transpose(3, 4, 0, 2, 5, 1, 6, 7)
    return np.ascontiguousarray(x).reshape(strand.b, strand.warps, count, shape.m, shape.k)


def right(strand: Strand, registers: list[Array], shape: Shape, count: int) -> Array:
    """B fragments of ``count`` matrices as (b, warps, k, count, n)."""
    x = elements(stack(strand, registers), shape.b)
    x = x.reshape(count, -1, *x.shape[1:])  # matrix, i, b, w, group, quarter, element
    x = x.transpose(2, 3, 1, 5, 6, 0, 4)
    return np.ascontiguousarray(x).reshape(strand.b, strand.warps, shape.k, count, shape.n)


def accumulator(strand: Strand, registers: list[Array], shape: Shape, count: int) -> Array:
    """C fragments as (count, b, warps, m, n)."""
    x = stack(strand, registers)
    w = strand.warps
    if shape.c == "f16":
        x = values.decode(x.view("u2").reshape(*x.shape, 2), "f16")
        x = x.reshape(count, shape.m // 8, strand.b, w, 8, 4, 2).transpose(0, 2, 3, 1, 4, 5, 6)
    else:
        x = x.view({"f32": "f4", "s32": "i4", "f64": "f8"}[shape.c])
        x = x.reshape(count, shape.m // 8, 2, strand.b, w, 8, 4).transpose(0, 3, 4, 1, 5, 6, 2)
    return np.ascontiguousarray(x).reshape(count, strand.b, w, shape.m, shape.n)


def results(strand: Strand, d: Array, shape: Shape) -> list[Array]:
    """(count, b, warps, m, n) to registers, in order of matrix and register."""
    count, w = d.shape[0], strand.warps
    x = d.reshape(count, strand.b, w, shape.m // 8, 8, 4, 2)
    if shape.c == "f16":
        bits = values.encode(np.ascontiguousarray(x.transpose(0, 3, 1, 2, 4, 5, 6)), "f16").view("u4")
        return list(bits.reshape(-1, strand.b, strand.t))
    out = np.ascontiguousarray(x.transpose(0, 3, 6, 1, 2, 4, 5))
    return list(out.view("u8" if shape.c == "f64" else "u4").reshape(-1, strand.b, strand.t))


def mma(
    strand: Strand, shape: Shape, a: list[list[Array]], b: list[list[Array]], c: list[list[Array]],
    pairs: tuple[tuple[int, int], ...], saturate: bool,
) -> list[Array]:  # fmt: skip
    """Several independent mma.sync at once: ``pairs`` names the A and B of each, ``c`` its accumulators."""
    warps_of(strand)
    mode = strand.machine.grid.options.accumulate
    x = left(strand, [r for one in a for r in one], shape, len(a))
    y = right(strand, [r for one in b for r in one], shape, len(b))
    old = accumulator(strand, [r for one in c for r in one], shape, len(c))
    rows, columns = len(a), len(b)
    if mode == "fp32" and len(pairs) == rows * columns and len(set(pairs)) == len(pairs) and shape.c != "s32":
        big = np.matmul(
            x.reshape(strand.b, strand.warps, rows * shape.m, shape.k),
            y.reshape(strand.b, strand.warps, shape.k, columns * shape.n),
        )
        big = big.reshape(strand.b, strand.warps, rows, shape.m, columns, shape.n)
        product = big.transpose(2, 4, 0, 1, 3, 5)
        order = [i * columns + j for i, j in pairs]
        product = product.reshape(rows * columns, *product.shape[2:])[order]
        d = old + product
    else:
        xs = np.moveaxis(x, 2, 0)[[i for i, _ in pairs]]
        ys = np.moveaxis(y, 3, 0)[[j for _, j in pairs]]
        d = multiply(xs, ys, old, mode, adder(shape.a, shape.b, half=shape.c == "f16"))
    if saturate:
        raise_over(xs=x, ys=y, d=d, shape=shape)
    return results(strand, d, shape)


def raise_over(xs: Array, ys: Array, d: Array, shape: Shape) -> None:
    """`.satfinite` on s32: sums that stay below 2**31 need no clamp; others are not simulated."""
    bound = float(np.abs(xs).max(initial=0)) * float(np.abs(ys).max(initial=0)) * shape.k
    if float(np.abs(d.astype("f8")).max(initial=0)) + bound >= 2**31:
        raise Unsupported("an integer sum near 2**31 with .satfinite is not simulated")


# ---- tiles in shared memory, by descriptor


@dataclass(frozen=True)
class Tile:
    """A matrix operand in shared memory: strides in bytes, ``swizzle`` in bytes (0, 32, 64, 128), ``coarse`` the
    128-byte swizzle with 32-byte atoms. PTX ISA 9, "Shared memory matrix layout" and "Matrix descriptor"."""

    leading: int
    stride: int
    swizzle: int
    coarse: bool = False


def read_tile(
    machine_shared: memory.Rows, row: Array, start: Array, tile: Tile, outer: int, k: int, size: int, major: str
) -> Array:
    """Bytes of an (outer, k) operand of ``size``-byte elements: (CTAs, outer, k·size) if K-major, (CTAs, k,
    outer·size) if MN-major. ``row`` and ``start`` are int64 of shape (CTAs,): CTA number and descriptor address."""
    rel = _offsets(tile, outer, k, size, major)
    address = start[:, None, None] + rel[None]
    address = swizzled(address, tile.swizzle, tile.coarse)
    index = machine_shared.index(row[:, None, None], address, 16, 16)
    return machine_shared.view("c16").take(index).view("u1").reshape(len(row), rel.shape[0], -1)


def tile_addresses(start: Array, tile: Tile, outer: int, k: int, size: int, major: str) -> Array:
    """Addresses of the 16-byte pieces that ``read_tile`` reads, (CTAs, ..., ...)."""
    rel = _offsets(tile, outer, k, size, major)
    return swizzled(start[:, None, None] + rel[None], tile.swizzle, tile.coarse)


def _offsets(tile: Tile, outer: int, k: int, size: int, major: str) -> Array:
    width = tile.swizzle
    if major == "k":
        r = np.arange(outer)[:, None]
        byte = np.arange(0, max(k * size, 16), 16)[None, :]
        if width:
            return (r // 8) * tile.stride + (r % 8) * width + byte % width + byte // width * tile.leading
        return (r // 8) * tile.stride + (r % 8) * 16 + byte // 16 * tile.leading
    depth = np.arange(k)[:, None]
    byte = np.arange(0, outer * size, 16)[None, :]
    if width:
        return byte // width * tile.leading + byte % width + (depth // 8) * tile.stride + (depth % 8) * width
    return byte // 16 * tile.stride + (depth // 8) * tile.leading + (depth % 8) * 16


def swizzled(address: Array, width: int, coarse: bool = False) -> Array:
    """XOR of address bits 4 - 6 (4 - 5, 4) with bits 7 - 9 (7 - 8, 7) for 128 (64, 32) bytes; ``coarse``: bits 5 - 6
    with 7 - 8."""
    if coarse:
        return cast(Array, address ^ (((address >> 7) & 3) << 5))
    if not width:
        return address
    return cast(Array, address ^ (((address >> 7) & (width // 16 - 1)) << 4))
