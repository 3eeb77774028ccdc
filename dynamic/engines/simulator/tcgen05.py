"""`tcgen05.mma`, `cp`, `shift` and `commit`: what one issued instruction does to Tensor Memory.

Sources: PTX ISA 9, "Instruction descriptor", "Shared memory descriptor", "Block Scaling", "Data Path Layout
Organization". Issuing threads of all CTAs are done together; they must agree in shapes and layouts. Not simulated:
sparse forms, transposed 8-bit operands, zero-column masks.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from kcontract.dynamic.engines.simulator import matrix, tensors, values
from kcontract.dynamic.engines.simulator.copies import chosen_threads, flat
from kcontract.dynamic.engines.simulator.faults import Fault, Unsupported
from kcontract.dynamic.engines.simulator.matrix import Tile
from kcontract.dynamic.engines.simulator.strand import Strand
from kcontract.dynamic.engines.simulator.tensor_memory import TensorMemory
from kcontract.dynamic.engines.simulator.values import Array

#: Swizzle in bytes by bits 61 - 63 of the shared memory descriptor; 1 is the 128-byte mode with 32-byte atoms.
_SWIZZLE = {0: 0, 1: 128, 2: 128, 4: 64, 6: 32}
_WIDE = {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}
#: Element kinds by the descriptor's A and B fields, for each `.kind`.
_KINDS = {
    "f16": {0: "f16", 1: "bf16"}, "tf32": {2: "tf32"}, "i8": {0: "u8", 1: "s8"}, "f8f6f4": _WIDE, "mxf8f6f4": _WIDE,
    "mxf4": {1: "e2m1"}, "mxf4nvf4": {1: "e2m1"},
}  # fmt: skip
_DEPTH = {"f16": 16, "tf32": 8, "i8": 32, "f8f6f4": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}
#: Bits an element takes in shared memory: narrow ones of f8f6f4 kinds stand in byte containers.
_CONTAINER = {"f16": 16, "tf32": 32, "i8": 8, "f8f6f4": 8, "mxf8f6f4": 8, "mxf4": 4, "mxf4nvf4": 4}


@dataclass(frozen=True)
class Instruction:
    """The 32-bit instruction descriptor, decoded for one `.kind`."""

    kind: str
    m: int
    n: int
    d: str
    a: str
    b: str
    negate_a: bool
    negate_b: bool
    a_transposed: bool
    b_transposed: bool
    saturate: bool
    a_scale: int
    b_scale: int
    scale_format: str

    @property
    def k(self) -> int:
        return _DEPTH[self.kind]


@functools.lru_cache(maxsize=256)
def decode(word: int, kind: str, scaled: bool) -> Instruction:
    """The fields of an instruction descriptor. Raises ``Fault`` for values that no hardware accepts."""
    kinds = _KINDS[kind]
    a, b = kinds.get(word >> 7 & 7), kinds.get(word >> 10 & 7)
    if a is None or b is None:
        raise Fault(
            "bad-descriptor",
            f"instruction descriptor {word:#010x} names element types {word >> 7 & 7} and {word >> 10 & 7}, "
            f"unknown to kind .{kind}",
        )
    if word >> 2 & 1:
        raise Unsupported("sparse tcgen05.mma is not simulated")
    d = {0: "f16", 1: "f32", 2: "s32"}.get(word >> 4 & 3, "") if not scaled else "f32"
    if (d == "s32") != (kind == "i8") or not d:
        raise Fault(
            "bad-descriptor",
            f"instruction descriptor {word:#010x} names result type {word >> 4 & 3}, unknown to kind .{kind}",
        )
    n = (word >> 17 & 63) << 3
    m = (word >> 24 & 31) << 4
    return Instruction(
        kind, m, n, d, a, b, bool(word >> 13 & 1), bool(word >> 14 & 1), bool(word >> 15 & 1), bool(word >> 16 & 1),
        bool(word >> 3 & 1), word >> 29 & 3 if scaled else 0, word >> 4 & 3 if scaled else 0,
        ("ue8m0" if word >> 23 & 1 else "ue4m3") if scaled else "",
    )  # fmt: skip


def tile_of(words: Array, rows: Array) -> tuple[Array, Tile]:
    """Start addresses (one an issuer) and layout of shared memory descriptors (uint64)."""
    first = int(words[0])
    layout = words & np.uint64(0xFFFFFFFFFFFFC000)
    if (layout != layout[0]).any():
        raise Unsupported("one tcgen05 instruction with several operand layouts at once is not simulated")
    if first >> 46 & 7 != 1:
        raise Fault(
            "bad-descriptor",
            f"shared memory descriptor {first:#018x} lacks the constant 0b001 in bits 46 to 48 that tcgen05 asks for",
        )
    mode = first >> 61
    if mode not in _SWIZZLE:
        raise Fault("bad-descriptor", f"shared memory descriptor {first:#018x} has swizzle mode {mode}")
    if first >> 49 & 7 or first >> 52 & 1:
        raise Unsupported("shared memory descriptors with a base offset or absolute leading offset are not simulated")
    start = ((words & np.uint64(0x3FFF)) << np.uint64(4)).astype("i8")
    return start, Tile((first >> 16 & 0x3FFF) << 4, (first >> 32 & 0x3FFF) << 4, _SWIZZLE[mode], mode == 1)


def operand(strand: Strand, rows: Array, words: Array, kind: str, element: str, outer: int, transposed: bool) -> Array:
    """An operand in shared memory as (issuers, outer, k) of float32 or int32."""
    start, tile = tile_of(words, rows)
    bits, depth = _CONTAINER[kind], _DEPTH[kind]
    shared = strand.machine.shared
    if transposed:
        if bits < 8:
            raise Fault("bad-descriptor", f"a transposed operand of kind .{kind}")
        data = matrix.read_tile(shared, rows, start, tile, outer, depth, bits // 8, "mn")
    else:
        data = matrix.read_tile(shared, rows, start, tile, outer, depth * bits // 8, 1, "k")
    out = elements(data, element, bits)
    return np.swapaxes(out, -1, -2) if transposed else out


def pieces_of(rows: Array, words: Array, kind: str, outer: int, transposed: bool) -> Array:
    """Addresses of the 16-byte pieces that ``operand`` reads."""
    start, tile = tile_of(words, rows)
    bits, depth = _CONTAINER[kind], _DEPTH[kind]
    if transposed:
        return matrix.tile_addresses(start, tile, outer, depth, bits // 8, "mn")
    return matrix.tile_addresses(start, tile, outer, depth * bits // 8, 1, "k")


def elements(data: Array, element: str, bits: int) -> Array:
    """Bytes (last axis) to values."""
    flat_ = np.ascontiguousarray(data)
    if element in ("s8", "u8"):
        return flat_.view("i1" if element == "s8" else "u1").astype("i4")
    if bits >= 16:
        return values.decode(flat_.view(f"u{bits // 8}"), element)
    if element in ("e4m3", "e5m2"):
        return values.decode(flat_, element)
    if bits == 4:
        return values.decode(_nibbles(flat_), element)
    chunks = flat_.reshape(*flat_.shape[:-1], -1, 16)
    if element == "e2m1":
        codes = _nibbles(chunks[..., :8])
    else:
        three = chunks[..., :12].reshape(*chunks.shape[:-1], 4, 3).astype("u4")
        word = three[..., 0] | three[..., 1] << np.uint32(8) | three[..., 2] << np.uint32(16)
        codes = np.stack([(word >> np.uint32(6 * k)) & np.uint32(63) for k in range(4)], axis=-1).astype("u1")
    return values.decode(codes.reshape(*flat_.shape[:-1], -1), element)


def _nibbles(data: Array) -> Array:
    return np.stack([data & np.uint8(15), data >> np.uint8(4)], axis=-1).reshape(*data.shape[:-1], -1)


def row_lanes(m: int, pair: bool, ws: bool) -> Array:
    """The lane of each row of D (and of A in Tensor Memory) within one CTA."""
    rows = np.arange(m)
    if m == 64 and not ws and not pair:
        return 32 * (rows // 16) + rows % 16
    return rows


def left_in_tensor_memory(memory: TensorMemory, rows: Array, address: Array, spec: Instruction, lanes: Array) -> Array:
    """A from Tensor Memory as (issuers, m, k)."""
    per = 32 // _CONTAINER[spec.kind]
    count = spec.k // per
    column = (address & 0xFFFF)[:, None] + np.arange(count)
    lane = (address >> 16)[:, None, None] + lanes[None, :, None]
    memory.check(rows[:, None], column, lane[0])
    words = memory.cells[rows[:, None, None], column[:, None, :], lane]
    return elements(np.ascontiguousarray(words).view("u1"), spec.a, _CONTAINER[spec.kind])


def scales(memory: TensorMemory, rows: Array, address: Array, count: int, first: int, vectors: int, form: str) -> Array:
    """Scale factors (issuers, count, vectors): row r at lane r mod 32, column r div 32, byte ``first`` and on."""
    r = np.arange(count)
    column = (address & 0xFFFF)[:, None] + r // 32
    lane = (address >> 16)[:, None] + r % 32
    memory.check(rows[:, None], column, lane)
    words = memory.cells[rows[:, None], column, lane]
    octets = np.ascontiguousarray(words).view("u1").reshape(*words.shape, 4)
    return values.decode(octets[..., first : first + vectors], form)


def mma(
    strand: Strand, form: tuple[str, int, int, bool], d: Array, a: Array, a_in_memory: bool, b: Array, idesc: Array,
    enable: Array, scale_a: Array | None, scale_b: Array | None, shrink: int, disabled: list[Array], mask: Array | None,
) -> None:  # fmt: skip
    """Queue one `tcgen05.mma`. ``form`` is (kind, CTAs of the group, scale vectors along K, `.ws`)."""
    chosen = chosen_threads(strand, mask)
    if not chosen.any():
        return
    kind, group, vectors, ws = form
    if int(chosen.sum(axis=1).max()) > 1:
        raise Fault(
            "issued-by-many",
            f"tcgen05.mma is issued by {int(chosen.sum(axis=1).max())} threads of a CTA; one thread issues it",
        )
    machine = strand.machine
    memory = machine.tensor
    assert memory is not None
    words = flat(strand, idesc, chosen)
    if (words != words[0]).any():
        raise Unsupported("one tcgen05.mma with several instruction descriptors at once is not simulated")
    spec = decode(int(words[0]), kind, scale_a is not None)
    _check_shape(spec, group, ws)
    rows = flat(strand, strand.cta, chosen)
    d_at = flat(strand, d, chosen).astype("i8")
    a_at = flat(strand, a, chosen)
    b_at = flat(strand, b, chosen)
    adds = flat(strand, enable, chosen)
    s_a = None if scale_a is None else flat(strand, scale_a, chosen).astype("i8")
    s_b = None if scale_b is None else flat(strand, scale_b, chosen).astype("i8")
    off = [flat(strand, x, chosen) for x in disabled]
    if any(x.any() for x in off):
        raise Unsupported("tcgen05.mma with disabled output lanes is not simulated")
    if machine.checker is not None:
        for at, outer, turned in (
            (None if a_in_memory else a_at, spec.m, spec.a_transposed),
            (b_at, spec.n, spec.b_transposed),
        ):
            if at is not None:
                pieces = pieces_of(rows, at, kind, outer // group, turned)
                machine.checker.read_by_tensor_core(strand, chosen, rows, pieces, tile_of(at, rows)[1].swizzle)
        bands = _halved(spec, group == 2, ws, spec.m // group)
        lanes = np.concatenate([row_lanes(spec.m // group, group == 2, ws) + k * (128 // bands) for k in range(bands)])
        inside = a_at.astype("i8") if a_in_memory else None
        machine.checker.begin_mma(strand, chosen, rows, d_at, spec, spec.n // bands, lanes, adds, inside)

    def act() -> None:
        for adding in (True, False):
            part = np.flatnonzero(adds == adding)
            if len(part):
                _multiply(
                    strand, memory, spec, group, vectors, ws, rows[part], d_at[part], a_at[part],
                    a_in_memory, b_at[part],
                    adding, None if s_a is None else s_a[part], None if s_b is None else s_b[part], shrink,
                )  # fmt: skip

    machine.asynchronous.submit(act)


def _check_shape(spec: Instruction, group: int, ws: bool) -> None:
    m_ok = (32, 64, 128) if ws else ((64, 128) if group == 1 else (128, 256))
    n_step = 8 if spec.m == 64 and group == 1 else 16
    if spec.m not in m_ok or spec.n % n_step or not 8 <= spec.n <= 256:
        raise Fault(
            "bad-descriptor",
            f"instruction descriptor asks for M = {spec.m}, N = {spec.n}, which kind .{spec.kind} with "
            f"cta_group::{group} does not have",
        )


def _multiply(
    strand: Strand, memory: TensorMemory, spec: Instruction, group: int, vectors: int, ws: bool, rows: Array,
    d_at: Array,
    a_at: Array, a_in_memory: bool, b_at: Array, adding: bool, s_a: Array | None, s_b: Array | None, shrink: int,
) -> None:  # fmt: skip
    """D = A·B or D += A·B for issuers that agree whether to add; for CTA pairs each CTA holds half of M and N."""
    pair = group == 2
    m, n = spec.m // group, spec.n // group
    parts = [rows] if not pair else [rows - rows % 2, rows - rows % 2 + 1]
    lanes = row_lanes(m, pair, ws)
    b = np.concatenate([operand(strand, p, b_at, spec.kind, spec.b, n, spec.b_transposed) for p in parts], axis=1)
    if s_b is not None:
        b = b * np.repeat(
            _pair_scales(memory, parts, s_b, spec.n, spec.b_scale, vectors, spec), spec.k // vectors, axis=-1
        )
    if spec.negate_b:
        b = -b
    for p in parts:
        if a_in_memory:
            a = left_in_tensor_memory(memory, p, a_at.astype("i8"), spec, lanes)
        else:
            a = operand(strand, p, a_at, spec.kind, spec.a, m, spec.a_transposed)
        if s_a is not None:
            found = scales(memory, p, s_a, m, spec.a_scale, vectors, spec.scale_format)
            a = a * np.repeat(found, spec.k // vectors, axis=-1)
        if spec.negate_a:
            a = -a
        _accumulate(strand, memory, spec, p, d_at, a, b, lanes, adding, shrink, _halved(spec, pair, ws, m))


def _pair_scales(
    memory: TensorMemory, parts: list[Array], s_b: Array, n: int, first: int, vectors: int, spec: Instruction
) -> Array:
    """B's scale factors: each CTA of a pair holds all of them."""
    return scales(memory, parts[0], s_b, n, first, vectors, spec.scale_format)


def _halved(spec: Instruction, pair: bool, ws: bool, m: int) -> int:
    """How many bands of lanes D's columns are folded into: 2 for layouts B and E, 4 for G, else 1."""
    if ws:
        return 128 // m
    return 2 if pair and m == 64 else 1


def _accumulate(
    strand: Strand, memory: TensorMemory, spec: Instruction, rows: Array, d_at: Array, a: Array, b: Array, lanes: Array,
    adding: bool, shrink: int, bands: int,
) -> None:  # fmt: skip
    width = spec.n // bands
    column = (d_at & 0xFFFF)[:, None] + np.arange(width)
    base = int(d_at[0] >> 16)
    all_lanes = np.concatenate([lanes + base + k * (128 // bands) for k in range(bands)])
    memory.check(rows[:, None], column, all_lanes[None])
    mode = strand.machine.grid.options.accumulate
    same = len(all_lanes) == 128 and (all_lanes == np.arange(128)).all() and bool((d_at == d_at[0]).all())
    start = int(d_at[0] & 0xFFFF)
    quarters = len(lanes) == 64 and bands == 1 and base == 0 and int(lanes[16]) == 32 and bool((d_at == d_at[0]).all())
    if same:
        cells = memory.cells[rows, start : start + width]
    elif quarters:
        view = memory.cells.reshape(len(memory.cells), -1, 4, 32)
        cells = view[rows, start : start + width, :, :16]
    else:
        cells = memory.cells[rows[:, None, None], column[:, :, None], all_lanes[None, None]]
    # (issuers, width, bands·m) to (issuers, n, m): the result is kept transposed, columns first.
    m = len(lanes)
    old = cells.reshape(len(rows), width, bands, m).transpose(0, 2, 1, 3).reshape(len(rows), spec.n, m)
    total: Array | None = None
    if adding:
        total = (
            values.decode(old & np.uint32(0xFFFF), "f16")
            if spec.d == "f16"
            else old.view("i4" if spec.d == "s32" else "f4")
        )
        if shrink:
            total = total * np.float32(2.0**-shrink)
    how = matrix.adder(spec.b, spec.a, half=spec.d == "f16")
    out = matrix.multiply(b, np.swapaxes(a, -1, -2), total, mode, how)
    if spec.d == "f16":
        bits = values.encode(out, "f16").astype("u4")
    else:
        if spec.saturate:
            raise Unsupported("saturating integer sums are not simulated")
        bits = np.ascontiguousarray(out).view("u4")
    new = bits.reshape(len(rows), bands, width, m).transpose(0, 2, 1, 3).reshape(len(rows), width, bands * m)
    if same:
        memory.cells[rows, start : start + width] = new
    elif quarters:
        view[rows, start : start + width, :, :16] = new.reshape(len(rows), width, 4, 16)
    else:
        memory.cells[rows[:, None, None], column[:, :, None], all_lanes[None, None]] = new
    strand.machine.version += 1


def copy(strand: Strand, shape: str, warps: str, target: Array, source: Array, group: int, mask: Array | None) -> None:
    """`tcgen05.cp`: rows of 16-byte pieces from shared memory to lanes."""
    chosen = chosen_threads(strand, mask)
    if not chosen.any():
        return
    machine = strand.machine
    memory = machine.tensor
    assert memory is not None
    count, bits = (int(x) for x in shape.rstrip("b").split("x"))
    rows = flat(strand, strand.cta, chosen)
    to, words = flat(strand, target, chosen).astype("i8"), flat(strand, source, chosen)
    start, tile = tile_of(words, rows)
    if machine.checker is not None:
        pieces = matrix.tile_addresses(start, tile, count, bits // 8, 1, "k")
        machine.checker.read_by_tensor_core(strand, chosen, rows, pieces, tile.swizzle)
        machine.checker.begin_copy(strand, chosen, rows, to, bits // 32)

    def act() -> None:
        members = [rows] if group == 1 else [rows - rows % 2, rows - rows % 2 + 1]
        for part in members:
            data = matrix.read_tile(machine.shared, part, start, tile, count, bits // 8, 1, "k")
            cells = np.ascontiguousarray(data).view("u4")  # (issuers, rows, columns)
            lanes = _copy_lanes(count, warps)
            column = (to & 0xFFFF)[:, None] + np.arange(bits // 32)
            for lane in lanes:
                memory.check(part[:, None], column, lane)
                memory.cells[part[:, None, None], column[:, :, None], lane[None, None]] = np.swapaxes(cells, 1, 2)
        machine.version += 1

    machine.asynchronous.submit(act)


def _copy_lanes(count: int, warps: str) -> list[Array]:
    """Lane of each row, once a replica."""
    r = np.arange(count)
    if warps == "warpx4":
        return [r + 32 * k for k in range(4)]
    if warps == "warpx2::02_13":
        return [r % 32 + 32 * (r // 32), r % 32 + 32 * (r // 32) + 64]
    if warps == "warpx2::01_23":
        return [r % 32 + 64 * (r // 32), r % 32 + 64 * (r // 32) + 32]
    if count == 4:
        return [32 * r]
    return [r]


def shift(strand: Strand, address: Array, group: int, mask: Array | None) -> None:
    """`tcgen05.shift.down`: 32-byte rows move down by one lane, but for the last of each 32."""
    chosen = chosen_threads(strand, mask)
    machine = strand.machine
    memory = machine.tensor
    if not chosen.any() or memory is None:
        return
    rows, at = flat(strand, strand.cta, chosen), flat(strand, address, chosen).astype("i8")

    def act() -> None:
        column = (at & 0xFFFF)[:, None] + np.arange(8)
        lane = np.arange(128)
        keep = lane[lane % 32 != 31]
        memory.check(rows[:, None], column, keep[None])
        cta, where, lanes = rows[:, None, None], column[:, :, None], keep[None, None]
        memory.cells[cta, where, lanes] = memory.cells[cta, where, lanes + 1]
        machine.version += 1

    machine.asynchronous.submit(act)


def commit(strand: Strand, address: Array, casts: Array | None, group: int, mask: Array | None) -> None:
    """`tcgen05.commit`: an arrival on an mbarrier once all earlier tcgen05 work of the thread is done."""
    chosen = chosen_threads(strand, mask)
    if not chosen.any():
        return
    machine = strand.machine
    row, where = tensors.place(strand, address, chosen)
    if casts is not None:
        base = machine.cluster_base(flat(strand, strand.cta, chosen))
        bits = flat(strand, casts, chosen).astype("i8")
        pairs = [(k, r) for k in range(len(bits)) for r in range(machine.grid.cluster_size) if bits[k] >> r & 1]
        issuer = np.array([k for k, _ in pairs])
        row, where = base[issuer] + np.array([r for _, r in pairs]), where[issuer]
    time = 0 if machine.checker is None else machine.checker.clocks.now

    def act() -> None:
        if machine.checker is not None:
            machine.checker.committed(row, where, time)
        one = np.ones(len(row), "i8")
        machine.asynchronous.barriers.update(row, where, one, one * 0, what="tcgen05.commit")

    machine.asynchronous.submit(act)
