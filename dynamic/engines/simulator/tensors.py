"""What the instructions of bulk and tensor copies, mbarriers and tensor maps do, a call an instruction."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from kcontract.dynamic.engines.simulator import access, copies, memory, tensor_map
from kcontract.dynamic.engines.simulator.copies import Request, chosen_threads, flat
from kcontract.dynamic.engines.simulator.faults import Fault, Unsupported
from kcontract.dynamic.engines.simulator.strand import Strand
from kcontract.dynamic.engines.simulator.tensor_map import TensorMap
from kcontract.dynamic.engines.simulator.values import Array


def place(strand: Strand, address: Array, chosen: Array) -> tuple[Array, Array]:
    """CTA rows and addresses within them of flat shared addresses, which may name another CTA of the cluster."""
    machine = strand.machine
    row, where = flat(strand, strand.cta, chosen), flat(strand, address, chosen)
    if len(where) and int(where.max()) >> 56:
        space, where = access.generic(where)
        if space != "shared":
            raise Fault("bad-address", f"a shared address was expected, found one in {space} memory")
    if machine.grid.cluster_size > 1 and len(where):
        row = machine.row_at(row, where >> memory.RANK_SHIFT)
        where = where & ((1 << memory.RANK_SHIFT) - 1)
    return row, where


# ---- mbarriers


def init(strand: Strand, address: Array, count: Array, mask: Array | None) -> None:
    chosen = chosen_threads(strand, mask)
    if chosen.any():
        row, where = place(strand, address, chosen)
        strand.machine.asynchronous.barriers.init(row, where, flat(strand, count, chosen).astype("i8"))


def invalidate(strand: Strand, address: Array, mask: Array | None) -> None:
    chosen = chosen_threads(strand, mask)
    if chosen.any():
        strand.machine.asynchronous.barriers.invalidate(*place(strand, address, chosen))


def arrive(
    strand: Strand, address: Array, count: Array | None, expected: Array | None, mask: Array | None, drop: bool
) -> Array:
    """`mbarrier.arrive`, with bytes to expect where given, or `expect_tx` alone (``count`` of zeros); returns the
    state word a thread."""
    chosen = chosen_threads(strand, mask)
    out = np.zeros((strand.b, strand.t), "u8")
    if not chosen.any():
        return out
    row, where = place(strand, address, chosen)
    arrivals = np.ones(len(row), "i8") if count is None else flat(strand, count, chosen).astype("i8")
    bytes_ = np.zeros(len(row), "i8") if expected is None else flat(strand, expected, chosen).astype("i8")
    machine = strand.machine
    if machine.checker is not None and arrivals.any():
        machine.checker.signal(strand, chosen, row, where)
    words = machine.asynchronous.barriers.update(row, where, arrivals, bytes_, what="mbarrier.arrive", drop=drop)
    out[chosen] = words.view("u8")
    return out


def complete(strand: Strand, address: Array, count: Array, mask: Array | None) -> None:
    """`mbarrier.complete_tx`."""
    chosen = chosen_threads(strand, mask)
    if chosen.any():
        row, where = place(strand, address, chosen)
        bytes_ = -flat(strand, count, chosen).astype("i8")
        strand.machine.asynchronous.barriers.update(
            row, where, np.zeros(len(row), "i8"), bytes_, what="mbarrier.complete_tx"
        )


def passed(strand: Strand, address: Array, parity: Array, mask: Array | None) -> Array:
    """`mbarrier.try_wait` and `test_wait`: True where the phase has completed."""
    chosen = chosen_threads(strand, mask)
    out = np.zeros((strand.b, strand.t), bool)
    if not chosen.any():
        return out
    row, where = place(strand, address, chosen)
    machine = strand.machine
    barriers = machine.asynchronous.barriers
    done = barriers.passed(row, where, flat(strand, parity, chosen).astype("i8"))
    out[chosen] = done
    if machine.asks is not None and not done.all():
        k = int(np.flatnonzero(~done)[0])
        machine.asking(f"wait for {barriers.describe(int(row[k]), int(where[k]))}")
    if machine.checker is not None and done.any():
        machine.checker.observe(strand, out, row[done], where[done])
    return out


def arrive_after_copies(strand: Strand, address: Array, mask: Array | None, noinc: bool) -> None:
    """`cp.async.mbarrier.arrive`: an arrival once the thread's earlier copies are done."""
    machine = strand.machine
    chosen = chosen_threads(strand, mask)
    row, where = place(strand, address, chosen)
    zero = np.zeros(len(row), "i8")
    if not noinc:
        machine.asynchronous.barriers.update(row, where, zero - 1, zero, what="cp.async.mbarrier.arrive")
    threads = strand.ids()[chosen]

    def act() -> None:
        machine.asynchronous.copies.commit(threads)
        machine.asynchronous.copies.wait(threads, 0)
        machine.asynchronous.barriers.update(row, where, zero + 1, zero, what="cp.async.mbarrier.arrive")

    machine.asynchronous.submit(act)


# ---- tensor copies


def _coordinates(strand: Strand, parts: list[Array], chosen: Array) -> Array:
    return np.stack([flat(strand, p.view("i4"), chosen).astype("i8") for p in parts], axis=1)


def load(
    strand: Strand, target: Array, map_address: Array, parts: list[Array], barrier: Array, mask: Array | None,
    multicast: Array | None, gather: bool, pair: bool,
) -> None:  # fmt: skip
    """`cp.async.bulk.tensor` from global to shared memory."""
    chosen = chosen_threads(strand, mask)
    if not chosen.any():
        return
    machine = strand.machine
    row, to = place(strand, target, chosen)
    signal_row, signal = place(strand, barrier, chosen)
    parity = signal_row % 2
    maps = copies.read_maps(strand, map_address, chosen)
    coordinates = _coordinates(strand, parts, chosen)
    rows = coordinates[:, 1:] if gather else None
    if multicast is not None:
        row, to, signal_row, signal, repeat = _spread(strand, chosen, multicast, to, signal)
        if pair:  # the signals go to the CTAs of the pairs that have the parity of the mbarrier given
            signal_row = row - row % 2 + parity[repeat]
        maps = [maps[k] for k in repeat]
        coordinates, rows = coordinates[repeat], None if rows is None else rows[repeat]
    request = Request(row, to, maps, coordinates, rows)
    sizes = np.array([copies.box_bytes(m, 4 if gather else 0) for m in maps])
    for m, a in zip(maps, to.tolist(), strict=True):
        if a % 128:
            raise Fault("misaligned-access", f"the shared address {a:#x} of a tensor copy is not a multiple of 128")
        _check_rank(m, len(parts), gather)
    time = 0
    if machine.checker is not None:
        time = machine.checker.begin_tensor(strand, chosen, request, "write", signal_row, signal)

    def act() -> None:
        copies.move(request, functools.partial(copies.copy_box_in, machine))
        if machine.checker is not None:
            machine.checker.end_tensor_write(signal_row, signal, time)
        zero = np.zeros(len(row), "i8")
        machine.asynchronous.barriers.update(signal_row, signal, zero, -sizes, what="cp.async.bulk.tensor")

    machine.asynchronous.submit(act)


def _check_rank(m: TensorMap, given: int, gather: bool) -> None:
    if len(m.size) != (2 if gather else given):
        raise Fault("bad-tensor-map", f"the instruction gives {given} coordinates, the map has rank {len(m.size)}")


def _spread(
    strand: Strand, chosen: Array, multicast: Array, to: Array, signal: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """One entry a destination CTA of the cluster: rows, addresses, mbarrier rows and addresses, issuer."""
    machine = strand.machine
    base = machine.cluster_base(flat(strand, strand.cta, chosen))
    bits = flat(strand, multicast, chosen).astype("i8")
    pairs = [(k, r) for k in range(len(bits)) for r in range(machine.grid.cluster_size) if bits[k] >> r & 1]
    issuer = np.array([k for k, _ in pairs])
    row = base[issuer] + np.array([r for _, r in pairs])
    return row, to[issuer], row, signal[issuer], issuer


def store(
    strand: Strand,
    map_address: Array,
    parts: list[Array],
    source: Array,
    mask: Array | None,
    reduce: str,
    scatter: bool,
) -> None:
    """`cp.async.bulk.tensor` and `cp.reduce.async.bulk.tensor` from shared to global memory, by bulk group."""
    chosen = chosen_threads(strand, mask)
    if not chosen.any():
        return
    machine = strand.machine
    row, frm = place(strand, source, chosen)
    maps = copies.read_maps(strand, map_address, chosen)
    coordinates = _coordinates(strand, parts, chosen)
    for m, a in zip(maps, frm.tolist(), strict=True):
        if a % 128:
            raise Fault("misaligned-access", f"the shared address {a:#x} of a tensor copy is not a multiple of 128")
        _check_rank(m, len(parts), scatter)
    request = Request(row, frm, maps, coordinates, coordinates[:, 1:] if scatter else None)
    threads, time = strand.ids()[chosen], 0
    if machine.checker is not None:
        time = machine.checker.begin_tensor(strand, chosen, request, "read", None, None)

    def act(now: Array | slice) -> None:
        part = request.pick(np.arange(len(request))[now].tolist())
        copies.move(part, functools.partial(copies.copy_box_out, machine, reduce=reduce))
        if machine.checker is not None:
            machine.checker.end_tensor_read(threads[now], time)

    machine.asynchronous.grouped(machine.asynchronous.bulk, threads, act)


def store_async(strand: Strand, address: Array, parts: list[Array], barrier: Array, mask: Array | None) -> None:
    """`st.async`: a store into a CTA of the cluster that reports its bytes to an mbarrier there."""
    size = parts[0].dtype.itemsize * len(parts)
    _and_complete(strand, barrier, size, mask, lambda: access.store(strand, "shared", address, parts, mask))


def reduce_async(
    strand: Strand, op: str, kind: str, address: Array, value: Array, barrier: Array, mask: Array | None
) -> None:
    """`red.async`: the same for an atomic."""

    def act() -> None:
        access.atomic(strand, "shared", op, kind, address, [value], mask, False)

    _and_complete(strand, barrier, value.dtype.itemsize, mask, act)


def _and_complete(strand: Strand, barrier: Array, size: int, mask: Array | None, work: Callable[[], object]) -> None:
    chosen = chosen_threads(strand, mask)
    if not chosen.any():
        return
    row, where = place(strand, barrier, chosen)
    zero = np.zeros(len(row), "i8")

    def act() -> None:
        work()
        strand.machine.asynchronous.barriers.update(row, where, zero, zero - size, what="an asynchronous store")

    strand.machine.asynchronous.submit(act)


def bulk(
    strand: Strand, target: Array, source: Array, size: Array, barrier: Array | None, mask: Array | None, form: str,
    multicast: Array | None, reduce: tuple[str, str],
) -> None:  # fmt: skip
    """`cp.async.bulk`: ``form`` is in (global to shared), out (shared to global) or across (shared to shared);
    ``reduce`` names operation and type of `cp.reduce.async.bulk`."""
    chosen = chosen_threads(strand, mask)
    if not chosen.any():
        return
    machine = strand.machine
    count = flat(strand, size, chosen).astype("i8")
    zero = np.zeros(len(count), "i8")
    if form == "out":
        row, shared = place(strand, source, chosen)
        outer = flat(strand, target, chosen)
        threads, time = strand.ids()[chosen], 0
        if machine.checker is not None:
            time = machine.checker.begin_bulk(strand, chosen, row, shared, count, None, None)

        def act_out(now: Array | slice) -> None:
            if reduce[0]:
                copies.reduce_bytes(machine, row[now], shared[now], outer[now], count[now], reduce)
            else:
                copies.copy_bytes(machine, row[now], shared[now], outer[now], count[now], inward=False)
            if machine.checker is not None:
                machine.checker.end_tensor_read(threads[now], time)

        machine.asynchronous.grouped(machine.asynchronous.bulk, threads, act_out)
        return
    assert barrier is not None
    row, shared = place(strand, target, chosen)
    signal_row, signal = place(strand, barrier, chosen)
    repeat = np.arange(len(row))
    if multicast is not None:
        row, shared, signal_row, signal, repeat = _spread(strand, chosen, multicast, shared, signal)
        count, zero = count[repeat], zero[repeat]
    act: Callable[[], None]
    landed = 0
    if machine.checker is not None:
        landed = machine.checker.begin_bulk(strand, chosen, row, shared, count, signal_row, signal)
    if form == "in":
        outer = flat(strand, source, chosen)[repeat]

        def act() -> None:
            copies.copy_bytes(machine, row, shared, outer, count, inward=True)
            if machine.checker is not None:
                machine.checker.end_tensor_write(signal_row, signal, landed)
            machine.asynchronous.barriers.update(signal_row, signal, zero, -count, what="cp.async.bulk")

    else:
        from_row, from_shared = place(strand, source, chosen)

        def act() -> None:
            for r, s, r2, s2, n in zip(row, shared, from_row, from_shared, count, strict=True):
                step = np.arange(0, n, 16)
                view = machine.shared.view("c16")
                data = view[machine.shared.index(np.full(len(step), r2), s2 + step, 16, 16)]
                view[machine.shared.index(np.full(len(step), r), s + step, 16, 16)] = data
            machine.asynchronous.barriers.update(signal_row, signal, zero, -count, what="cp.async.bulk")

    machine.asynchronous.submit(act)


# ---- tensor maps


def replace(
    strand: Strand, space: str, address: Array, name: str, ordinal: int, value: Array, mask: Array | None
) -> None:
    """`tensormap.replace`: one field of a map in shared or global memory."""
    chosen = chosen_threads(strand, mask)
    if not chosen.any():
        return
    offset, dtype, count = tensor_map.FIELDS[name]
    if ordinal >= count:
        raise Fault("bad-tensor-map", f"field {name} has no entry {ordinal}")
    width = np.dtype(dtype).itemsize
    where = address + np.int64(offset + ordinal * width)
    access.store(strand, space, where, [value.astype(dtype)], None if mask is None else chosen)


def publish(strand: Strand, target: Array, source: Array, size: int, mask: Array | None) -> None:
    """`tensormap.cp_fenceproxy`: copy a map from shared to global memory (all threads of a warp take part)."""
    if size != tensor_map.BYTES:
        raise Unsupported(f"tensormap.cp_fenceproxy of {size} bytes is not simulated")
    chosen = chosen_threads(strand, mask)
    if not chosen.any():
        return
    row, frm = place(strand, source, chosen)
    to = flat(strand, target, chosen)
    if len(to) and int(to.max()) >> 56:
        raise Fault("bad-address", "tensormap.cp_fenceproxy writes to global memory only")
    pairs = np.unique(np.stack([row, frm, to], axis=1), axis=0)
    row, frm, to = pairs.T
    machine = strand.machine
    machine.memory.check(to, size, len(to), write=True, width=64)
    step = np.arange(0, size, 16)
    index = machine.shared.index(row[:, None], frm[:, None] + step, 16, 16)
    memory.store_global(to[:, None] + step, machine.shared.view("c16")[index])
    machine.version += 1
