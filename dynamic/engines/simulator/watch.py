"""Finds loops that never end: a strand that comes back with nothing changed, and a batch that takes too long.

Every few thousand blocks the state of a batch is kept; if the strand that ran then is back at that block soon, and all
is as it was, it will do so for ever. It then rests until somebody else changes memory.
A loop that counts on is given up by a fixed estimate of its time, so that a run ends alike on any machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kcontract.dynamic.engines.simulator.faults import Fault
from kcontract.dynamic.engines.simulator.options import VARIABLE
from kcontract.dynamic.engines.simulator.strand import Strand
from kcontract.dynamic.engines.simulator.values import Array

if TYPE_CHECKING:
    from kcontract.dynamic.engines.simulator.machine import Machine

#: Blocks from one look to the next, and blocks within which a strand may come back.
_EVERY, _WITHIN = 4096, 512
#: Seconds that an instruction takes: each time it is run, and for each thread that executes it.
_RUN, _THREAD = 1.5e-6, 2e-9
#: How many times longer than its patience a batch may run that changes memory.
_AT_ALL = 30


@dataclass(frozen=True)
class _Seen:
    """A strand at the start of a block, its registers, the version of memory, all else that the scheduler knows, and
    the step to wait for."""

    strand: Strand
    block: int
    registers: list[Array | None]
    version: int
    others: list[object]
    until: int


class Watch:
    """Watches one batch. ``due`` is the step at which to ask again; while ``careful`` holds, a store that changes
    nothing counts as none: for the time of a look, and for good once a strand has spun."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.due = _EVERY
        self.careful = self.spun = False
        self.seen: _Seen | None = None
        self.version, self.since = 0, 0.0

    def spins(self, strand: Strand, block: int) -> bool:
        """Whether a strand that is about to run a block was there with nothing different."""
        machine, seen = self.machine, self.seen
        if seen is None:
            self.look(block)
            if not machine.kernel.reads_clock:
                self.seen = _Seen(
                    strand, block, list(strand.regs), machine.version, self._others(), machine.steps + _WITHIN
                )
                self.due, self.careful = machine.steps, True
            return False
        if machine.steps < seen.until and (seen.block != block or not _same_threads(seen.strand, strand)):
            return False
        live = machine.kernel.live[block]
        found = (
            (seen.block, seen.version) == (block, machine.version)
            and _same_threads(seen.strand, strand)
            and all(_equal(seen.registers[r], strand.regs[r]) for r in live)
            and self._others() == seen.others
        )
        self.spun = self.spun or found
        self._rest()
        return found

    def _others(self) -> list[object]:
        """The strands that do not run now with their registers, and the state of the barriers."""
        machine = self.machine
        strands = [s for group in (*machine.ready.values(), *machine.parked, machine.cluster_parked) for s in group]
        strands += [s for _, s in machine.resting]
        state: list[object] = [(id(s), s.block, [id(x) for x in s.regs]) for s in strands]
        return [*state, machine.arrived.tobytes(), machine.cluster_arrived.tobytes(), machine.exited.tobytes()]

    def _rest(self) -> None:
        self.seen, self.careful, self.due = None, self.spun, self.machine.steps + _EVERY

    def look(self, block: int) -> None:
        """Give up on a batch that has run for longer than its patience."""
        machine = self.machine
        self._rest()
        kernel = machine.kernel
        work = (
            float(np.dot(machine.runs, kernel.weights)) * _RUN + float(np.dot(machine.visits, kernel.sizes)) * _THREAD
        )
        if self.version != machine.version:
            self.version, self.since = machine.version, work
        patience = machine.grid.options.patience
        idle = work - self.since
        if idle <= patience and work <= patience * _AT_ALL:
            return
        what = f"{idle:.0f} s without changing memory" if idle > patience else f"{work:.0f} s"
        fault = Fault(
            "endless-loop",
            f"threads have run for an estimated {what}; if that is meant, set {VARIABLE}=patience={4 * patience:g}",
        )
        raise kernel.located(fault, kernel.first[block][0])


def _same_threads(a: Strand, b: Strand) -> bool:
    return a is b or (np.array_equal(a.cta, b.cta) and np.array_equal(a.tid, b.tid))


def _equal(a: Array | None, b: Array | None) -> bool:
    """Whether a register holds the same bits twice."""
    if a is b or a is None or b is None:
        return a is b
    return a.shape == b.shape and a.tobytes() == b.tobytes()
