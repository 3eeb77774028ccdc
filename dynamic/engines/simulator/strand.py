"""Strands: groups of threads of many CTAs that stand at the same place of the program.

Why: numpy is fast only on long arrays, so the simulator runs all threads that are at one basic block together. A
strand is a grid of ``b`` rows and ``t`` columns: row i is a CTA, column j a thread of it (or, where the threads are
no such product, one thread a row and one column). A register is an array that broadcasts to (b, t): what is equal in
all threads has shape (1, 1), what depends on the CTA alone (b, 1), on the thread alone (1, t).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kcontract.dynamic.engines.simulator.memory import RANK_SHIFT
from kcontract.dynamic.engines.simulator.values import Array

if TYPE_CHECKING:
    from kcontract.dynamic.engines.simulator.machine import Machine

Registers = list[Array | None]


class Strand:
    """``cta`` (int64, (b, 1)) numbers CTAs within the batch, ``tid`` (int64, (1, t) or (b, 1)) threads within one.

    ``regs`` holds one array a register, None where it is not live. ``warps`` is t // 32 where the columns are whole
    warps in order, else 0.
    """

    __slots__ = ("b", "block", "cta", "machine", "regs", "special", "t", "tid", "warps")

    def __init__(self, machine: Machine, cta: Array, tid: Array, regs: Registers, block: int) -> None:
        self.machine, self.cta, self.tid, self.regs, self.block = machine, cta, tid, regs, block
        self.b, self.t = len(cta), tid.shape[1]
        self.special: dict[str, Array] = {}
        self.warps = 0
        if self.t % 32 == 0 and len(tid) == 1:
            row = tid[0].reshape(-1, 32)
            if (row[:, 0] % 32 == 0).all() and (row == row[:, :1] + _LANES).all():
                self.warps = self.t // 32

    def retire(self) -> None:
        """All its threads have left the kernel."""
        self.machine.retire(self)

    @property
    def lanes(self) -> int:
        return int(self.b * self.t)

    def ids(self) -> Array:
        """Numbers of all threads within the batch, int64 of shape (b, t)."""
        return self.cta * self.machine.threads + self.tid

    def symbol(self, name: str, offset: int) -> Array:
        """Address of a variable or parameter; of a shared variable in a cluster with the CTA's own rank in it."""
        grid = self.machine.grid
        address = grid.address(name, offset)
        if grid.cluster_size > 1 and name in grid.kernel.shared:
            address = address | self.machine.rank_of(self.cta) << RANK_SHIFT
        return address

    def full(self, x: Array) -> Array:
        """``x`` with one value a thread, shape (b, t); read-only where it had to be spread."""
        return x if x.shape == (self.b, self.t) else np.broadcast_to(x, (self.b, self.t))

    def select(self, mask: Array, block: int, live: Sequence[int]) -> Strand:
        """The threads where ``mask`` (bool, (b, t)) holds, with their live registers, at another block."""
        rows = mask.any(axis=1)
        columns = mask.any(axis=0)
        if int(rows.sum()) * int(columns.sum()) == int(mask.sum()):
            if len(self.tid) == 1:
                return self._product(np.flatnonzero(rows), np.flatnonzero(columns), block, live)
            row = np.flatnonzero(rows)
            regs: Registers = [None] * len(self.regs)
            for r in live:
                x = self.regs[r]
                regs[r] = x if x is None or len(x) == 1 else x[row]
            return Strand(self.machine, self.cta[row], self.tid[row], regs, block)
        where = np.flatnonzero(mask.reshape(-1))
        regs = [None] * len(self.regs)
        for r in live:
            x = self.regs[r]
            regs[r] = x if x is None or x.size == 1 else self.full(x).reshape(-1)[where][:, None]
        cta = np.broadcast_to(self.cta, mask.shape).reshape(-1)[where][:, None]
        tid = np.broadcast_to(self.tid, mask.shape).reshape(-1)[where][:, None]
        return Strand(self.machine, cta, tid, regs, block)

    def _product(self, row: Array, column: Array, block: int, live: Sequence[int]) -> Strand:
        regs: Registers = [None] * len(self.regs)
        all_rows, all_columns = len(row) == self.b, len(column) == self.t
        for r in live:
            x = self.regs[r]
            if x is not None:
                if len(x) > 1 and not all_rows:
                    x = x[row]
                if x.shape[1] > 1 and not all_columns:
                    x = np.ascontiguousarray(x[:, column])
            regs[r] = x
        return Strand(self.machine, self.cta[row], self.tid[:, column], regs, block)


_LANES = np.arange(32)


def merge(strands: list[Strand], live: Sequence[int]) -> Strand:
    """One strand of all threads of several that stand at the same block, in order of CTA and thread."""
    first = strands[0]
    if len(strands) == 1:
        return first
    machine, block, size = first.machine, first.block, len(first.regs)
    ids = np.concatenate([s.ids().reshape(-1) for s in strands])
    order = np.argsort(ids, kind="stable")
    ids = ids[order]
    cta, tid = ids // machine.threads, ids % machine.threads
    rows = np.flatnonzero(np.diff(cta, prepend=-1))
    width = len(ids) // len(rows)
    product = width * len(rows) == len(ids) and bool((tid.reshape(len(rows), width) == tid[:width]).all())
    product = product and bool((cta.reshape(len(rows), width) == cta[rows][:, None]).all())
    shape = (len(rows), width) if product else (len(ids), 1)
    regs: Registers = [None] * size
    for r in live:
        parts = [s.regs[r] for s in strands]
        regs[r] = _join(parts, strands, order, shape)
    if product:
        return Strand(machine, cta[rows][:, None], tid[None, :width], regs, block)
    return Strand(machine, cta[:, None], tid[:, None], regs, block)


def _join(parts: list[Array | None], strands: list[Strand], order: Array, shape: tuple[int, int]) -> Array | None:
    known = next((p for p in parts if p is not None), None)
    if known is None:
        return None
    if all(p is not None and p.size == 1 for p in parts):
        values = [p.tobytes() for p in parts if p is not None]
        if all(v == values[0] for v in values):
            return known
    zero = np.zeros((1, 1), known.dtype)
    flat = [s.full(zero if p is None else p).reshape(-1) for p, s in zip(parts, strands, strict=True)]
    return np.concatenate(flat)[order].reshape(shape)
