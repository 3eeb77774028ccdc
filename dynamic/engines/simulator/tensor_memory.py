"""Tensor Memory: allocation, loads, stores and copies into it (PTX ISA 9, "TensorCore 5th Generation": tcgen05).

A CTA has 512 columns of 128 lanes of 32 bits, kept as ``cells`` (CTAs, columns, lanes) so that a column is contiguous.
An address has the lane in its upper and the column in its lower half.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kcontract.dynamic.engines.simulator import matrix
from kcontract.dynamic.engines.simulator.faults import Fault, Unsupported
from kcontract.dynamic.engines.simulator.strand import Strand
from kcontract.dynamic.engines.simulator.values import Array

if TYPE_CHECKING:
    from kcontract.dynamic.engines.simulator.machine import Machine

COLUMNS, LANES = 512, 128
_L = np.arange(32)


class TensorMemory:
    """``owner[cta, column]`` is 0 where free, else the number of the allocation."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        count = len(machine.ctas)
        self.cells = np.zeros((count, COLUMNS, LANES), "u4")
        if machine.grid.fill:
            self.cells[:] = machine.grid.fill
        self.owner = np.zeros((count, COLUMNS), "i4")
        self.relinquished = np.zeros(count, bool)
        self.serial = 0
        self.sites: dict[int, int | None] = {}

    def _cta(self, row: int) -> int:
        return int(self.machine.ctas[row])

    def allocate(self, strand: Strand, target: Array, count: Array, mask: Array | None) -> None:
        """`tcgen05.alloc`: writes the address of the columns to shared memory; a warp a CTA takes part."""
        from kcontract.dynamic.engines.simulator import tensors

        leaders = leader_lanes(strand, mask)
        if not leaders.any():
            return
        rows, where = tensors.place(strand, target, leaders)
        wanted = np.broadcast_to(count, leaders.shape)[leaders]
        index = self.machine.shared.index(rows, where, 4, 4)
        self.machine.version += 1
        site = self.machine.kernel.running()
        for row, n, at in zip(rows.tolist(), wanted.tolist(), index.tolist(), strict=True):
            if n < 32 or n > COLUMNS or n & (n - 1):
                raise Fault(
                    "tmem-count", f"tcgen05.alloc of {n} columns; a power of two from 32 to {COLUMNS} is allowed"
                )
            if self.relinquished[row]:
                raise Fault("tmem-lifecycle", f"CTA {self._cta(row)} allocates after it gave up its permit")
            free = [c for c in range(0, COLUMNS, n) if not self.owner[row, c : c + n].any()]
            if not free:
                raise Fault(
                    "tmem-exhausted",
                    f"CTA {self._cta(row)} asks for {n} columns, which are not free: tcgen05.alloc never returns",
                )
            self.serial += 1
            self.sites[self.serial] = site
            self.owner[row, free[0] : free[0] + n] = self.serial
            self.machine.shared.view("u4")[at] = free[0]
        checker = self.machine.checker
        if checker is not None:
            warp = np.broadcast_to(strand.tid >> 5, leaders.shape)[leaders]
            checker.touch(rows, where, 4, warp, "write")

    def release(self, strand: Strand, address: Array, count: Array, mask: Array | None) -> None:
        """`tcgen05.dealloc`."""
        leaders = leader_lanes(strand, mask)
        starts = np.broadcast_to(address, leaders.shape)[leaders]
        counts = np.broadcast_to(count, leaders.shape)[leaders]
        rows = np.broadcast_to(strand.cta, leaders.shape)[leaders]
        for row, a, n in zip(rows.tolist(), starts.tolist(), counts.tolist(), strict=True):
            c = a & 0xFFFF
            owners = self.owner[row, c : c + n]
            if len(owners) < n or not owners.all() or (owners != owners[0]).any():
                raise Fault(
                    "tmem-lifecycle",
                    f"CTA {self._cta(row)} frees columns {c} to {c + n - 1}, which are no allocation of its own",
                )
            if int((self.owner[row] == owners[0]).sum()) != n:
                raise Fault(
                    "tmem-lifecycle", f"CTA {self._cta(row)} frees {n} columns of an allocation of another size"
                )
            owners[:] = 0

    def relinquish(self, strand: Strand, mask: Array | None) -> None:
        leaders = leader_lanes(strand, mask)
        self.relinquished[np.broadcast_to(strand.cta, leaders.shape)[leaders]] = True

    def leaked(self) -> None:
        """At the end of the kernel nothing may be allocated."""
        rows = np.flatnonzero(self.owner.any(axis=1))
        if len(rows):
            held = self.owner[rows[0]]
            fault = Fault(
                "tmem-leak",
                f"{len(rows)} CTAs end with Tensor Memory allocated, CTA {self._cta(int(rows[0]))} with "
                f"{int((held > 0).sum())} columns",
            )
            raise self.machine.kernel.located(fault, self.sites[int(held.max())])

    def check(self, row: Array, column: Array, lane: Array) -> None:
        """Every cell lies in an allocation; arrays broadcast together."""
        if column.size and (int(column.min()) < 0 or int(column.max()) >= COLUMNS or int(lane.max()) >= LANES):
            raise Fault(
                "tmem-bounds",
                f"Tensor Memory column {int(column.max())}, lane {int(lane.max())} is outside 512 columns of 128 lanes",
            )
        owners = self.owner[row, column]
        if not owners.all():
            bad = np.argwhere(np.broadcast_arrays(owners, column)[0] == 0)[0]
            which = int(np.broadcast_to(column, owners.shape)[tuple(bad)])
            cta = self._cta(int(np.broadcast_to(row, owners.shape)[tuple(bad)]))
            raise Fault("tmem-unallocated", f"column {which} of CTA {cta} is used but not allocated")

    def cells_of(
        self, strand: Strand, address: Array, shape: str, count: int, packed: bool, split: int
    ) -> tuple[Array, Array, Array]:
        """CTA rows (b, 1, 1, 1), columns and lanes (b|1, warps, registers, 32) that a load or store touches."""
        w = matrix.warps_of(strand)
        base = np.broadcast_to(address, (address.shape[0], strand.t)).reshape(-1, w, 32)[..., 0].astype("i8")
        lane, column = pattern(shape, count, packed, split)
        columns = (base & 0xFFFF)[:, :, None, None] + column
        lanes = (base >> 16)[:, :, None, None] + lane
        quarter = (strand.tid[0, ::32] // 32 % 4)[None, :, None, None]
        if (lanes // 32 != quarter).any():
            bad = int(np.argwhere((lanes // 32 != quarter).any(axis=(0, 2, 3)))[0, 0])
            raise Fault(
                "tmem-lanes",
                f"warp {int(strand.tid[0, 32 * bad]) // 32} touches Tensor Memory lane {int(lanes[0, bad].min())}; "
                f"a warp w may touch lanes 32 (w mod 4) to 32 (w mod 4) + 31 only",
            )
        return strand.cta[:, :, None, None], columns, lanes

    def load(self, strand: Strand, address: Array, shape: str, count: int, packed: bool, split: int) -> list[Array]:
        """`tcgen05.ld`: registers as (b, t) arrays."""
        row, column, lane = self.cells_of(strand, address, shape, count, packed, split)
        self.check(row, column, lane)
        checker = self.machine.checker
        if checker is not None:
            checker.tensor_read(strand, row, column, lane)
        blocks = self._blocks(strand, shape, column, lane)
        if blocks is None:
            data = self.cells[row, column, lane]
        else:
            rows = strand.cta[:, 0]
            data = np.empty((strand.b, strand.warps, column.shape[2], 32), "u4")
            for warp, thread, start, first in blocks:
                n = 32 if shape == "32x32b" else 16
                data[:, warp, :, thread : thread + n] = self.cells[
                    rows, start : start + data.shape[2], first : first + n
                ]
        if packed:
            data = (data[:, :, 0::2] & np.uint32(0xFFFF)) | (data[:, :, 1::2] << np.uint32(16))
        return list(np.ascontiguousarray(data.transpose(2, 0, 1, 3)).reshape(-1, strand.b, strand.t))

    def store(
        self,
        strand: Strand,
        address: Array,
        parts: list[Array],
        shape: str,
        packed: bool,
        split: int,
        mask: Array | None,
    ) -> None:
        """`tcgen05.st`; a warp takes part where its first thread's mask holds."""
        if mask is not None and not mask.any():
            return
        count = len(parts)
        row, column, lane = self.cells_of(strand, address, shape, count, packed, split)
        data = np.empty((count, strand.b, strand.warps, 32), "u4")
        for k, p in enumerate(parts):
            data[k] = np.broadcast_to(p, (strand.b, strand.t)).reshape(strand.b, strand.warps, 32)
        data = data.transpose(1, 2, 0, 3)
        if packed:
            pairs = np.empty((*data.shape[:2], 2 * count, 32), "u4")
            pairs[:, :, 0::2], pairs[:, :, 1::2] = data & np.uint32(0xFFFF), data >> np.uint32(16)
            data = pairs
        full = np.broadcast_shapes(row.shape, column.shape)
        row, column = np.broadcast_to(row, full), np.broadcast_to(column, full)  # (b, warps, registers, 32)
        lane = np.broadcast_to(lane, full)
        blocks = self._blocks(strand, shape, column, lane) if mask is None or mask.all() else None
        if mask is not None and not mask.all():
            keep = strand.full(mask).reshape(strand.b, strand.warps, 32)[..., 0]
            row, column, lane, data = row[keep], column[keep], lane[keep], data[keep]
        self.check(row, column, lane)
        checker = self.machine.checker
        if checker is not None:
            checker.tensor_write(strand, row, column, lane)
        if blocks is None:
            self.cells[row, column, lane] = data
            return
        for warp, thread, start, first in blocks:
            n = 32 if shape == "32x32b" else 16
            target = (strand.cta[:, 0], slice(start, start + data.shape[2]), slice(first, first + n))
            self.cells[target] = data[:, warp, :, thread : thread + n]

    def _blocks(self, strand: Strand, shape: str, column: Array, lane: Array) -> list[tuple[int, int, int, int]] | None:
        """The same cells as slices, where all CTAs agree: warp, first thread, first column, first lane of each."""
        if shape not in ("32x32b", "16x32bx2") or (column[:1] != column).any() or (lane[:1] != lane).any():
            return None
        parts = (0,) if shape == "32x32b" else (0, 16)
        full = np.broadcast_to(column, np.broadcast_shapes(column.shape, lane.shape))
        lanes = np.broadcast_to(lane, full.shape)
        return [(w, t, int(full[0, w, 0, t]), int(lanes[0, w, 0, t])) for w in range(full.shape[1]) for t in parts]


def pattern(shape: str, count: int, packed: bool, split: int) -> tuple[Array, Array]:
    """Lane and column offsets of each register (twice as many where two columns are packed) in each thread, (r, 32)."""
    r = np.arange(2 * count if packed else count)[:, None]
    if shape == "32x32b":
        return np.broadcast_to(_L, (len(r), 32)), np.broadcast_to(r, (len(r), 32))
    if shape == "16x32bx2":
        return np.broadcast_to(_L % 16, (len(r), 32)), r + (_L // 16) * split
    if packed:
        raise Unsupported(f"packed registers of shape .{shape} are not simulated")
    if shape == "16x64b":
        return np.broadcast_to(_L // 4 + 8 * (_L % 2), (len(r), 32)), (_L // 2) % 2 + 2 * r
    if shape == "16x128b":
        return _L // 4 + 8 * (r % 2), _L % 4 + 4 * (r // 2)
    return _L // 4 + 8 * ((r // 2) % 2), r % 2 + 2 * (_L % 4) + 8 * (r // 4)


def leader_lanes(strand: Strand, mask: Array | None) -> Array:
    """The first thread of each warp that takes part, as a mask (b, t)."""
    lead = np.broadcast_to(strand.tid % 32 == 0, (strand.b, strand.t))
    return lead if mask is None else lead & np.broadcast_to(mask, (strand.b, strand.t))
