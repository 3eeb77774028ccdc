"""Loads, stores and atomics of a strand in every address space.

Addresses are int64 arrays that broadcast to the strand's shape; a predicate (bool, or None for all) limits who takes
part. Only the values that differ are accessed: a load whose address is equal in all threads of a CTA is done once.
Where several threads of one store hit one address the last in thread order wins; atomics to one address run one after
the other in an order that ``machine.order`` permutes (its seed).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from kcontract.dynamic.engines.simulator import floats, memory, values
from kcontract.dynamic.engines.simulator.faults import Fault, Unsupported
from kcontract.dynamic.engines.simulator.strand import Strand
from kcontract.dynamic.engines.simulator.values import Array

_WINDOWS = {
    "shared": memory.SHARED_WINDOW,
    "local": memory.LOCAL_WINDOW,
    "param": memory.PARAM_WINDOW,
    "global": 0,
    "const": 0,
}
_WHOLE = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}


def to_generic(address: Array, space: str) -> Array:
    return address | np.int64(_WINDOWS[space]) if _WINDOWS[space] else address


def from_generic(address: Array, space: str) -> Array:
    return address & np.int64((1 << 56) - 1) if _WINDOWS[space] else address


def is_space(address: Array, space: str) -> Array:
    return np.asarray(address >> np.int64(56) == _WINDOWS[space] >> 56)


def generic(address: Array) -> tuple[str, Array]:
    """The space that generic addresses point to (they must agree) and the addresses within it."""
    tags = address >> np.int64(56)
    first = int(tags.flat[0]) if tags.size else 0
    if (tags != first).any():
        raise Unsupported("one generic access of several address spaces at once is not simulated")
    space = {0: "global", 1: "shared", 2: "local", 3: "param"}.get(first)
    if space is None:
        raise Fault("out-of-bounds", f"generic address {int(address.flat[0]):#x} is in no address space")
    return space, address & np.int64((1 << 56) - 1) if first else address


def lanes_of(strand: Strand, mask: Array | None) -> int:
    if mask is None:
        return strand.lanes
    return int(mask.sum()) * (strand.lanes // mask.size)


def active(address: Array, mask: Array | None) -> tuple[Array | None, Array | None]:
    """``mask`` without what it need not say: (None, None) if all take part, else (mask spread, addresses chosen)."""
    if mask is None or (mask.size and mask.all()):
        return None, None
    shape = np.broadcast_shapes(address.shape, mask.shape)
    mask = np.broadcast_to(mask, shape)
    return mask, np.broadcast_to(address, shape)[mask]


def _rows(strand: Strand, space: str, address: Array) -> tuple[memory.Rows, Array, Array]:
    """Memory, row numbers and addresses within the row."""
    machine = strand.machine
    if space == "local":
        return machine.local, strand.ids(), address
    top = address >> np.int64(memory.RANK_SHIFT)
    if machine.grid.cluster_size > 1 and address.size:
        row = machine.row_at(strand.cta, top)
        return machine.shared, row, address & np.int64((1 << memory.RANK_SHIFT) - 1)
    return machine.shared, strand.cta, address


def load(strand: Strand, space: str, address: Array, dtype: str, count: int, mask: Array | None) -> list[Array]:
    """``count`` consecutive values a thread; zeros where the mask is false."""
    if mask is not None and not mask.any():
        return [np.zeros((1, 1), dtype)] * count
    if space == "":
        space, address = generic(address if mask is None else np.where(mask, address, _some(address, mask)))
    if strand.machine.asks is not None:
        _asking(strand, space, address, mask)
    size = np.dtype(dtype).itemsize * count
    width = min(size, 16)
    if space == "param":
        return strand.machine.load_param(address, dtype, count)
    if space in ("global", "const"):
        where, chosen = active(address, mask)
        chosen = address if chosen is None else chosen
        strand.machine.memory.check(chosen, size, lanes_of(strand, mask), write=False, width=width)
        if strand.machine.checker is not None and space == "global":
            strand.machine.checker.global_access(strand, address, size, mask, "read")
        parts = [memory.load_global(chosen + np.int64(k), _WHOLE[width]) for k in range(0, size, width)]
    else:
        rows, row, address = _rows(strand, space, address)
        if space == "local" or row is not strand.cta or address.shape[0] == 1:
            address = np.broadcast_to(address, np.broadcast_shapes(address.shape, row.shape))
        where, chosen = active(address, mask)
        row = np.broadcast_to(row, address.shape) if where is None else np.broadcast_to(row, where.shape)[where]
        chosen = address if chosen is None else chosen
        index = rows.index(row, chosen, size, width)
        if strand.machine.checker is not None and space != "local":
            strand.machine.checker.shared_access(strand, strand.cta, address, size, mask, "read")
        view = rows.view(_WHOLE[width])
        parts = [view.take(index + k) for k in range(size // width)]
    if where is not None:
        parts = [_spread(p, where) for p in parts]
    return _separate(parts, dtype, count)


def _asking(strand: Strand, space: str, address: Array, mask: Array | None) -> None:
    """A thread that waits looks at memory (see ``waiting``)."""
    if space in ("global", "shared"):
        one = int((address if mask is None else _some(address, mask)).flat[0])
        named = strand.machine.memory.named if space == "global" else _shared_byte
        strand.machine.asking(f"wait for another value in {named(one)}")


def _some(address: Array, mask: Array) -> Array:
    shape = np.broadcast_shapes(address.shape, mask.shape)
    return cast(Array, np.broadcast_to(address, shape)[np.broadcast_to(mask, shape)][:1])


def _spread(part: Array, where: Array) -> Array:
    out = np.zeros(where.shape, part.dtype)
    out[where] = part
    return out


def _separate(parts: list[Array], dtype: str, count: int) -> list[Array]:
    """Wide elements to the narrow ones within them."""
    if count == 1:
        return [parts[0].view(dtype)]
    out: list[Array] = []
    each = count // len(parts)
    for part in parts:
        fields = np.ascontiguousarray(part).view(dtype).reshape(*part.shape, each)
        out += list(np.ascontiguousarray(np.moveaxis(fields, -1, 0)))
    return out


def _together(parts: list[Array], shape: tuple[int, ...]) -> Array:
    """Narrow elements to wide ones of ``len(parts)`` times the size."""
    if len(parts) == 1:
        return parts[0]
    out = np.empty((*shape, len(parts)), parts[0].dtype)
    for i, p in enumerate(parts):
        out[..., i] = p
    return out.view(_WHOLE[parts[0].dtype.itemsize * len(parts)])[..., 0]


def store(strand: Strand, space: str, address: Array, parts: list[Array], mask: Array | None) -> None:
    """Store consecutive values a thread."""
    if mask is not None and not mask.any():
        return
    if space == "":
        space, address = generic(address if mask is None else np.where(mask, address, _some(address, mask)))
    size = parts[0].dtype.itemsize * len(parts)
    width = min(size, 16)
    if space == "param":
        raise Unsupported("stores to kernel parameters are not simulated")
    machine = strand.machine
    row: Array | None = None
    rows = machine.shared
    if space != "global":
        rows, row, address = _rows(strand, space, address)
    shape = np.broadcast_shapes(address.shape, *(p.shape for p in parts), (1, 1) if row is None else row.shape)
    if mask is not None:
        shape = np.broadcast_shapes(shape, mask.shape)
    address = np.broadcast_to(address, shape)
    where, chosen = active(address, mask)
    chosen = address if chosen is None else chosen
    per = len(parts) * width // size
    data = []
    for k in range(0, len(parts), per):
        whole = np.broadcast_to(_together(parts[k : k + per], np.broadcast_shapes(*(p.shape for p in parts))), shape)
        data.append(whole if where is None else whole[where])
    if row is None:
        machine.memory.check(chosen, size, lanes_of(strand, mask), write=True, width=width)
        if machine.checker is not None:
            machine.checker.global_access(strand, address, size, mask, "write")
        if not machine.watch.careful or any(
            (memory.load_global(chosen + np.int64(k * width), whole.dtype.str) != whole).any()
            for k, whole in enumerate(data)
        ):
            machine.version += 1
        for k, whole in enumerate(data):
            at = chosen + np.int64(k * width)
            memory.store_global(at, whole)
            if machine.checker is not None:
                _overlap(
                    strand, machine.memory.named, at, at, whole, memory.load_global(at, whole.dtype.str), shape, where
                )
        return
    row = np.broadcast_to(row, shape)
    row = row if where is None else row[where]
    index = rows.index(row, chosen, size, width)
    if machine.checker is not None and space != "local":
        machine.checker.shared_access(strand, strand.cta, address, size, mask, "write")
    view = rows.view(_WHOLE[width])
    if not machine.watch.careful or any(
        (view[index + k] != whole.view(view.dtype)).any() for k, whole in enumerate(data)
    ):
        machine.version += 1
    for k, whole in enumerate(data):
        view[index + k] = whole.view(view.dtype)
        if machine.checker is not None and space != "local":
            _overlap(strand, _shared_byte, index + k, chosen + k * width, whole, view[index + k], shape, where)


def _shared_byte(address: int) -> str:
    return f"byte {address} of shared memory"


def _overlap(
    strand: Strand, named: Callable[[int], str], cell: Array, address: Array, given: Array, found: Array,
    shape: tuple[int, ...], where: Array | None,
) -> None:  # fmt: skip
    """Threads of one store that write different values to one cell race, unless the values differ by rounding.

    ``shape`` is that of the store, ``where`` the mask of those who take part; ``cell`` numbers what they write to.
    """
    bits = "u8" if given.dtype.itemsize >= 8 else f"u{given.dtype.itemsize}"
    lost = np.ascontiguousarray(given).view(bits) != np.ascontiguousarray(found).view(bits)
    if not lost.any():
        return
    kernel = strand.machine.kernel
    index = kernel.running()
    form, butterfly = ("", False) if index is None else floats.stored(kernel.function, index)
    lost = lost.reshape(-1)
    if form and np.dtype(bits).itemsize >= np.dtype(floats.WORDS[form]).itemsize:
        lost = lost & ~floats.close(given, found, form, butterfly).reshape(lost.size, -1).all(axis=1)
    if not lost.any():
        return
    cell, address = cell.reshape(-1), address.reshape(-1)
    loser = int(np.flatnonzero(lost)[0]) * cell.size // lost.size
    winner = int(np.flatnonzero(cell == cell[loser])[-1])
    ctas, threads = strand.machine.ctas[strand.cta[: shape[0]]], strand.tid[: shape[0], : shape[1]]
    spread = (np.broadcast_to(x, shape) for x in (ctas, threads))
    cta, tid = ((x if where is None else x[where]).reshape(-1)[[loser, winner]].tolist() for x in spread)
    place = named(int(address[loser]))
    if cta[0] == cta[1]:
        who, how = f"threads {tid[0]} and {tid[1]} of CTA {cta[0]}", "with one store"
    else:
        who, how = f"CTA {cta[0]} and CTA {cta[1]}", "without synchronisation between them"
    raise Fault("race", f"{who} write different values to {place} {how}")


def _cas(old: Array, new: Array, swap: Array) -> Array:
    return np.where(old == new, swap, old)


def _operation(op: str, kind: str) -> Callable[[Array, Array, Array], Array]:
    """What an atomic writes, from the old bits, the operand's bits and (cas) the value to put."""
    if op == "exch":
        return lambda old, b, c: b
    if op == "cas":
        return _cas
    if op in ("and", "or", "xor"):
        bitwise = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[op]
        return lambda old, b, c: bitwise(old, b)
    if op == "inc":
        return lambda old, b, c: np.where(old >= b, old.dtype.type(0), old + old.dtype.type(1))
    if op == "dec":
        return lambda old, b, c: np.where((old == 0) | (old > b), b, old - old.dtype.type(1))
    function = {"add": np.add, "min": np.minimum, "max": np.maximum}[op]
    if kind in ("f16", "bf16"):
        if op != "add":
            function = {"min": np.fmin, "max": np.fmax}[op]
        return lambda old, b, c: values.encode(function(values.decode(old, kind), values.decode(b, kind)), kind)
    if kind in ("f16x2", "bf16x2"):
        return lambda old, b, c: _halves(function, old, b, kind[:-2])
    typed = {"f": "f", "s": "i", "u": "u", "b": "u"}[kind[0]]
    return lambda old, b, c: function(
        old.view(f"{typed}{old.dtype.itemsize}"), b.view(f"{typed}{b.dtype.itemsize}")
    ).view(old.dtype)


def _halves(function: Callable[[Array, Array], Array], old: Array, b: Array, kind: str) -> Array:
    a2 = np.ascontiguousarray(old).view("u2")
    b2 = np.ascontiguousarray(b).view("u2")
    out = values.encode(function(values.decode(a2, kind), values.decode(b2, kind)), kind)
    return np.ascontiguousarray(out).view("u4")


def atomic(
    strand: Strand,
    space: str,
    op: str,
    kind: str,
    address: Array,
    operands: list[Array],
    mask: Array | None,
    wanted: bool,
) -> Array:
    """Read-modify-write of unsigned bits; returns the old bits a thread (zeros where masked or not wanted)."""
    machine = strand.machine
    bits = operands[0].dtype
    if mask is not None and not mask.any():
        return np.zeros((1, 1), bits)
    if space == "":
        space, address = generic(address if mask is None else np.where(mask, address, _some(address, mask)))
    if machine.asks is not None:
        _asking(strand, space, address, mask)
    size = bits.itemsize
    full = (strand.b, strand.t)
    mask = None if mask is None else np.broadcast_to(mask, full)
    rows = machine.shared
    if space == "global":
        address = np.broadcast_to(address, full)
        where, chosen = active(address, mask)
        chosen = (address if chosen is None else chosen).reshape(-1)
        machine.memory.check(chosen, size, chosen.size, write=True, width=size)
        if machine.checker is not None:
            machine.checker.global_access(strand, address, size, mask, "atomic")
        index = (chosen - memory.BASE) // size
        view = memory.everything(bits.str)
    elif space == "shared":
        rows, row, address = _rows(strand, space, address)
        address = np.broadcast_to(address, full)
        where, chosen = active(address, mask)
        row = np.broadcast_to(row, full)
        row = (row if where is None else row[where]).reshape(-1)
        chosen = (address if chosen is None else chosen).reshape(-1)
        index = rows.index(row, chosen, size, size)
        if machine.checker is not None:
            machine.checker.shared_access(strand, strand.cta, address, size, mask, "atomic")
        view = rows.view(_WHOLE[size])
    else:
        raise Unsupported(f"atomics on {space} memory are not simulated")
    data = [
        np.broadcast_to(x, full)[where] if where is not None else np.broadcast_to(x, full).reshape(-1) for x in operands
    ]
    before = machine.version
    old = _apply(view, index, op, kind, data, machine.order(len(index)), wanted)
    changed = op != "cas" or bool((old == data[0]).any())
    machine.version = before + 1 if changed else before
    if not wanted:
        return np.zeros((1, 1), bits)
    return _spread(old, where) if where is not None else old.reshape(full)


def _apply(
    view: Array, index: Array, op: str, kind: str, data: list[Array], order: Array | None, wanted: bool
) -> Array:
    """One atomic on each element of ``index``, equal elements one after the other in the given order."""
    function = _operation(op, kind)
    b, c = data[0], data[-1]
    if order is not None:
        index, b, c = index[order], b[order], c[order]
    sort = np.argsort(index, kind="stable")
    ranked = index[sort]
    starts = np.flatnonzero(np.diff(ranked, prepend=ranked[0] - 1))
    if len(starts) == len(ranked):
        old = view[index]
        view[index] = function(old, b, c)
    elif not wanted and op in ("add", "min", "max", "and", "or", "xor") and kind[0] in "fsub" and kind not in _SMALL:
        ufunc = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
                 "xor": np.bitwise_xor}[op]  # fmt: skip
        typed = {"f": "f", "s": "i", "u": "u", "b": "u"}[kind[0]] + str(view.dtype.itemsize)
        # On a copy: ufunc.at would copy the whole address space if it thought that operands overlap.
        places, inverse = np.unique(index, return_inverse=True)
        cells = view[places].view(typed)
        ufunc.at(cells, inverse, b.view(typed))
        view[places] = cells.view(view.dtype)
        return b
    else:
        place = np.arange(len(ranked)) - np.repeat(starts, np.diff(starts, append=len(ranked)))
        old = np.empty(len(index), view.dtype)
        for k in range(int(place.max()) + 1):
            now = sort[place == k]
            old[now] = view[index[now]]
            view[index[now]] = function(old[now], b[now], c[now])
    if order is not None:
        back = np.empty_like(old)
        back[order] = old
        return back
    return old


_SMALL = ("f16", "bf16", "f16x2", "bf16x2")
