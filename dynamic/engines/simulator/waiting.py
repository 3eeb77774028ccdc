"""Says of a run that cannot go on who waits for what, and where."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kcontract.dynamic.engines.simulator.strand import Strand
from kcontract.errors import KContractError

if TYPE_CHECKING:
    from kcontract.dynamic.engines.simulator.machine import Machine

#: Blocks that a thread is given to ask again for what it waits for.
_BLOCKS = 256


@dataclass(frozen=True)
class Group:
    """Threads that cannot go on: who, what they do, the instruction they do it at, and whether they go round a loop
    instead of waiting."""

    who: str
    what: str
    index: int
    spins: bool = False


def waiting(machine: Machine) -> list[Group]:
    """The groups of threads of one batch. The machine is not to be used afterwards."""
    found: list[Group] = []
    first = machine.kernel.first
    for number, strands in enumerate(machine.parked):
        for s in strands:
            row = int(s.cta[0, 0])
            needed = int(machine.needed[number, row]) or machine.threads - int(machine.exited[row])
            reached = int(machine.arrived[number, row])
            what = f"wait at barrier {number}, which {reached} of {needed} threads have reached"
            found.append(Group(_who(machine, s), what, first[s.block][0] - 1))
    for s in machine.cluster_parked:
        what = "wait at the cluster barrier, which not all threads of the cluster have reached"
        found.append(Group(_who(machine, s), what, first[s.block][0] - 1))
    for _, s in list(machine.resting):
        who = _who(machine, s)
        if s in machine.spinning:
            found.append(Group(who, "go round a loop in which nothing changes", first[s.block][0], spins=True))
        else:
            found.append(Group(who, *_asked(machine, s)))
    return found


def _asked(machine: Machine, strand: Strand) -> tuple[str, int]:
    """What a thread that rests asks for, and at which instruction: it is made to ask once more."""
    start = machine.kernel.first[strand.block][0]
    asks: list[tuple[str, int]] = []
    machine.asks = asks
    block: int | None = strand.block
    with contextlib.suppress(KContractError):
        for _ in range(_BLOCKS):
            if block is None or asks:
                break
            block = machine.kernel.code[block](strand)
    machine.asks = None
    return asks[0] if asks else ("ask for something again and again", start)


def _who(machine: Machine, strand: Strand) -> str:
    tid = strand.tid.reshape(-1)
    cta = np.unique(machine.ctas[strand.cta[:, 0]])
    ctas = f"CTA {cta[0]}" if len(cta) == 1 else f"{len(cta)} CTAs from {cta[0]} on"
    low, high = int(tid.min()), int(tid.max())
    return f"thread {low} of {ctas}" if low == high else f"threads {low} to {high} of {ctas}"
