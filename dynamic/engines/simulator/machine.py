"""A batch of CTAs in execution: its memories, its barriers, and the scheduler of its strands.

The lowest block with a strand ready runs first, all strands at one block together; that reconverges what diverged
wherever blocks are laid out in order. A strand that goes back to poll (an mbarrier, a lock) rests until some memory
has changed. When nothing can run and something rests or is parked, ``run`` says so; the launcher decides whether more
CTAs can help or the program is deadlocked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from kcontract.dynamic.engines.simulator import memory
from kcontract.dynamic.engines.simulator.faults import Fault, Unsupported
from kcontract.dynamic.engines.simulator.strand import Registers, Strand, merge
from kcontract.dynamic.engines.simulator.values import Array
from kcontract.dynamic.engines.simulator.watch import Watch

if TYPE_CHECKING:
    from kcontract.dynamic.engines.simulator.asynchronous import Asynchronous
    from kcontract.dynamic.engines.simulator.checked import Checker
    from kcontract.dynamic.engines.simulator.launch import Grid
    from kcontract.dynamic.engines.simulator.tensor_memory import TensorMemory


_BARRIERS = 16
#: Rounds in which threads only ask again, and no memory changes, before they count as stuck.
_PATIENCE = 10_000


class Machine:
    """``ctas`` are linear CTA numbers of the grid, whole clusters of it."""

    def __init__(self, grid: Grid, ctas: Array) -> None:
        self.grid, self.kernel, self.ctas = grid, grid.kernel, ctas
        self.threads = grid.threads
        self.memory = grid.memory
        count = len(ctas)
        self.shared = memory.Rows(count, grid.shared_bytes, "shared")
        self.local = memory.Rows(count * self.threads, grid.kernel.local_bytes, "local")
        self.asynchronous: Asynchronous = grid.make_asynchronous(self)
        self.tensor: TensorMemory | None = grid.make_tensor_memory(self)
        self.checker: Checker | None = grid.make_checker(self)
        self.version = 0
        self.asked = self.looked = -1
        self.idle = 0
        self.ready: dict[int, list[Strand]] = {}
        self.resting: list[tuple[int, Strand]] = []
        self.spinning: set[Strand] = set()
        self.asks: list[tuple[str, int]] | None = None
        self.parked: list[list[Strand]] = [[] for _ in range(_BARRIERS)]
        self.arrived = np.zeros((_BARRIERS, count), "i8")
        self.needed = np.zeros((_BARRIERS, count), "i8")
        self.cluster_arrived = np.zeros(count, "i8")
        self.cluster_parked: list[Strand] = []
        self.exited = np.zeros(count, "i8")
        self.visits = [0] * len(grid.kernel.code)
        self.runs = [0] * len(grid.kernel.code)
        self.steps = 0
        self.watch = Watch(self)
        self._start()

    def _start(self) -> None:
        kernel = self.kernel
        regs: Registers = [None] * len(kernel.widths)
        for r in kernel.live[0]:
            regs[r] = np.zeros((1, 1), kernel.widths[r])
        cta = np.arange(len(self.ctas), dtype="i8")[:, None]
        tid = np.arange(self.threads, dtype="i8")[None, :]
        self.push(Strand(self, cta, tid, regs, 0))

    # ---- scheduling

    def push(self, strand: Strand) -> None:
        self.ready.setdefault(strand.block, []).append(strand)

    def run(self) -> bool:
        """Run until all threads have left (True) or nothing can go on (False)."""
        code, visits, runs, ready, watch = self.kernel.code, self.visits, self.runs, self.ready, self.watch
        while True:
            if not ready:
                woken = self._wake()
                if not woken:
                    return not self.resting and not any(self.parked) and not self.cluster_parked
                for s in woken:
                    self.push(s)
            block = min(ready)
            strand = merge(ready.pop(block), self.kernel.live[block])
            while True:
                if self.steps >= watch.due and watch.spins(strand, block):
                    strand.block = block
                    self.spinning.add(strand)
                    self.resting.append((self.version, strand))
                    break
                visits[block] += strand.b * strand.t
                runs[block] += 1
                self.steps += 1
                strand.block = block
                follow = code[block](strand)
                if follow is None:
                    break
                block = follow
                if ready and min(ready) <= block:
                    strand.block = block
                    self.push(strand)
                    break

    def _wake(self) -> list[Strand]:
        """Nobody can run: finish the oldest asynchronous work, then take who rests and may find something new."""
        if (self.resting or any(self.parked) or self.cluster_parked) and all(
            v in (self.version, -1) for v, _ in self.resting
        ):
            self.asynchronous.progress()
        self.idle = self.idle + 1 if self.version == self.looked else 0
        self.looked = self.version
        if self.resting and self.asked != self.version:
            self.asked = self.version
            woken, self.resting = [s for _, s in self.resting], []
            self.spinning.clear()
            return woken
        ask = self.idle < _PATIENCE
        woken = [s for v, s in self.resting if (ask if v == -1 else v != self.version)]
        self.resting = [(v, s) for v, s in self.resting if not (ask if v == -1 else v != self.version)]
        self.spinning.difference_update(woken)
        return woken

    def rest(self, strand: Strand, target: int, tight: bool) -> None:
        """A jump back in a loop that polls (see ``poll``): others that can run go first."""
        strand.block = target
        self.resting.append((self.version if tight else -1, strand))

    def branch(self, strand: Strand, mask: Array, taken: int, fall: int) -> int | None:
        """Where a strand goes on; None where it was split in two."""
        if mask.size == 1:
            return taken if mask[0, 0] else fall
        count = int(np.count_nonzero(mask))
        if count == mask.size:
            return taken
        if count == 0:
            return fall
        self._split(strand, mask, taken, fall)
        return None

    def _split(self, strand: Strand, mask: Array, taken: int, fall: int) -> None:
        full = strand.full(mask)
        live = self.kernel.live
        self.push(strand.select(full, taken, live[taken]))
        self.push(strand.select(~full, fall, live[fall]))

    def poll(self, strand: Strand, mask: Array, taken: int, fall: int, tight: bool) -> int | None:
        """A branch back to ask again. Those that take it rest: in a ``tight`` loop until memory changes, else until
        nobody else can run."""
        full = strand.full(mask)
        live = self.kernel.live
        version = self.version if tight else -1
        if full.all():
            strand.block = taken
            self.resting.append((version, strand))
            return None
        if not full.any():
            return fall
        self.resting.append((version, strand.select(full, taken, live[taken])))
        self.push(strand.select(~full, fall, live[fall]))
        return None

    def branch_indexed(self, strand: Strand, index: Array, blocks: tuple[int, ...]) -> int | None:
        values = np.unique(index)
        if values[-1] >= len(blocks):
            raise Fault("branch-out-of-table", f"brx.idx with index {int(values[-1])} of a table of {len(blocks)}")
        if len(values) == 1:
            return blocks[int(values[0])]
        full = strand.full(index)
        for v in values:
            self.push(strand.select(full == v, blocks[int(v)], self.kernel.live[blocks[int(v)]]))
        return None

    def leave(self, strand: Strand, mask: Array, fall: int) -> int | None:
        full = strand.full(mask)
        if not full.any():
            return fall
        if full.all():
            self.retire(strand)
            return None
        self.retire(strand.select(full, fall, ()))
        self.push(strand.select(~full, fall, self.kernel.live[fall]))
        return None

    def retire(self, strand: Strand) -> None:
        np.add.at(self.exited, strand.cta[:, 0], strand.t)
        for number in range(_BARRIERS):
            if self.parked[number]:
                self._release(number)
        if self.cluster_parked:
            self._release_clusters()

    # ---- barriers

    def barrier(self, strand: Strand, number: Array, count: Array | None, follow: int, wait: bool) -> int | None:
        live = self.kernel.live[follow]
        if number.size > 1 and (number != number.flat[0]).any():
            full = strand.full(number)
            for v in np.unique(full):
                part = strand.select(full == v, follow, live)
                self._arrive(part, int(v), count, wait)
            return None
        return self._arrive(strand, int(number.flat[0]), count, wait, follow)

    def _arrive(self, strand: Strand, number: int, count: Array | None, wait: bool, follow: int = -1) -> int | None:
        if number >= _BARRIERS:
            raise Fault("bad-barrier", f"barrier {number} does not exist; there are {_BARRIERS}")
        rows = strand.cta[:, 0]
        if follow >= 0:
            strand.block = follow
        if count is not None and (count != count.flat[0]).any():
            raise Unsupported("one barrier with several thread counts at once is not simulated")
        needed = 0 if count is None else int(count.flat[0])
        if needed % 32:
            raise Fault("bad-barrier", f"barrier {number} waits for {needed} threads, which is no multiple of 32")
        if self.checker is not None:
            self.checker.arrived(strand, number)
        together = len(rows) == len(self.ctas) and strand.t == (needed or self.threads) and strand.warps
        if together and (number == 0 or needed) and not self.arrived[number].any():
            self._released([strand], number, rows)
            if follow >= 0:
                return follow
            self.push(strand)
            return None
        np.add.at(self.arrived[number], rows, strand.t)
        self.needed[number, rows] = needed
        if wait:
            self.parked[number].append(strand)
        self._release(number)
        if not wait:
            if follow >= 0:
                return follow
            self.push(strand)
        return None

    def _release(self, number: int) -> None:
        needed = np.where(self.needed[number] > 0, self.needed[number], self.threads - self.exited)
        done = (self.arrived[number] > 0) & (self.arrived[number] >= needed)
        if not done.any():
            return
        over = done & (self.arrived[number] > needed)
        if over.any():
            raise Fault(
                "bad-barrier",
                f"barrier {number} of {int(needed[over][0])} threads was reached by "
                f"{int(self.arrived[number][over][0])}",
            )
        self.arrived[number][done] = 0
        keep: list[Strand] = []
        freed: list[Strand] = []
        for s in self.parked[number]:
            mask = done[s.cta]
            if mask.all():
                freed.append(s)
            elif mask.any():
                live = self.kernel.live[s.block]
                freed.append(s.select(s.full(mask), s.block, live))
                keep.append(s.select(~s.full(mask), s.block, live))
            else:
                keep.append(s)
        self.parked[number] = keep
        self._released(freed, number, np.flatnonzero(done))
        for s in freed:
            self.push(s)

    def _released(self, strands: list[Strand], number: int, done: Array) -> None:
        if self.checker is not None:
            self.checker.released(strands, number, done)

    def cluster_barrier(self, strand: Strand, follow: int, wait: bool) -> int | None:
        if not wait:
            np.add.at(self.cluster_arrived, self.cluster_base(strand.cta)[:, 0], strand.t)
            self._release_clusters()
            return follow
        strand.block = follow
        self.cluster_parked.append(strand)
        self._release_clusters()
        return None

    def _release_clusters(self) -> None:
        size = self.grid.cluster_size
        bases = np.arange(0, len(self.ctas), size)
        exited = self.exited.reshape(-1, size).sum(axis=1)
        arrived = self.cluster_arrived[bases]
        waiting = np.zeros(len(self.ctas), "i8")
        for s in self.cluster_parked:
            np.add.at(waiting, s.cta[:, 0], s.t)
        total = waiting.reshape(-1, size).sum(axis=1)
        need = size * self.threads - exited
        done = np.repeat((arrived >= need) & (total >= need) & (need > 0), size)
        if not done.any():
            return
        self.cluster_arrived[bases[done[bases]]] -= need[done[bases]]
        keep: list[Strand] = []
        for s in self.cluster_parked:
            mask = s.full(done[s.cta])
            live = self.kernel.live[s.block]
            if mask.any():
                self.push(s.select(mask, s.block, live))
            if not mask.all():
                keep.append(s.select(~mask, s.block, live))
        self.cluster_parked = keep

    # ---- what instructions ask for

    def asking(self, what: str) -> None:
        """A thread that waits asks for something (see ``waiting``)."""
        index = self.kernel.running()
        if self.asks is not None and index is not None:
            self.asks.append((what, index))

    def special(self, strand: Strand, name: str) -> Array:
        found = strand.special.get(name)
        if found is None:
            found = self.grid.special(self, strand, name)
            if "clock" not in name and "timer" not in name:  # time passes
                strand.special[name] = found
        return found

    def load_param(self, address: Array, dtype: str, count: int) -> list[Array]:
        return self.grid.parameter_bytes(address, dtype, count)

    def order(self, count: int) -> Array | None:
        """The order of ``count`` simultaneous atomics: None is thread order."""
        return None if self.grid.random is None else self.grid.random.permutation(count)

    def rank_of(self, row: Array) -> Array:
        return row % self.grid.cluster_size

    def cluster_base(self, row: Array) -> Array:
        return cast(Array, row - row % self.grid.cluster_size)

    def map_address(self, address: Array, rank: Array, plain: bool) -> Array:
        """`mapa`: the address of the same variable in another CTA of the cluster."""
        low = address & address.dtype.type((1 << memory.RANK_SHIFT) - 1)
        placed = low | rank.astype(address.dtype) << address.dtype.type(memory.RANK_SHIFT)
        return cast(Array, placed if plain else placed | address.dtype.type(memory.SHARED_WINDOW))

    def row_at(self, row: Array, rank: Array) -> Array:
        """Row of the CTA of some rank in a CTA's cluster."""
        if int(rank.max()) >= self.grid.cluster_size:
            raise Fault(
                "out-of-bounds",
                f"a shared address names CTA {int(rank.max())} of a cluster of {self.grid.cluster_size}",
            )
        return cast(Array, self.cluster_base(row) + rank)

    def address_rank(self, address: Array) -> Array:
        rank = (address >> address.dtype.type(memory.RANK_SHIFT)) & address.dtype.type(255)
        return cast(Array, rank.astype("u4"))

    def fence(self, strand: Strand, words: tuple[str, ...], mask: Array | None) -> None:
        if self.checker is not None:
            self.checker.fence(strand, words, mask)

    def tensor_wait(self, strand: Strand, what: str) -> None:
        """`tcgen05.wait::ld` and `::st`."""
        if self.checker is not None:
            self.checker.tensor_wait(strand, what)

    def tensor_fence(self, strand: Strand, what: str) -> None:
        """`tcgen05.fence` orders what other instructions order anyway here."""

    def finish(self) -> None:
        """All threads have left; what is still in flight ends."""
        self.asynchronous.finish()
        if self.checker is not None:
            self.checker.finish()

    def set_registers(self, strand: Strand, direction: str, count: int) -> None:
        """`setmaxnreg` changes no value."""
        if self.checker is not None:
            self.checker.set_registers(strand, direction, count)

    def trap(self, strand: Strand, mask: Array | None) -> None:
        if mask is None or mask.any():
            raise Fault("trap", "the program executed a trap instruction")

    def call(
        self, strand: Strand, name: str, arguments: list[tuple[int, int]], results: list[tuple[int, int]],
        mask: Array | None,
    ) -> None:  # fmt: skip
        from kcontract.dynamic.engines.simulator.printing import call

        call(self, strand, name, arguments, results, mask)
