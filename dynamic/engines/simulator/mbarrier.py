"""mbarrier objects: 64-bit words in shared memory, updated for many CTAs at once.

The simulator's own layout (hardware's is opaque): bits 0 - 19 the expected arrivals, 20 - 39 those still pending,
40 - 62 the transaction count plus 2**22, bit 63 the parity of the phase in progress. PTX ISA 9, "mbarrier".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from kcontract.dynamic.engines.simulator.faults import Fault
from kcontract.dynamic.engines.simulator.values import Array

if TYPE_CHECKING:
    from kcontract.dynamic.engines.simulator.machine import Machine

_COUNT = (1 << 20) - 1
_BIAS = 1 << 22
_TX_MASK = (1 << 23) - 1
_MOST_BYTES = (1 << 20) - 1


class Barriers:
    """Operations on mbarriers of one batch; ``row`` and ``address`` are flat int64 arrays, one entry an operation."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.valid = np.zeros(len(machine.shared.bytes) // 8, bool)

    def _index(self, row: Array, address: Array) -> Array:
        return self.machine.shared.index(row, address, 8, 8)

    def _known(self, row: Array, address: Array, index: Array, what: str) -> None:
        known = self.valid[index]
        if not known.all():
            k = int(np.flatnonzero(~known)[0])
            raise Fault(
                "mbarrier-invalid",
                f"{what} on the mbarrier at shared address {int(address[k]):#x} of CTA {self._cta(int(row[k]))}, which "
                f"is not initialised",
            )

    def _cta(self, row: int) -> int:
        return int(self.machine.ctas[row])

    def init(self, row: Array, address: Array, count: Array) -> None:
        if int(count.min()) < 1 or int(count.max()) > _COUNT:
            raise Fault("mbarrier-count", f"mbarrier.init with count {int(count.min())}; 1 to {_COUNT} are allowed")
        words = count | (count << 20) | np.int64(_BIAS << 40)
        index = self._index(row, address)
        self.machine.shared.view("i8")[index] = words
        self.valid[index] = True
        self.machine.version += 1

    def invalidate(self, row: Array, address: Array) -> None:
        index = self._index(row, address)
        self._known(row, address, index, "mbarrier.inval")
        self.valid[index] = False

    def update(
        self, row: Array, address: Array, arrivals: Array, expected: Array, *, what: str, drop: bool = False
    ) -> Array:
        """Add ``expected`` bytes (negative: completed ones), then count arrivals down; returns the words before.

        A phase ends when nothing is pending and the transaction count is zero.
        """
        index = self._index(row, address)
        self._known(row, address, index, what)
        view = self.machine.shared.view("i8")
        before = view[index]
        self.machine.version += 1
        unique, first, inverse = np.unique(index, return_index=True, return_inverse=True)
        count = np.zeros(len(unique), "i8")
        bytes_ = np.zeros(len(unique), "i8")
        np.add.at(count, inverse, arrivals)
        np.add.at(bytes_, inverse, expected)
        word = view[unique]
        goal = word & _COUNT
        pending = ((word >> 20) & _COUNT) - count
        tx = ((word >> 40) & _TX_MASK) - _BIAS + bytes_
        phase = (word >> 63) & 1
        if drop:
            goal = goal - count
        if (pending < 0).any():
            k = first[int(np.flatnonzero(pending < 0)[0])]
            raise Fault(
                "mbarrier-overrun",
                f"{what}: more arrivals than the mbarrier at shared address {int(address[k]):#x} expects in this phase",
            )
        if (np.abs(tx) > _MOST_BYTES).any():
            raise Fault("mbarrier-bytes", f"{what}: the transaction count leaves ±{_MOST_BYTES} bytes")
        done = (pending == 0) & (tx == 0)
        pending = np.where(done, goal, pending)
        phase = np.where(done, 1 - phase, phase)
        view[unique] = goal | (pending << 20) | ((tx + _BIAS) << 40) | (phase << 63)
        return before

    def passed(self, row: Array, address: Array, parity: Array) -> Array:
        """Whether the phase of that parity has completed (the one in progress has the other)."""
        index = self._index(row, address)
        self._known(row, address, index, "a wait")
        word = self.machine.shared.view("i8")[index]
        return cast(Array, ((word >> 63) & 1) != (parity & 1))

    def describe(self, row: int, address: int) -> str:
        """The phase in progress and what it still waits for."""
        word = int(self.machine.shared.view("u8")[(row * self.machine.shared.stride + address) >> 3])
        pending, tx = (word >> 20) & _COUNT, ((word >> 40) & _TX_MASK) - _BIAS
        return (
            f"the phase of parity {word >> 63} of the mbarrier at shared address {address:#x} of CTA {self._cta(row)}, "
            f"which lacks {pending} arrivals and {tx} bytes"
        )
