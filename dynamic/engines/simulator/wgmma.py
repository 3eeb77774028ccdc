"""`wgmma.mma_async`: matrix products of a warpgroup with operands in shared memory (PTX ISA 9, "Asynchronous Warpgroup
Level Matrix Instructions").

The product is computed when issued; until it is waited for, checked mode holds its operands in shared memory busy.
Consecutive products into one accumulator are one long product.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kcontract.dynamic.engines.simulator import matrix, values
from kcontract.dynamic.engines.simulator.faults import Fault, Unsupported
from kcontract.dynamic.engines.simulator.matrix import Shape, Tile
from kcontract.dynamic.engines.simulator.strand import Strand
from kcontract.dynamic.engines.simulator.values import Array

#: Bytes of an element of each kind in shared memory.
ELEMENT_BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}
_SWIZZLE = (0, 128, 64, 32)


@dataclass(frozen=True)
class Form:
    """``n`` and ``k`` of m64nNkK, element kinds, and for each operand in shared memory whether it is MN-major."""

    n: int
    k: int
    d: str
    a: str
    b: str
    a_transposed: bool
    b_transposed: bool
    negate_a: bool
    negate_b: bool


def groups_of(strand: Strand) -> int:
    """Warpgroups of the strand, which must be whole ones."""
    w = matrix.warps_of(strand)
    if w % 4 or (strand.tid[0, ::128] % 128).any():
        raise Fault("divergent-warpgroup", "wgmma runs while part of the warpgroup is elsewhere")
    return w // 4


def descriptors(strand: Strand, x: Array) -> tuple[Array, Array, Tile]:
    """CTA rows and start addresses, (b, warpgroups or 1), and the tile's layout."""
    words = np.broadcast_to(x[:, ::128], (strand.b, x[:, ::128].shape[1])).astype("u8")
    first = int(words.flat[0])
    layout = words & np.uint64(0xFFFFFFFFFFFFC000)
    if (layout != layout.flat[0]).any():
        raise Unsupported("one wgmma with several operand layouts at once is not simulated")
    if first >> 49 & 7:
        raise Unsupported("a matrix descriptor with a base offset is not simulated")
    start = ((words & np.uint64(0x3FFF)) << np.uint64(4)).astype("i8")
    tile = Tile((first >> 16 & 0x3FFF) << 4, (first >> 32 & 0x3FFF) << 4, _SWIZZLE[first >> 62])
    return np.broadcast_to(strand.cta, start.shape), start, tile


def operand(strand: Strand, x: Array, kind: str, outer: int, k: int, transposed: bool) -> Array:
    """An operand in shared memory as (b, warpgroups or 1, outer, k) of float32 or int32."""
    row, start, tile = descriptors(strand, x)
    size = ELEMENT_BYTES[kind]
    major = "mn" if transposed else "k"
    if transposed and size != 2:
        raise Fault("bad-descriptor", f"an MN-major operand of kind .{kind}: only 16-bit types may be transposed")
    shared = strand.machine.shared
    data = matrix.read_tile(shared, row.reshape(-1), start.reshape(-1), tile, outer, k, size, major)
    checker = strand.machine.checker
    if checker is not None:
        pieces = matrix.tile_addresses(start.reshape(-1), tile, outer, k, size, major)
        checker.read_by_wgmma(
            strand, np.broadcast_to(row.reshape(-1)[:, None, None], pieces.shape), pieces, tile.swizzle
        )
    out = decode(data, kind)
    if transposed:
        out = np.swapaxes(out, -1, -2)
    return out.reshape(*start.shape, outer, k)


def decode(data: Array, kind: str) -> Array:
    """Bytes (last axis) to values."""
    flat = np.ascontiguousarray(data)
    if kind in ("s8", "u8"):
        return flat.view("i1" if kind == "s8" else "u1").astype("i4")
    return values.decode(flat.view(f"u{ELEMENT_BYTES[kind]}"), kind)


def fragment(strand: Strand, registers: list[Array], form: Form) -> Array:
    """A from registers as (b, warpgroups, 64, k)."""
    shape = Shape(16, 8, form.k, form.a, form.b, "f32")
    x = matrix.left(strand, registers, shape, 1)
    return x.reshape(strand.b, strand.warps // 4, 64, form.k)


def accumulator(strand: Strand, registers: list[Array], form: Form) -> Array:
    """D as (b, warpgroups, 64, n)."""
    x = matrix.stack(strand, registers)
    g = strand.warps // 4
    if form.d == "f16":
        x = values.decode(x.view("u2").reshape(*x.shape, 2), "f16")
        x = x.reshape(-1, 2, strand.b, g, 4, 8, 4, 2).transpose(2, 3, 4, 1, 5, 0, 6, 7)
    else:
        x = x.view("f4" if form.d == "f32" else "i4")
        x = x.reshape(-1, 2, 2, strand.b, g, 4, 8, 4).transpose(3, 4, 5, 1, 6, 0, 7, 2)
    return np.ascontiguousarray(x).reshape(strand.b, g, 64, form.n)


def results(strand: Strand, d: Array, form: Form) -> list[Array]:
    """(b, warpgroups, 64, n) to D's registers, (b, t) of uint32 each."""
    g = strand.warps // 4
    x = d.reshape(strand.b, g, 4, 2, 8, form.n // 8, 4, 2)
    if form.d == "f16":
        bits = values.encode(np.ascontiguousarray(x.transpose(5, 3, 0, 1, 2, 4, 6, 7)), "f16").view("u4")
        return list(bits.reshape(-1, strand.b, strand.t))
    out = np.ascontiguousarray(x.transpose(5, 3, 7, 0, 1, 2, 4, 6))
    return list(out.view("u4").reshape(-1, strand.b, strand.t))


def multiply(
    strand: Strand, form: Form, d: list[Array], steps: list[tuple[list[Array] | Array, Array, Array]]
) -> list[Array]:
    """A run of wgmma into one accumulator. A step is (A: registers or descriptor, B: descriptor, scale-d: bool)."""
    groups_of(strand)
    mode = strand.machine.grid.options.accumulate
    total: Array | None = None
    lefts: list[Array] = []
    rights: list[Array] = []

    def flush(keep: bool) -> None:
        nonlocal total
        a = np.concatenate(lefts, axis=-1) if len(lefts) > 1 else lefts[0]
        b = np.concatenate(rights, axis=-1) if len(rights) > 1 else rights[0]
        old = (accumulator(strand, d, form) if total is None else total) if keep else None
        how = matrix.adder(form.a, form.b, half=form.d == "f16", coarse=form.a in ("e4m3", "e5m2"))
        total = matrix.multiply(a, np.swapaxes(b, -1, -2), old, mode, how)
        if form.d == "f16" and mode != "fp32":
            total = values.decode(values.encode(total, "f16"), "f16")
        lefts.clear()
        rights.clear()

    keep = True
    for a, b, scale in steps:
        adds = bool(scale.flat[0])
        if (scale != adds).any():
            raise Unsupported("one wgmma that accumulates in some warpgroups only is not simulated")
        if lefts and (not adds or mode != "fp32"):
            flush(keep)
            keep = True
        if not adds:
            keep, total = False, None
            lefts.clear()
            rights.clear()
        x = (
            fragment(strand, a, form)
            if isinstance(a, list)
            else operand(strand, a, form.a, 64, form.k, form.a_transposed)
        )
        y = operand(strand, b, form.b, form.n, form.k, form.b_transposed)
        lefts.append(-x if form.negate_a else x)
        rights.append(-y if form.negate_b else y)
    flush(keep)
    assert total is not None
    full = np.broadcast_to(total, (strand.b, strand.warps // 4, 64, form.n))
    return results(strand, full, form)
