"""Asynchronous copies: cp.async, bulk copies and the tensor copy engine (TMA).

Copies of one form are done for all issuing threads together. Rules: PTX ISA 9, "Data Movement: Asynchronous copy",
"Tensors". Not simulated: im2col modes, interleaved layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kcontract.dynamic.engines.simulator import access, memory, tensor_map, values
from kcontract.dynamic.engines.simulator.faults import Fault, Unsupported
from kcontract.dynamic.engines.simulator.matrix import swizzled
from kcontract.dynamic.engines.simulator.strand import Strand
from kcontract.dynamic.engines.simulator.tensor_map import TensorMap
from kcontract.dynamic.engines.simulator.values import Array

if TYPE_CHECKING:
    from kcontract.dynamic.engines.simulator.machine import Machine


def flat(strand: Strand, x: Array, chosen: Array) -> Array:
    """Values of the threads chosen by a mask of the strand's shape, flat."""
    if x.shape == chosen.shape:
        return x[chosen]
    if x.size == 1:
        return np.full(np.count_nonzero(chosen), x[0, 0], x.dtype)
    return np.broadcast_to(x, (strand.b, strand.t))[chosen]


def chosen_threads(strand: Strand, mask: Array | None) -> Array:
    if mask is None:
        return np.ones((strand.b, strand.t), bool)
    return mask if mask.shape == (strand.b, strand.t) else np.array(np.broadcast_to(mask, (strand.b, strand.t)))


def copy_async(
    strand: Strand, target: Array, source: Array, size: int, given: Array | None, mask: Array | None
) -> None:
    """`cp.async`: ``size`` bytes a thread, of which the first ``given`` come from global memory, the rest are zero."""
    chosen = chosen_threads(strand, mask)
    machine = strand.machine
    to = memory.own(flat(strand, target, chosen), machine.grid.cluster_size)
    frm = flat(strand, source, chosen)
    count = None if given is None else flat(strand, given, chosen).astype("i8")
    row = flat(strand, strand.cta, chosen)
    threads = strand.ids()[chosen] if machine.asynchronous.late else row
    if machine.checker is not None and len(to):
        machine.checker.begin_write(row, to, size, threads)

    def act(now: Array | slice) -> None:
        _copy_in(machine, row[now], to[now], frm[now], size, None if count is None else count[now])
        if machine.checker is not None:
            machine.checker.end_write(row[now], to[now], size, threads[now])

    machine.asynchronous.grouped(machine.asynchronous.copies, threads, act)


def _copy_in(machine: Machine, row: Array, to: Array, frm: Array, size: int, count: Array | None) -> None:
    if not len(to):
        return
    kind = {4: "u4", 8: "u8", 16: "c16"}[size]
    index = machine.shared.index(row, to, size, size)
    view = machine.shared.view(kind)
    machine.version += 1
    if count is None or (count >= size).all():
        machine.memory.check(frm, size, len(frm), write=False, width=size)
        view[index] = memory.load_global(frm, kind)
        return
    whole, none = count >= size, count <= 0
    data = np.zeros(len(to), view.dtype)
    if whole.any():
        machine.memory.check(frm[whole], size, int(whole.sum()), write=False, width=size)
        data[whole] = memory.load_global(frm[whole], kind)
    octets = data.view("u1").reshape(len(to), size)
    for k in np.flatnonzero(~whole & ~none):
        part = int(count[k])
        place = frm[k] + np.arange(part)
        machine.memory.check(place, 1, 1, write=False, width=1)
        octets[k, :part] = memory.load_global(place, "u1")
    view[index] = data


# ---- the tensor copy engine


@dataclass
class Request:
    """Tensor copies of one form: per issuer its row, shared address, map and coordinates (innermost first)."""

    row: Array
    shared: Array
    maps: list[TensorMap]
    coordinates: Array
    rows: Array | None = None

    def __len__(self) -> int:
        return len(self.row)

    def pick(self, which: Sequence[int]) -> Request:
        k = np.array(which)
        return Request(
            self.row[k], self.shared[k], [self.maps[j] for j in which], self.coordinates[k],
            None if self.rows is None else self.rows[k],
        )  # fmt: skip


def read_maps(strand: Strand, address: Array, chosen: Array) -> list[TensorMap]:
    """The tensor maps at generic addresses (global or parameter space), one an issuer."""
    found: list[TensorMap] = []
    cache: dict[int, TensorMap] = {}
    machine = strand.machine
    for a in flat(strand, address, chosen).tolist():
        if a not in cache:
            space, place = access.generic(np.full((1, 1), a, "i8"))
            if space == "param":
                start = int(place[0, 0])
                data = machine.grid.bytes[start : start + tensor_map.BYTES].tobytes()
            elif space == "global":
                machine.memory.check(place, tensor_map.BYTES, 1, write=False, width=64)
                data = memory.load_global(place + np.arange(tensor_map.BYTES), "u1").tobytes()
            else:
                raise Fault("bad-tensor-map", f"the tensor map at {a:#x} is in {space} memory")
            try:
                cache[a] = tensor_map.decode(data)
            except ValueError as error:
                raise Fault("bad-tensor-map", f"the 128 bytes at {a:#x} are no tensor map ({error})") from None
        found.append(cache[a])
    return found


def _form(m: TensorMap) -> tuple[object, ...]:
    return (len(m.size), m.element, m.box, m.step, m.interleave, m.swizzle, m.nan)


def box_bytes(m: TensorMap, rows: int = 0) -> int:
    """Bytes one copy moves in shared memory."""
    elements = m.box[0] * rows if rows else int(np.prod(m.box))
    if m.element == 14:
        return elements
    return elements * m.bits // 8


def move(request: Request, act: Callable[[Array, Array, Array, TensorMap, int], None]) -> None:
    """Call ``act(rows, shared addresses, global addresses with -1 outside, map, unit)`` for each form of map."""
    forms: dict[tuple[object, ...], list[int]] = {}
    for k, m in enumerate(request.maps):
        forms.setdefault(_form(m), []).append(k)
    for which in forms.values():
        part = request.pick(which)
        m = part.maps[0]
        if m.interleave:
            raise Unsupported("interleaved tensor maps are not simulated")
        for k in range(len(m.box)):
            if not 0 < m.box[k] <= 256:
                raise Fault("bad-tensor-map", f"box dimension {k} is {m.box[k]}; 1 to 256 are allowed")
        to, frm, unit = _addresses(part, m)
        act(part.row, to, frm, m, unit)


def _addresses(part: Request, m: TensorMap) -> tuple[Array, Array, int]:
    """Shared and global addresses of all units, (issuers, units); global is -1 where it lies outside the tensor."""
    padded = m.element == 14
    if m.bits == 6:
        raise Unsupported("6-bit tensor maps are not simulated")
    inner = m.box[0] * m.bits // 8
    start = part.coordinates[:, 0] * m.bits // 8
    edge = np.array([q.size[0] * m.bits // 8 for q in part.maps])
    unit = 8 if padded else 16
    while (inner % unit) or (start % unit).any() or (edge % unit).any() or m.step[0] != 1:
        unit //= 2
        if unit * 8 <= m.bits or unit == 1:
            unit = max(m.bits // 8, 1)
            break
    if padded and unit != 8:
        raise Unsupported("a padded 4-bit tensor copy off the 8-byte grid is not simulated")
    n = len(part)
    base = np.array([q.address for q in part.maps], "i8")
    x = start[:, None] + np.arange(0, inner, unit)[None, :] * m.step[0]
    inside = (x >= 0) & (x < edge[:, None])
    address = base[:, None] + x
    for d in range(1, len(m.box)):
        if part.rows is not None:
            c = part.rows.astype("i8")
        else:
            c = part.coordinates[:, d][:, None] + np.arange(m.box[d])[None, :] * m.step[d]
        limit = np.array([q.size[d] for q in part.maps])[:, None]
        stride = np.array([q.stride[d - 1] for q in part.maps], "i8")[:, None]
        ok = (c >= 0) & (c < limit)
        address = (address[:, None, :] + (c * stride)[:, :, None]).reshape(n, -1)
        inside = (inside[:, None, :] & ok[:, :, None]).reshape(n, -1)
    units = address.shape[1]
    step = 16 if padded else unit
    to = part.shared[:, None] + np.arange(units, dtype="i8")[None, :] * step
    return swizzled(to, tensor_map.SWIZZLE_BYTES[m.swizzle]), np.where(inside, address, -1), unit


_UNIT = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}


def copy_box_in(machine: Machine, row: Array, to: Array, frm: Array, m: TensorMap, unit: int) -> None:
    """Global to shared, with the map's fill outside."""
    kind = _UNIT[unit]
    index = machine.shared.index(row[:, None], to, unit, unit)
    inside = frm >= 0
    if inside.all():
        machine.memory.check(frm, unit, frm.size, write=False, width=unit)
        data = memory.load_global(frm, kind)
    else:
        data = np.zeros(frm.shape, machine.shared.view(kind).dtype)
        if m.nan:
            pattern = {6: 0x7FFF, 10: 0x7FFF}.get(m.element, 0x7FFFFFFF)
            count = unit * 8 // m.bits
            data[...] = np.full(count, pattern, f"u{m.bits // 8}").view(data.dtype)[0]
        if inside.any():
            machine.memory.check(frm[inside], unit, int(inside.sum()), write=False, width=unit)
            data[inside] = memory.load_global(frm[inside], kind)
    if m.element in (11, 12):
        words = np.ascontiguousarray(data).view("f4")
        data = values.encode(words, "tf32", "rna").view(data.dtype).reshape(data.shape)
    machine.shared.view(kind)[index] = data
    machine.version += 1


def copy_box_out(
    machine: Machine, row: Array, to: Array, frm: Array, m: TensorMap, unit: int, reduce: str = ""
) -> None:
    """Shared to global (here ``frm`` is the global side); what lies outside is left alone."""
    if reduce:
        unit_bits = m.bits // 8
        to = (to[..., None] + np.arange(0, unit, unit_bits)).reshape(len(row), -1)
        frm = np.where(frm[..., None] >= 0, frm[..., None] + np.arange(0, unit, unit_bits), -1).reshape(len(row), -1)
        unit = unit_bits
    kind = _UNIT[unit]
    index = machine.shared.index(row[:, None], to, unit, unit)
    inside = frm >= 0
    data = machine.shared.view(kind)[index][inside]
    place = frm[inside]
    if not len(place):
        return
    machine.memory.check(place, unit, len(place), write=True, width=unit)
    machine.version += 1
    if not reduce:
        memory.store_global(place, data)
        return
    element = {0: "u8", 1: "u16", 2: "u32", 3: "s32", 4: "u64", 5: "s64", 6: "f16", 7: "f32", 9: "f64", 10: "bf16"}.get(
        m.element
    )
    if element is None:
        raise Unsupported("a tensor reduction of this element type is not simulated")
    view = memory.everything(data.dtype.str)
    order = machine.order(len(place))
    access._apply(view, (place - memory.BASE) // unit, reduce, element, [data], order, False)


def copy_bytes(machine: Machine, row: Array, shared: Array, place: Array, size: Array, *, inward: bool) -> None:
    """`cp.async.bulk` between shared and global: ``size`` bytes an issuer."""
    for r, s, g, n in zip(row, shared, place, size, strict=True):
        if n % 16 or s % 16 or g % 16:
            raise Fault(
                "misaligned-access", f"a bulk copy of {n} bytes between {s:#x} and {g:#x} is not 16-byte aligned"
            )
        step = np.arange(0, n, 16)
        index = machine.shared.index(np.full(len(step), r), s + step, 16, 16)
        machine.memory.check(g + step, 16, len(step), write=not inward, width=16)
        if inward:
            machine.shared.view("c16")[index] = memory.load_global(g + step, "c16")
        else:
            memory.store_global(g + step, machine.shared.view("c16")[index])
    machine.version += 1


def reduce_bytes(
    machine: Machine, row: Array, shared: Array, place: Array, size: Array, reduce: tuple[str, str]
) -> None:
    """`cp.reduce.async.bulk` from shared to global memory: element by element atomics of one operation and type."""
    op, kind = reduce
    width = int(kind.lstrip("usbf")) // 8
    view = machine.shared.view(_UNIT[width])
    for r, s, g, n in zip(row, shared, place, size, strict=True):
        if n % 16 or s % 16 or g % 16:
            raise Fault(
                "misaligned-access", f"a bulk reduction of {n} bytes from {s:#x} to {g:#x} is not 16-byte aligned"
            )
        step = np.arange(0, n, width)
        data = view[machine.shared.index(np.full(len(step), r), s + step, width, width)]
        machine.memory.check(g + step, width, len(step), write=True, width=width)
        index = (g + step - memory.BASE) // width
        access._apply(memory.everything(_UNIT[width]), index, op, kind, [data], machine.order(len(step)), False)
    machine.version += 1
