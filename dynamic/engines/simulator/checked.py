"""Checked mode: every access is compared with what has happened to its bytes, and every wait and fence counts.

It reports accesses that no barrier orders, asynchronous work that nobody waited for, generic writes that the async
proxy cannot see, reads of what was never written, Tensor Memory and register-pool mistakes. Accesses of one warp count
as ordered. Not tracked: ordering through memory other than mbarriers within a CTA, races in clusters of several CTAs,
`tcgen05.fence` (Triton emits none).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kcontract.dynamic.engines.simulator import copies, tensor_map
from kcontract.dynamic.engines.simulator.clocks import Clocks
from kcontract.dynamic.engines.simulator.faults import Fault
from kcontract.dynamic.engines.simulator.matrix import swizzled
from kcontract.dynamic.engines.simulator.shadow import GlobalShadow, Shadow
from kcontract.dynamic.engines.simulator.strand import Strand
from kcontract.dynamic.engines.simulator.tensor_memory import COLUMNS
from kcontract.dynamic.engines.simulator.values import Array

if TYPE_CHECKING:
    from kcontract.dynamic.engines.simulator.machine import Machine
    from kcontract.dynamic.engines.simulator.tcgen05 import Instruction

#: Registers of one multiprocessor that the warps of a CTA can share (PTX ISA, setmaxnreg).
_REGISTER_POOL = 65536


class Checker:
    """Checks of one batch."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        grid = machine.grid
        count = len(machine.ctas)
        self.clocks = Clocks(count, -(-grid.threads // 32))
        self.single = grid.cluster_size == 1
        self.shared = Shadow(self.clocks, count, machine.shared.size, "shared memory", machine.ctas, "byte {0}")
        cells = COLUMNS * 4 if machine.tensor else 0
        self.tensor = Shadow(self.clocks, count, cells, "Tensor Memory", machine.ctas, "column group {0}", fixed=True)
        if grid.shadow is None:
            total = grid.extent[0] * grid.extent[1] * grid.extent[2]
            grid.shadow = GlobalShadow(total, 1 if grid.kernel.narrow_global else 4)
        self.all: GlobalShadow = grid.shadow
        self.swizzle = np.zeros((count, self.shared.size // 16), "i2")
        self.budget: dict[tuple[int, int], int] = {}

    # ---- shared memory

    def shared_access(
        self, strand: Strand, row: Array, address: Array, size: int, mask: Array | None, how: str
    ) -> None:
        """A load, store or atomic of a strand; arrays broadcast to its shape."""
        shape = (strand.b, strand.t)
        warp = np.broadcast_to(strand.tid >> 5, shape)
        rows, where = np.broadcast_to(row, shape), np.broadcast_to(address, shape)
        if mask is not None:
            keep = np.broadcast_to(mask, shape)
            self.touch(rows[keep], where[keep], size, warp[keep], how)
        else:
            self.touch(rows.reshape(-1), where.reshape(-1), size, warp.reshape(-1), how)

    def touch(self, row: Array, address: Array, size: int, warp: Array, how: str) -> None:
        """Ordinary accesses, one entry each, by the warps named."""
        if not self.single:
            return
        if how == "read":
            self.shared.reads(row, address, size, warp, warp, proxy=False)
        else:
            self.shared.writes(row, address, size, warp, warp, atomic=how == "atomic")

    def read_by_tensor_core(self, strand: Strand, chosen: Array, rows: Array, pieces: Array, width: int) -> None:
        """A tcgen05 instruction reads 16-byte pieces of shared memory, (issuers, ..., ...), through the async proxy."""
        if not self.single:
            return
        self.clocks.tick()
        self.machine.shared.index(rows[:, None, None], pieces, 16, 16)
        warp = np.broadcast_to(self._issuer(strand, chosen), pieces.shape).reshape(-1)
        row = np.broadcast_to(rows[:, None, None], pieces.shape).reshape(-1)
        flat = pieces.reshape(-1)
        self._layout(row, flat, width)
        self.shared.reads(row, flat, 16, warp, self.clocks.tensor_core, proxy=True)

    def _issuer(self, strand: Strand, chosen: Array) -> Array:
        """The warp of the first thread that issues a single-thread instruction."""
        return np.asarray(np.broadcast_to(strand.tid, chosen.shape)[chosen][:1] >> 5)

    def read_by_wgmma(self, strand: Strand, rows: Array, pieces: Array, width: int) -> None:
        """wgmma reads 16-byte pieces of shared memory, (CTAs · warpgroups or CTAs, ..., ...), until it is waited "
        "for."""
        if not self.single:
            return
        per = len(rows) // strand.b
        warp = np.tile((strand.tid[0, ::128] >> 5)[:per], strand.b)[:, None, None]
        warp = np.broadcast_to(warp, rows.shape).reshape(-1)
        time = self.clocks.tick()
        row, flat = rows.reshape(-1), pieces.reshape(-1)
        self._layout(row, flat, width)
        self.shared.reads(row, flat, 16, warp, self.clocks.unit("wgmma", warp), proxy=True)

        def act(now: Array) -> None:
            threads = ids[now]
            cta, warp = threads // self.machine.threads, threads % self.machine.threads >> 5
            lead = warp - warp % 4
            self.clocks.complete(cta, warp, self.clocks.unit("wgmma", lead), time)

        ids = strand.ids().reshape(-1)
        self.machine.asynchronous.wgmma.add(ids, act)

    # ---- copies

    def begin_write(self, row: Array, to: Array, size: int, threads: Array) -> None:
        """`cp.async` is issued: the warp's copy unit writes from now until the wait."""
        if not self.single:
            return
        warp = threads % self.machine.threads >> 5
        self.clocks.tick()
        self.shared.writes(row, to, size, warp, self.clocks.unit("cp.async", warp))

    def end_write(self, row: Array, to: Array, size: int, threads: Array) -> None:
        """The issuing threads have waited for their copies."""
        if not self.single or not len(to):
            return
        warp = threads % self.machine.threads >> 5
        actor = self.clocks.unit("cp.async", warp)
        self.clocks.complete(row, warp, actor, self.shared.look(row, to)[1])

    def begin_tensor(
        self,
        strand: Strand,
        chosen: Array,
        request: copies.Request,
        how: str,
        signal_row: Array | None,
        signal: Array | None,
    ) -> int:
        """A tensor copy is issued; returns its time."""
        sizes = np.array([copies.box_bytes(m, 4 if request.rows is not None else 0) for m in request.maps])
        widths = [tensor_map.SWIZZLE_BYTES[m.swizzle] for m in request.maps]
        return self.begin_bulk(strand, chosen, request.row, request.shared, sizes, signal_row, signal, widths)

    def begin_bulk(
        self, strand: Strand, chosen: Array, rows: Array, starts: Array, sizes: Array, signal_row: Array | None,
        signal: Array | None, widths: list[int] | None = None,
    ) -> int:  # fmt: skip
        """A copy between shared and global memory is issued: into shared memory where it reports to an mbarrier.

        ``widths`` are the swizzles in bytes; returns the time of the copy.
        """
        time = self.clocks.tick()
        if not self.single:
            return time
        for k in range(len(rows)):
            width = widths[k] if widths else 0
            address = swizzled(int(starts[k]) + np.arange(0, int(sizes[k]), 16), width)
            warp = np.broadcast_to(self._issuer(strand, chosen), address.shape)
            cta = np.full(len(address), int(rows[k]))
            if signal_row is not None and signal is not None:
                self.shared.writes(cta, address, 16, warp, self.clocks.mbarrier(int(signal_row[k]), int(signal[k])))
                self.swizzle[cta, address // 16] = width
            else:
                self.shared.reads(cta, address, 16, warp, self.clocks.unit("bulk", warp), proxy=True)
        return time

    def _layout(self, cta: Array, address: Array, width: int) -> None:
        """What a tensor copy has written is read with the swizzle it was written with."""
        found = self.swizzle[cta, address // 16]
        bad = found != width
        if bad.any():
            bad &= self.shared.look(cta, address)[0] > self.clocks.tensor_core
        if bad.any():
            k = int(np.flatnonzero(bad)[0])
            raise Fault(
                "swizzle-mismatch",
                f"shared memory was written by a tensor copy with a swizzle of {int(found[k])} bytes and is read "
                f"by a descriptor with {width}",
            )

    def end_tensor_write(self, signal_row: Array, signal: Array, time: int) -> None:
        """Tensor copies have landed and report to their mbarriers."""
        for r, a in zip(signal_row.tolist(), signal.tolist(), strict=True):
            known, _ = self.clocks.object(r, a)
            actor = self.clocks.mbarrier(r, a)
            known[actor] = max(int(known[actor]), time)

    def end_tensor_read(self, threads: Array, time: int) -> None:
        """The issuing threads have waited for their bulk group."""
        cta, warp = threads // self.machine.threads, threads % self.machine.threads >> 5
        self.clocks.complete(cta, warp, self.clocks.unit("bulk", warp), time)

    # ---- synchronisation

    def _warps(self, strand: Strand, mask: Array | None = None) -> tuple[Array, Array]:
        """CTA and warp of each warp of a strand that has a thread under the mask."""
        if mask is None and strand.warps:
            warps = strand.tid[0, ::32] >> 5
            return np.repeat(strand.cta[:, 0], len(warps)), np.tile(warps, strand.b)
        ids = strand.ids()
        threads = ids.reshape(-1) if mask is None else ids[np.broadcast_to(mask, ids.shape)]
        warps = np.unique(threads // self.machine.threads * 64 + (threads % self.machine.threads >> 5))
        return warps // 64, warps % 64

    def arrived(self, strand: Strand, number: int) -> None:
        self.clocks.arrive(number, *self._warps(strand))

    def released(self, strands: list[Strand], number: int, done: Array) -> None:
        for strand in strands:
            self.clocks.depart(number, *self._warps(strand))
        self.clocks.clear(number, done)

    def signal(self, strand: Strand, chosen: Array, row: Array, where: Array) -> None:
        """Threads arrive on mbarriers."""
        threads = strand.ids()[chosen]
        self.clocks.release(threads // self.machine.threads, threads % self.machine.threads >> 5, row, where)

    def observe(self, strand: Strand, chosen: Array, row: Array, where: Array) -> None:
        """Threads have seen a phase end."""
        threads = strand.ids()[chosen]
        self.clocks.acquire(row, threads % self.machine.threads >> 5, where)

    def committed(self, row: Array, where: Array, time: int) -> None:
        """`tcgen05.commit` has arrived on mbarriers."""
        for r, a in zip(row.tolist(), where.tolist(), strict=True):
            known, _ = self.clocks.object(r, a)
            known[self.clocks.tensor_core] = max(int(known[self.clocks.tensor_core]), time)

    def fence(self, strand: Strand, words: tuple[str, ...], mask: Array | None) -> None:
        if mask is not None and not mask.any():
            return
        if "proxy" in words and "async" in words:
            self.clocks.fence(*self._warps(strand, mask))
        elif "proxy" not in words:
            self.all.synchronise(self.machine.ctas[strand.cta[:, 0]])

    def set_registers(self, strand: Strand, direction: str, count: int) -> None:
        """`setmaxnreg`: the pool of the CTA is bounded (the start value is that of the launch)."""
        threads = self.machine.grid.threads
        start = (self.machine.kernel.function.directives.get("maxnreg") or (_REGISTER_POOL // threads // 8 * 8,))[0]
        cta, warp = self._warps(strand)
        for c, w in zip(cta.tolist(), warp.tolist(), strict=True):
            self.budget[c, w] = count
        for c in np.unique(cta).tolist():
            used = sum(32 * self.budget.get((c, w), start) for w in range(self.clocks.warps))
            if direction == "inc" and used > max(_REGISTER_POOL, 32 * start * self.clocks.warps):
                self.machine.grid.notes.add(f"setmaxnreg.inc {count} waits until other warps give up registers")

    # ---- Tensor Memory

    def tensor_read(self, strand: Strand, row: Array, column: Array, lane: Array) -> None:
        """`tcgen05.ld`."""
        self._tensor(strand, row, column, lane, "tcgen05.ld")

    def tensor_write(self, strand: Strand, row: Array, column: Array, lane: Array) -> None:
        """`tcgen05.st`."""
        self._tensor(strand, row, column, lane, "tcgen05.st")

    def _tensor(self, strand: Strand, row: Array, column: Array, lane: Array, what: str) -> None:
        if not self.single:
            return
        quarter = lane // 32
        row, column, quarter = np.broadcast_arrays(row, column, quarter)
        keys = np.unique((row.astype("i8") * COLUMNS + column) * 4 + quarter)
        cta, grain = keys // (COLUMNS * 4), keys % (COLUMNS * 4)
        mine = np.unique(strand.tid >> 5)
        warp = np.zeros(len(keys), "i8")
        for w in mine.tolist():
            warp[grain % 4 == w % 4] = w
        self.clocks.tick()
        actor = self.clocks.unit(what, warp)
        if what == "tcgen05.ld":
            try:
                self.tensor.reads(cta, grain, 1, warp, actor, proxy=False)
            except Fault as fault:
                if fault.kind != "uninitialised-read":
                    raise
                self.machine.grid.note(fault, self.machine.kernel.running())
        else:
            self.tensor.writes(cta, grain, 1, warp, actor)

    def tensor_wait(self, strand: Strand, what: str) -> None:
        """`tcgen05.wait`: the warp's own loads or stores are done."""
        cta, warp = self._warps(strand)
        self.clocks.complete(cta, warp, self.clocks.unit(f"tcgen05.{what}", warp), self.clocks.now)

    def begin_mma(
        self, strand: Strand, chosen: Array, rows: Array, d_at: Array, spec: Instruction, width: int, lanes: Array,
        adds: Array, a_at: Array | None,
    ) -> None:  # fmt: skip
        """`tcgen05.mma` is issued: D's cells are written (and read where it adds), A's read."""
        self.clocks.tick()
        if not self.single:
            return
        quarters = np.unique(lanes // 32)
        warp = self._issuer(strand, chosen)
        self._unit_cells(warp, rows, d_at, width, quarters, read=adds, write=True)
        if a_at is not None:
            count = spec.k * (32 if spec.kind == "tf32" else 16 if spec.kind == "f16" else 8) // 32
            self._unit_cells(warp, rows, a_at, count, quarters, read=np.ones(len(rows), bool), write=False)

    def begin_copy(self, strand: Strand, chosen: Array, rows: Array, at: Array, width: int) -> None:
        """`tcgen05.cp` is issued: cells of all four lane groups are written."""
        self.clocks.tick()
        if self.single:
            none = np.zeros(len(rows), bool)
            self._unit_cells(self._issuer(strand, chosen), rows, at, width, np.arange(4), read=none, write=True)

    def _unit_cells(
        self, issuer: Array, rows: Array, at: Array, count: int, quarters: Array, read: Array, write: bool
    ) -> None:
        column = (at & 0xFFFF)[:, None, None] + np.arange(count)[None, :, None]
        if int(column.max()) >= COLUMNS:
            raise Fault("tmem-bounds", f"tcgen05.mma reaches Tensor Memory column {int(column.max())} of {COLUMNS}")
        grain = column * 4 + quarters[None, None, :]
        cta = np.broadcast_to(rows[:, None, None], grain.shape)
        keep = np.broadcast_to(read[:, None, None], grain.shape)
        warp = np.broadcast_to(issuer, grain.shape)
        core = self.clocks.tensor_core
        if keep.any():
            self.tensor.reads(cta[keep], grain[keep], 1, warp[keep], core, proxy=False)
        if write:
            self.tensor.writes(cta.reshape(-1), grain.reshape(-1), 1, warp.reshape(-1), core)

    # ---- global memory

    def global_access(self, strand: Strand, address: Array, size: int, mask: Array | None, how: str) -> None:
        """A load, store or atomic of a strand; ``address`` broadcasts to its shape."""
        shape = (strand.b, 1) if address.shape[1] == 1 and mask is None else (strand.b, strand.t)
        where, cta = np.broadcast_to(address, shape), self.machine.ctas[strand.cta]
        if mask is not None:
            keep = np.broadcast_to(mask, shape)
            where, cta = where[keep], np.broadcast_to(cta, shape)[keep]
        if not where.size:
            return
        regions = self.machine.memory.regions
        starts, ends = self.machine.memory.bounds()
        first = int(np.searchsorted(starts, where.min(), side="right")) - 1
        if int(where.max()) < ends[first]:
            region = regions[first]
            self.all.access(region.name, region.size, where - region.start, cta, size, how)
        else:
            cta = np.broadcast_to(cta, where.shape)
            index = np.searchsorted(starts, where, side="right") - 1
            for one in np.unique(index).tolist():
                region, here = regions[one], index == one
                self.all.access(region.name, region.size, where[here] - region.start, cta[here], size, how)
        if how == "atomic":
            self.all.synchronise(self.machine.ctas[strand.cta[:, 0]])

    def finish(self) -> None:
        """The batch has ended."""
        if self.machine.tensor is not None:
            self.machine.tensor.leaked()
