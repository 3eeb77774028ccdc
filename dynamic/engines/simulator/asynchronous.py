"""Asynchronous work: copies and tensor-core operations that finish later than they are issued.

In fast mode each takes effect at once. In checked mode it takes effect as late as the program allows: work that an
mbarrier reports, when no thread can run without it; work that a group waits for, at that wait. Until then what it
will write counts as unready and what it reads as busy (see ``checked``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kcontract.dynamic.engines.simulator.mbarrier import Barriers
from kcontract.dynamic.engines.simulator.strand import Strand
from kcontract.dynamic.engines.simulator.values import Array

if TYPE_CHECKING:
    from kcontract.dynamic.engines.simulator.machine import Machine

Action = Callable[[], None]


@dataclass
class Pending:
    """One group operation: the threads that issued it (numbers in the batch), the group each belongs to, what to do
    for some of them (a mask over ``threads``)."""

    threads: Array
    group: Array
    act: Callable[[Array], None]


class Groups:
    """`commit_group` and `wait_group` of one kind of asynchronous operation, a thread each."""

    def __init__(self, threads: int) -> None:
        self.commits = np.zeros(threads, "i8")
        self.pending: list[Pending] = []

    def add(self, threads: Array, act: Callable[[Array], None]) -> None:
        self.pending.append(Pending(threads, self.commits[threads], act))

    def commit(self, threads: Array) -> None:
        self.commits[threads] += 1

    def wait(self, threads: Array, keep: int) -> None:
        """Finish, for these threads, all groups but the ``keep`` newest."""
        if not self.pending:
            return
        member = np.zeros(len(self.commits), bool)
        member[threads] = True
        left: list[Pending] = []
        for p in self.pending:
            due = member[p.threads] & (p.group < self.commits[p.threads] - keep)
            if due.any():
                p.act(due)
                if due.all():
                    continue
                rest = ~due
                act, old = p.act, np.flatnonzero(rest)
                total = len(p.threads)

                def remaining(
                    mask: Array, act: Callable[[Array], None] = act, old: Array = old, total: int = total
                ) -> None:
                    whole = np.zeros(total, bool)
                    whole[old[mask]] = True
                    act(whole)

                p = Pending(p.threads[rest], p.group[rest], remaining)
            left.append(p)
        self.pending = left


class Asynchronous:
    """All work in flight of one batch."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.late = machine.grid.options.checked
        self.queue: deque[Action] = deque()
        self.barriers = Barriers(machine)
        threads = len(machine.ctas) * machine.threads
        self.copies = Groups(threads)
        self.bulk = Groups(threads)
        self.wgmma = Groups(threads)

    def submit(self, act: Action) -> None:
        """Do now, or when nothing else can run."""
        if self.late:
            self.queue.append(self._placed(act))
        else:
            act()

    def _placed(self, act: Callable[..., None]) -> Callable[..., None]:
        """The action, with an error in it placed at the instruction that is running now."""
        kernel = self.machine.kernel
        index = kernel.running()

        def placed(*which: Array | slice) -> None:
            try:
                act(*which)
            except Exception as error:
                raise kernel.located(error, index) from None

        return placed

    def progress(self) -> bool:
        """Finish the oldest work in flight; False if there is none."""
        if not self.queue:
            return False
        self.queue.popleft()()
        self.machine.version += 1
        return True

    def grouped(self, groups: Groups, threads: Array, act: Callable[[Any], None]) -> None:
        """Do now for all of the threads, or for some at a time when they wait; ``act`` gets an index of them."""
        if not len(threads):
            return
        if self.late:
            groups.add(threads, self._placed(act))
        else:
            act(slice(None))

    def commit(self, groups: Groups, strand: Strand, mask: Array | None) -> None:
        if self.late:
            groups.commit(strand.ids()[np.broadcast_to(True if mask is None else mask, (strand.b, strand.t))])

    def wait(self, groups: Groups, strand: Strand, keep: int, mask: Array | None) -> None:
        if self.late:
            groups.wait(strand.ids()[np.broadcast_to(True if mask is None else mask, (strand.b, strand.t))], keep)

    def finish(self) -> None:
        """Let everything in flight end."""
        if not self.late:
            return
        while self.progress():
            pass
        everyone = np.arange(len(self.copies.commits))
        for groups in (self.copies, self.bulk, self.wgmma):
            groups.commit(everyone)
            groups.wait(everyone, 0)
