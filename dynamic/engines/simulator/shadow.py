"""Shadow state of shared and Tensor Memory: who last wrote and read each grain, and when.

A grain is a word, or a byte where the kernel accesses single bytes or halves; in Tensor Memory 32 lanes of a column.
"""

from __future__ import annotations

import numpy as np

from kcontract.dynamic.engines.simulator.clocks import Clocks
from kcontract.dynamic.engines.simulator.faults import Fault
from kcontract.dynamic.engines.simulator.values import Array


class Shadow:
    """``grains`` a CTA; writer -1 is nobody: the grain is uninitialised."""

    def __init__(self, clocks: Clocks, ctas: int, grains: int, name: str, numbers: Array, unit: str) -> None:
        self.clocks, self.name, self.numbers, self.unit = clocks, name, numbers, unit
        self.writer = np.full((ctas, grains), -1, "i2")
        self.written = np.zeros((ctas, grains), "i4")
        self.atomic = np.zeros((ctas, grains), bool)
        self.read = np.zeros((ctas, grains, clocks.tensor_core + 1), "i4")

    def rows(self, table: Array, group: int) -> Array:
        """A table as (CTAs, groups, grains of a group, ...): one index reaches a whole access."""
        return table.reshape(len(table), -1, group, *table.shape[2:])

    def reads(self, cta: Array, index: Array, warp: Array, actor: Array | int, group: int, *, proxy: bool) -> None:
        """Check and note reads issued by warps, each of the ``group`` grains from index * group on; ``actor`` does the
        reading, through the async proxy where ``proxy``."""
        writer, time = self.rows(self.writer, group)[cta, index], self.rows(self.written, group)[cta, index]
        grain = index[:, None] * group + np.arange(group)
        if (writer < 0).any():
            self._fail("uninitialised-read", cta, grain, writer < 0, warp, "reads what nobody has written")
        known = self.clocks.clock[cta[:, None], warp[:, None], writer]
        doer = actor[:, None] if isinstance(actor, np.ndarray) else actor
        late = (known < time) & (writer != doer)
        if late.any():
            self._conflict(cta, grain, late, warp, writer, "reads")
        if proxy:
            hidden = writer < self.clocks.warps
            hidden &= self.clocks.proxied[cta[:, None], warp[:, None], writer] < time
            if hidden.any():
                why = "has a unit of the async proxy read what ordinary stores have written, without fence.proxy.async"
                self._fail("missing-proxy-fence", cta, grain, hidden, warp, why)
        own = actor == warp if isinstance(actor, np.ndarray) else np.zeros(len(warp), bool)
        now = np.where(own, self.clocks.clock[cta, warp, warp], self.clocks.now)
        self.rows(self.read, group)[cta, index, :, actor] = now[:, None]

    def writes(
        self, cta: Array, index: Array, warp: Array, actor: Array | int, group: int, *, atomic: bool = False
    ) -> None:
        """Check and note writes issued by warps and done by ``actor``, as ``reads`` does."""
        writer, time = self.rows(self.writer, group)[cta, index], self.rows(self.written, group)[cta, index]
        were_atomic = self.rows(self.atomic, group)[cta, index]
        grain = index[:, None] * group + np.arange(group)
        known = self.clocks.clock[cta[:, None], warp[:, None], writer]
        doer = actor[:, None] if isinstance(actor, np.ndarray) else actor
        late = (known < time) & (writer != doer) & (writer >= 0)
        if atomic:
            late &= ~were_atomic
        if late.any():
            self._conflict(cta, grain, late, warp, writer, "writes")
        units = self.clocks.tensor_core + 1
        behind = self.rows(self.read, group)[cta, index] > self.clocks.clock[cta, warp, :units][:, None, :]
        if behind.any():
            every = np.arange(len(warp))
            mine = np.broadcast_to(actor, warp.shape)
            unit = mine < units  # a unit's own reads come before its writes
            behind[every, :, warp] = False
            behind[every[unit], :, mine[unit]] = False
            if atomic:
                behind &= ~were_atomic[:, :, None]
            if behind.any():
                k, column, reader = (int(x) for x in np.argwhere(behind)[0])
                self._race(int(cta[k]), int(grain[k, column]), int(warp[k]), reader, "writes", "reads")
        own = self.clocks.clock[cta, warp, warp][:, None] if _is_warp(actor, self.clocks) else self.clocks.now
        self.rows(self.writer, group)[cta, index] = doer
        self.rows(self.written, group)[cta, index] = own
        self.rows(self.atomic, group)[cta, index] = atomic

    def _place(self, grain: int) -> str:
        return f"{self.name} {self.unit.format(grain)}"

    def _fail(self, kind: str, cta: Array, grain: Array, bad: Array, warp: Array, what: str) -> None:
        k, column = (int(x) for x in np.argwhere(bad)[0])
        number = int(self.numbers[cta[k]])
        raise Fault(kind, f"warp {int(warp[k])} of CTA {number} {what}: {self._place(int(grain[k, column]))}")

    def _conflict(self, cta: Array, grain: Array, bad: Array, warp: Array, writer: Array, how: str) -> None:
        k, column = (int(x) for x in np.argwhere(bad)[0])
        self._race(int(cta[k]), int(grain[k, column]), int(warp[k]), int(writer[k, column]), how, "writes")

    def _race(self, cta: int, grain: int, warp: int, other: int, how: str, did: str) -> None:
        place, number = self._place(int(grain)), int(self.numbers[int(cta)])
        if other >= self.clocks.warps:
            raise Fault(
                "missing-wait",
                f"warp {warp} of CTA {number} {how} {place} while {self.clocks.describe(other)} {did} it: nobody "
                f"waited for that",
            )
        raise Fault(
            "race",
            f"warp {warp} of CTA {number} {how} {place}, which {self.clocks.describe(other)} {did} without a "
            f"barrier between",
        )


def _is_warp(actor: Array | int, clocks: Clocks) -> bool:
    return bool((np.asarray(actor) < clocks.warps).all())


#: Reads of one buffer that may wait to be entered, in grains.
_MOST_PENDING = 1 << 22


class GlobalShadow:
    """Races between CTAs in global memory, a grain of ``width`` bytes.

    A write of CTA a is ordered before an access of CTA b once a has released (an atomic or fence with release) after it
    and b has acquired after that; which address carried the synchronisation is not tracked.
    """

    def __init__(self, total: int, width: int) -> None:
        self.width = width
        self.writers: dict[str, Array] = {}
        self.times: dict[str, Array] = {}
        self.atomics: dict[str, Array] = {}
        self.readers: dict[str, Array] = {}
        self.pending: dict[str, list[tuple[Array, Array]]] = {}
        self.written: set[str] = set()
        self.released = np.zeros(total, "i8")
        self.acquired = np.zeros(total, "i8")
        self.now = 0

    def synchronise(self, cta: Array) -> None:
        """An acquire and release of these CTAs."""
        self.now += 1
        self.released[cta] = self.now
        self.acquired[cta] = self.now

    def _tables(self, name: str, size: int) -> tuple[Array, Array, Array, Array]:
        if name not in self.writers:
            count = size // self.width + 2
            self.writers[name], self.times[name] = np.full(count, -1, "i4"), np.zeros(count, "i8")
            self.atomics[name], self.readers[name] = np.zeros(count, bool), np.full(count, -1, "i4")
        return self.writers[name], self.times[name], self.atomics[name], self.readers[name]

    def _settle(self, name: str, readers: Array) -> None:
        """Enter the reads of a buffer that only its first write asks for."""
        for grain, cta in self.pending.pop(name, ()):
            before = readers[grain]
            readers[grain] = np.where((before >= 0) & (before != cta), -2, cta)

    def access(self, name: str, size: int, grain: Array, cta: Array, how: str) -> None:
        """Accesses of CTAs (linear numbers) to grains of one buffer."""
        if how == "read":
            waiting = self.pending.setdefault(name, [])
            waiting.append((grain, cta))
            if sum(len(g) for g, _ in waiting[-64:]) > _MOST_PENDING or len(waiting) > 256:
                self._settle(name, self._tables(name, size)[3])
            if name not in self.written:
                return
        writers, times, atomics, readers = self._tables(name, size)
        if how != "read":
            self.written.add(name)
            self._settle(name, readers)
        self.now += 1
        writer = writers[grain]
        other = (writer >= 0) & (writer != cta)
        if how == "atomic":
            other &= ~atomics[grain]
        if other.any():
            safe = (self.released[writer] >= times[grain]) & (self.acquired[cta] >= times[grain])
            bad = other & ~safe
            if bad.any():
                k = int(np.flatnonzero(bad)[0])
                self._fail(name, int(grain[k]), int(cta[k]), int(writer[k]), how, "writes")
        if how == "read":
            return
        reader = readers[grain]
        shared = ((reader >= 0) & (reader != cta) | (reader == -2)) & (how != "atomic")
        if shared.any() and not (self.acquired[cta[shared]] > 0).all():
            k = int(np.flatnonzero(shared)[0])
            self._fail(name, int(grain[k]), int(cta[k]), int(reader[k]), how, "reads")
        writers[grain], times[grain], atomics[grain] = cta, self.now, how == "atomic"

    def _fail(self, name: str, grain: int, cta: int, other: int, how: str, did: str) -> None:
        verb = {"read": "reads", "write": "writes", "atomic": "updates"}[how]
        whom = f"CTA {other}" if other >= 0 else "several CTAs"
        raise Fault(
            "race",
            f"CTA {cta} {verb} byte {grain * self.width} of {name}, which {whom} {did} without synchronisation between",
        )
