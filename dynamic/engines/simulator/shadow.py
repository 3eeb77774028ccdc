"""Shadow state of shared and Tensor Memory: who last wrote and read each grain, and when.

A grain is 16 bytes, a word, or a byte, as fine as the accesses to it are; in Tensor Memory 32 lanes of a column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kcontract.dynamic.engines.simulator.clocks import Clocks
from kcontract.dynamic.engines.simulator.faults import Fault
from kcontract.dynamic.engines.simulator.values import Array

#: Widths of a grain in bytes, and the bytes of a block, all of whose grains have one width.
_WIDTHS = (16, 4, 1)
_BLOCK = 128


class _Table:
    """State of ``grains`` a CTA: one more than who wrote last (0: nobody) and when, whether by an atomic, the latest
    read, and the latest read of each unit. All start at 0, so that memory nobody touches costs nothing."""

    def __init__(self, ctas: int, grains: int, units: int) -> None:
        self.grains = grains
        self.writer = np.zeros((ctas, grains), "i2")
        self.written = np.zeros((ctas, grains), "i4")
        self.atomic = np.zeros((ctas, grains), bool)
        self.last = np.zeros((ctas, grains), "i4")
        self.read = np.zeros((ctas, grains, units), "i4")


@dataclass
class _Piece:
    """Accesses to grains of one width: spans of ``group`` grains at ``flat`` (CTA and span in one number). ``plain``:
    the warps themselves access, not units of theirs."""

    table: _Table
    width: int
    group: int
    flat: Array
    cta: Array
    warp: Array
    actor: Array | int
    plain: bool

    def of(self, table: Array) -> Array:
        """A table's entries, (accesses, group, ...)."""
        return table.reshape(-1, self.group, *table.shape[2:]).take(self.flat, axis=0)

    def place(self, k: int, column: int) -> int:
        """First byte of a grain of access ``k``."""
        spans = self.table.grains // self.group
        return int((self.flat[k] % spans * self.group + column) * self.width)


class Shadow:
    """What happened to ``size`` bytes a CTA.

    A block starts with grains of 16 bytes; the first access that is smaller gives it grains of a word or a byte. With
    ``fixed``, a byte is one grain of anything.
    """

    def __init__(
        self, clocks: Clocks, ctas: int, size: int, name: str, numbers: Array, unit: str, *, fixed: bool = False
    ) -> None:
        self.clocks, self.name, self.numbers, self.unit = clocks, name, numbers, unit
        self.ctas, self.size = ctas, -(-size // _BLOCK) * _BLOCK
        self.units = clocks.tensor_core + 1
        self.level = np.full(self.size // _BLOCK, 2 if fixed else 0, "i1")
        self.tables: list[_Table | None] = [None, None, None]
        self.readers = np.zeros(self.units, bool)

    def _table(self, level: int) -> _Table:
        found = self.tables[level]
        if found is None:
            found = self.tables[level] = _Table(self.ctas, self.size // _WIDTHS[level], self.units)
        return found

    def _refine(self, blocks: Array, to: int) -> None:
        """Give blocks finer grains, which inherit the state of the coarse ones."""
        new = self._table(to)
        for level in range(to):
            chosen = blocks[self.level[blocks] == level]
            if not len(chosen) or self.tables[level] is None:
                continue
            old = self._table(level)
            for name in ("writer", "written", "atomic", "last", "read"):
                source, target = getattr(old, name), getattr(new, name)
                parts = source.reshape(self.ctas, len(self.level), -1, *source.shape[2:])[:, chosen]
                if not parts.any():
                    continue
                target.reshape(self.ctas, len(self.level), -1, *target.shape[2:])[:, chosen] = np.repeat(
                    parts, _WIDTHS[level] // _WIDTHS[to], axis=2
                )
        self.level[blocks] = to

    def _pieces(self, cta: Array, address: Array, size: int, warp: Array, actor: Array | int) -> Iterator[_Piece]:
        """Accesses of ``size`` bytes (aligned to it), by width of grain."""
        plain = actor is warp
        if size > 16:
            step = np.arange(0, size, 16)
            address = (address[:, None] + step).reshape(-1)
            cta, warp = np.repeat(cta, len(step)), np.repeat(warp, len(step))
            actor = np.repeat(actor, len(step)) if isinstance(actor, np.ndarray) else actor
            size = 16
        need = 0 if size == 16 else 1 if size % 4 == 0 else 2
        blocks = address // _BLOCK
        levels = self.level.take(blocks)
        if need and (levels < need).any():
            self._refine(np.unique(blocks[levels < need]), need)
            levels = self.level.take(blocks)
        low, high = int(levels.min(initial=9)), int(levels.max(initial=0))
        for level in range(low, high + 1):
            width = _WIDTHS[level]
            group = max(size // width, 1)
            table = self._table(level)
            if low == high:
                flat = cta * (table.grains // group) + address // (width * group)
                yield _Piece(table, width, group, flat, cta, warp, actor, plain)
            elif (keep := levels == level).any():
                some = actor[keep] if isinstance(actor, np.ndarray) else actor
                flat = cta[keep] * (table.grains // group) + address[keep] // (width * group)
                yield _Piece(table, width, group, flat, cta[keep], warp[keep], some, plain)

    def look(self, cta: Array, address: Array) -> tuple[Array, Array]:
        """Who wrote the grains at some addresses last, and when."""
        writer, written = np.empty(len(address), "i2"), np.empty(len(address), "i4")
        levels = self.level.take(address // _BLOCK)
        for level in np.unique(levels).tolist():
            keep, table = levels == level, self._table(level)
            index = cta[keep], address[keep] // _WIDTHS[level]
            writer[keep], written[keep] = table.writer[index] - 1, table.written[index]
        return writer, written

    def reads(self, cta: Array, address: Array, size: int, warp: Array, actor: Array | int, *, proxy: bool) -> None:
        """Check and note reads issued by warps; ``actor`` does the reading, through the async proxy where ``proxy``."""
        for p in self._pieces(cta, address, size, warp, actor):
            self._reads(p, proxy)

    def _reads(self, p: _Piece, proxy: bool) -> None:
        clocks = self.clocks
        writer, time = p.of(p.table.writer) - 1, p.of(p.table.written)
        if (writer < 0).any():
            self._fail("uninitialised-read", p, writer < 0, "reads what nobody has written")
        start = ((p.cta * clocks.warps + p.warp) * clocks.actors)[:, None]
        late = clocks.clock.take(start + writer) < time
        if late.any():
            doer = p.actor[:, None] if isinstance(p.actor, np.ndarray) else p.actor
            late &= writer != doer
            if late.any():
                self._conflict(p, late, writer, "reads")
        if proxy:
            hidden = writer < clocks.warps
            if hidden.any():
                hidden &= clocks.proxied.take(start + writer) < time
            if hidden.any():
                why = "has a unit of the async proxy read what ordinary stores have written, without fence.proxy.async"
                self._fail("missing-proxy-fence", p, hidden, why)
        own = clocks.clock[p.cta, p.warp, p.warp] if p.plain else np.full(1, clocks.now, "i4")
        read = p.table.read.reshape(-1, p.group, self.units)
        read[p.flat, :, p.actor] = own[:, None]
        latest = own if int(own.min()) == int(own.max()) else own.max(keepdims=True)
        p.table.last.reshape(-1, p.group)[p.flat] = np.maximum(p.of(p.table.last), latest[:, None])
        self.readers[p.actor] = True

    def writes(
        self, cta: Array, address: Array, size: int, warp: Array, actor: Array | int, *, atomic: bool = False
    ) -> None:
        """Check and note writes issued by warps and done by ``actor``, as ``reads`` does."""
        for p in self._pieces(cta, address, size, warp, actor):
            self._writes(p, atomic)

    def _writes(self, p: _Piece, atomic: bool) -> None:
        clocks = self.clocks
        writer = p.of(p.table.writer) - 1
        doer = p.actor[:, None] if isinstance(p.actor, np.ndarray) else p.actor
        start = ((p.cta * clocks.warps + p.warp) * clocks.actors)[:, None]
        late = (clocks.clock.take(start + np.maximum(writer, 0)) < p.of(p.table.written)) & (writer >= 0)
        if late.any():
            late &= writer != doer
            if atomic:
                late &= ~p.of(p.table.atomic)
            if late.any():
                self._conflict(p, late, writer, "writes")
        active = np.flatnonzero(self.readers)
        if len(active):
            known = clocks.clock[:, :, active].min(axis=2)[p.cta, p.warp]
            behind = (p.of(p.table.last) > known[:, None]).any(axis=1)
            if behind.any():
                self._behind(p, np.flatnonzero(behind), atomic)
        p.table.writer.reshape(-1, p.group)[p.flat] = doer + 1
        own = clocks.clock[p.cta, p.warp, p.warp][:, None] if p.plain else clocks.now
        p.table.written.reshape(-1, p.group)[p.flat] = own
        p.table.atomic.reshape(-1, p.group)[p.flat] = atomic

    def _behind(self, p: _Piece, some: Array, atomic: bool) -> None:
        """Look closely at writes that some unit's read may not be ordered before."""
        read = p.table.read.reshape(-1, p.group, self.units).take(p.flat[some], axis=0)
        warp, every = p.warp[some], np.arange(len(some))
        behind = read > self.clocks.clock[p.cta[some], warp, : self.units][:, None, :]
        mine = np.broadcast_to(p.actor, p.warp.shape)[some]
        unit = mine < self.units  # a unit's own reads come before its writes
        behind[every, :, warp] = False
        behind[every[unit], :, mine[unit]] = False
        if atomic:
            behind &= ~p.of(p.table.atomic)[some][:, :, None]
        if behind.any():
            k, column, reader = (int(x) for x in np.argwhere(behind)[0])
            self._race(p, int(some[k]), column, reader, "writes", "read")

    def _place(self, p: _Piece, k: int, column: int) -> str:
        return f"{self.name} {self.unit.format(p.place(k, column))}"

    def _fail(self, kind: str, p: _Piece, bad: Array, what: str) -> None:
        k, column = (int(x) for x in np.argwhere(bad)[0])
        number = int(self.numbers[p.cta[k]])
        raise Fault(kind, f"warp {int(p.warp[k])} of CTA {number} {what}: {self._place(p, k, column)}")

    def _conflict(self, p: _Piece, bad: Array, writer: Array, how: str) -> None:
        k, column = (int(x) for x in np.argwhere(bad)[0])
        self._race(p, k, column, int(writer[k, column]), how, "wrote")

    def _race(self, p: _Piece, k: int, column: int, other: int, how: str, did: str) -> None:
        place, number, warp = self._place(p, k, column), int(self.numbers[p.cta[k]]), int(p.warp[k])
        if other >= self.clocks.warps:
            raise Fault(
                "missing-wait",
                f"warp {warp} of CTA {number} {how} {place}, which {self.clocks.describe(other)} {did} at that time: "
                f"nobody waited for that",
            )
        raise Fault(
            "race",
            f"warp {warp} of CTA {number} {how} {place}, which {self.clocks.describe(other)} "
            f"{did}, without a barrier between them",
        )


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
        self.pending: dict[str, list[tuple[Array, Array, int]]] = {}
        self.written: set[str] = set()
        self.released = np.zeros(total, "i8")
        self.acquired = np.zeros(total, "i8")
        self.now = 0

    def synchronise(self, cta: Array) -> None:
        """An acquire and release of these CTAs."""
        self.now += 1
        self.released[cta] = self.now
        self.acquired[cta] = self.now

    def _spread(self, offset: Array, cta: Array, size: int) -> tuple[Array, Array]:
        """Grains and CTAs, one entry a grain, of accesses of ``size`` bytes."""
        cta = np.broadcast_to(cta, offset.shape).reshape(-1)
        grain = offset.reshape(-1) // self.width
        count = size // self.width
        if count > 1:
            grain = (grain[:, None] + np.arange(count)).reshape(-1)
            cta = np.repeat(cta, count)
        return grain, cta

    def _writers(self, name: str, size: int) -> tuple[Array, Array, Array]:
        """One more than the CTA that wrote each grain last (0: none), when, and whether by an atomic."""
        if name not in self.writers:
            count = size // self.width + 2
            self.writers[name], self.times[name] = np.zeros(count, "i4"), np.zeros(count, "i8")
            self.atomics[name] = np.zeros(count, bool)
        return self.writers[name], self.times[name], self.atomics[name]

    def _settle(self, name: str, size: int) -> None:
        """Enter the reads of a buffer that only its first write asks for: a CTA plus one, or -1 for several."""
        waiting = self.pending.pop(name, ())
        if waiting and name not in self.readers:
            self.readers[name] = np.zeros(size // self.width + 2, "i4")
        for offset, cta, bytes_ in waiting:
            grain, who = self._spread(offset, cta, bytes_)
            before = self.readers[name][grain]
            self.readers[name][grain] = np.where((before != 0) & (before != who + 1), -1, who + 1)

    def access(self, name: str, size: int, offset: Array, cta: Array, each: int, how: str) -> None:
        """Accesses of ``each`` bytes by CTAs (linear numbers, broadcast to ``offset``) at offsets in one buffer."""
        if how == "read":
            waiting = self.pending.setdefault(name, [])
            waiting.append((offset, cta, each))
            if sum(o.size for o, _, _ in waiting[-64:]) > _MOST_PENDING or len(waiting) > 256:
                self._settle(name, size)
            if name not in self.written:
                return
        grain, cta = self._spread(offset, cta, each)
        writers, times, atomics = self._writers(name, size)
        if how != "read":
            self.written.add(name)
            self._settle(name, size)
        self.now += 1
        before = writers[grain]
        if before.any():
            writer = before - 1
            other = (writer >= 0) & (writer != cta)
            if how == "atomic":
                other &= ~atomics[grain]
            if other.any():
                safe = (self.released[writer] >= times[grain]) & (self.acquired[cta] >= times[grain])
                bad = other & ~safe
                if bad.any():
                    k = int(np.flatnonzero(bad)[0])
                    self._fail(name, int(grain[k]), int(cta[k]), int(writer[k]), how, "wrote")
        if how == "read":
            return
        readers = self.readers.get(name)
        if readers is not None and how != "atomic":
            reader = readers[grain]
            shared = (reader != 0) & (reader != cta + 1)
            if shared.any() and not (self.acquired[cta[shared]] > 0).all():
                k = int(np.flatnonzero(shared)[0])
                self._fail(name, int(grain[k]), int(cta[k]), int(reader[k]) - 1, how, "read")
        writers[grain], times[grain], atomics[grain] = cta + 1, self.now, how == "atomic"

    def _fail(self, name: str, grain: int, cta: int, other: int, how: str, did: str) -> None:
        verb = {"read": "reads", "write": "writes", "atomic": "updates"}[how]
        whom = f"CTA {other} {did}" if other >= 0 else "several other CTAs read"
        raise Fault(
            "race",
            f"CTA {cta} {verb} byte {grain * self.width} of {name}, which {whom}, without synchronisation between them",
        )
