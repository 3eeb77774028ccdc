"""Who knows of whose accesses: vector clocks of the warps and asynchronous units of each CTA.

``clock[cta, w, v]`` is the latest time of actor v whose accesses are ordered before what warp w does next. Actors are
warps and, because their effects come later than the instruction that starts them, the units: a warp's own cp.async
copies, Tensor Memory stores and loads, wgmma reads and bulk copies, the tensor core, and one unit an mbarrier that
copies report to. ``proxied`` is the same for accesses that a proxy fence has made visible to the async proxy.
"""

from __future__ import annotations

import numpy as np

from kcontract.dynamic.engines.simulator.values import Array

#: Units that belong to one warp, in the order of their actor numbers.
OWN = ("warp", "cp.async", "tcgen05.st", "tcgen05.ld", "wgmma", "bulk")
_MBARRIERS = 64


class Clocks:
    """Clocks of ``ctas`` CTAs of ``warps`` warps each."""

    def __init__(self, ctas: int, warps: int) -> None:
        self.warps = warps
        self.tensor_core = len(OWN) * warps
        self.actors = self.tensor_core + 1 + _MBARRIERS
        self.clock = np.zeros((ctas, warps, self.actors), "i4")
        self.proxied = np.zeros_like(self.clock)
        self.now = 1
        own = np.arange(warps)
        self.clock[:, own, own] = self.now
        self.units: dict[tuple[int, int], int] = {}
        self.barriers: dict[int, tuple[Array, Array]] = {}
        self.objects: dict[tuple[int, int], tuple[Array, Array]] = {}

    def unit(self, name: str, warp: Array | int) -> Array | int:
        """Actor number of a warp's unit."""
        return OWN.index(name) * self.warps + warp

    def mbarrier(self, cta: int, address: int) -> int:
        """Actor number of the copies that report to an mbarrier (shared by all once there are very many)."""
        key = (cta, address)
        found = self.units.get(key)
        if found is None:
            mine = sum(1 for c, _ in self.units if c == cta)
            found = self.units[key] = self.tensor_core + 1 + min(mine, _MBARRIERS - 1)
        return found

    def describe(self, actor: int) -> str:
        """An actor in words."""
        if actor < self.tensor_core:
            name, warp = OWN[actor // self.warps], actor % self.warps
            return f"warp {warp}" if name == "warp" else f"the {name} operations of warp {warp}"
        return "the tensor core" if actor == self.tensor_core else "a tensor copy"

    def tick(self) -> int:
        """A new time."""
        self.now += 1
        return self.now

    def advance(self, cta: Array, warp: Array) -> None:
        """What these warps do from now on is later than all they have released."""
        self.clock[cta, warp, warp] = self.tick()

    def fence(self, cta: Array, warp: Array) -> None:
        """`fence.proxy.async`: all that the warp knows becomes visible to the async proxy."""
        self.proxied[cta, warp] = np.maximum(self.proxied[cta, warp], self.clock[cta, warp])
        self.advance(cta, warp)

    def complete(self, cta: Array, warp: Array, actor: Array | int, time: Array | int) -> None:
        """A wait of a warp for a unit's work up to ``time``."""
        np.maximum.at(self.clock, (cta, warp, np.asarray(actor)), time)

    def arrive(self, number: int, cta: Array, warp: Array) -> None:
        """Warps reach a barrier: it collects what they know."""
        if number not in self.barriers:
            shape = (len(self.clock), self.actors)
            self.barriers[number] = (np.zeros(shape, "i4"), np.zeros(shape, "i4"))
        known, visible = self.barriers[number]
        if self._all(cta):
            np.maximum(known, self.clock.max(axis=1), out=known)
            np.maximum(visible, self.proxied.max(axis=1), out=visible)
            return
        np.maximum.at(known, cta, self.clock[cta, warp])
        np.maximum.at(visible, cta, self.proxied[cta, warp])

    def _all(self, cta: Array) -> bool:
        """Whether so many different warps are all there are."""
        return len(cta) == self.clock.shape[0] * self.clock.shape[1]

    def depart(self, number: int, cta: Array, warp: Array) -> None:
        """Warps leave a barrier and know what all who reached it knew."""
        known, visible = self.barriers[number]
        if self._all(cta):
            np.maximum(self.clock, known[:, None], out=self.clock)
            np.maximum(self.proxied, visible[:, None], out=self.proxied)
            self.advance(cta, warp)
            return
        self.clock[cta, warp] = np.maximum(self.clock[cta, warp], known[cta])
        self.proxied[cta, warp] = np.maximum(self.proxied[cta, warp], visible[cta])
        self.advance(cta, warp)

    def clear(self, number: int, cta: Array) -> None:
        """A barrier is done for these CTAs."""
        for table in self.barriers[number]:
            table[cta] = 0

    def object(self, cta: int, address: int) -> tuple[Array, Array]:
        """What an mbarrier has collected."""
        key = (cta, address)
        found = self.objects.get(key)
        if found is None:
            found = self.objects[key] = (np.zeros(self.actors, "i4"), np.zeros(self.actors, "i4"))
        return found

    def release(self, cta: Array, warp: Array, owner: Array, address: Array) -> None:
        """Warps arrive on mbarriers (at ``address`` of CTA ``owner``)."""
        for c, w, o, a in zip(cta.tolist(), warp.tolist(), owner.tolist(), address.tolist(), strict=True):
            known, visible = self.object(o, a)
            if c == o:
                np.maximum(known, self.clock[c, w], out=known)
                np.maximum(visible, self.proxied[c, w], out=visible)
        self.advance(cta, warp)

    def acquire(self, cta: Array, warp: Array, address: Array) -> None:
        """Warps have seen a phase of an mbarrier end."""
        pairs = np.unique(np.stack([cta, warp, address], axis=1), axis=0)
        for c, w, a in pairs.tolist():
            known, visible = self.object(c, a)
            np.maximum(self.clock[c, w], known, out=self.clock[c, w])
            np.maximum(self.proxied[c, w], visible, out=self.proxied[c, w])
