"""Global memory by real addresses, and the per-CTA and per-thread memories of a batch.

Global accesses go through numpy views of the whole address space, after a check that every byte lies in a buffer of
the launch: an access outside one is an error that names the nearest buffer. Shared, local and Tensor Memory are
plain arrays with one row a CTA (a thread for local). Addresses are int64.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np

from kcontract.dynamic.engines.simulator.faults import Fault
from kcontract.dynamic.engines.simulator.values import Array

#: Where the flat views begin, and one past the last user-space address of x86-64 and AArch64 (48-bit halves).
BASE = 4096
_END = 1 << 47

#: Windows of the generic address space (bits 56 and up); global addresses are below 2**47.
SHARED_WINDOW = 1 << 56
LOCAL_WINDOW = 2 << 56
PARAM_WINDOW = 3 << 56
#: In clusters the CTA's rank stands in these bits of every shared address, as on hardware: a CTA's own window is part
#: of the cluster's, and programs clear its lowest bit to name the leader of a pair.
RANK_SHIFT = 24


def own(address: Array, cluster_size: int) -> Array:
    """Shared addresses within the executing CTA, without its rank in the cluster."""
    return address if cluster_size == 1 else address & address.dtype.type((1 << RANK_SHIFT) - 1)


class _Everything:
    """All of user space as an array, through numpy's array interface."""

    def __init__(self, dtype: str) -> None:
        size = np.dtype(dtype).itemsize
        self.__array_interface__ = {
            "data": (BASE, False),
            "shape": ((_END - BASE) // size,),
            "typestr": np.dtype(dtype).str,
            "version": 3,
        }


@functools.cache
def everything(dtype: str) -> Array:
    """User space as elements of ``dtype``; element i is at address 4096 + i * itemsize."""
    return np.asarray(_Everything(dtype))


@dataclass
class Region:
    """One buffer of a launch: ``start`` and ``size`` in bytes; ``read`` and ``written`` count bytes accessed.

    ``touched`` is a mask of the bytes stored to, kept only where asked for.
    """

    name: str
    start: int
    size: int
    read: int = 0
    written: int = 0
    reads: int = 0
    writes: int = 0


@dataclass
class Global:
    """The buffers that a launch may touch."""

    regions: list[Region] = field(default_factory=list)
    owners: list[object] = field(default_factory=list)
    _starts: Array | None = None
    _ends: Array | None = None
    _last: int = 0

    def add(self, name: str, start: int, size: int) -> None:
        """Admit a buffer; overlapping ones (views of one storage) are joined."""
        if size <= 0:
            return
        for region in self.regions:
            if start <= region.start + region.size and region.start <= start + size:
                if start == region.start + region.size or region.start == start + size:
                    continue
                end = max(region.start + region.size, start + size)
                region.start = min(region.start, start)
                region.size = end - region.start
                self._starts = None
                return
        self.regions.append(Region(name, start, size))
        self._starts = None

    def allocate(self, name: str, data: Array) -> int:
        """Admit a buffer of the simulator's own; returns its address."""
        self.owners.append(data)
        start = int(data.__array_interface__["data"][0])
        self.add(name, start, data.nbytes)
        return start

    def fresh(self) -> Global:
        """The same buffers, not accessed yet."""
        return Global([Region(r.name, r.start, r.size) for r in self.regions])

    def contents(self) -> dict[int, Array]:
        """A copy of the bytes of each buffer, by its address."""
        return {r.start: everything("u1")[r.start - BASE : r.start - BASE + r.size].copy() for r in self.regions}

    @staticmethod
    def restore(contents: dict[int, Array]) -> None:
        """Put back what ``contents`` gave."""
        for start, data in contents.items():
            everything("u1")[start - BASE : start - BASE + data.size] = data

    def bounds(self) -> tuple[Array, Array]:
        """Sorted start and end addresses of the buffers."""
        if self._starts is None or self._ends is None:
            self.regions.sort(key=lambda r: r.start)
            self._starts = np.array([r.start for r in self.regions], "i8")
            self._ends = np.array([r.start + r.size for r in self.regions], "i8")
        return self._starts, self._ends

    def named(self, address: int) -> str:
        """An address in words: the byte of a buffer, where it is in one."""
        for region in self.regions:
            if region.start <= address < region.start + region.size:
                return f"byte {address - region.start} of {region.name}"
        return f"global address {address:#x}"

    def check(self, address: Array, size: int, lanes: int, *, write: bool, width: int) -> None:
        """Every access of ``size`` bytes at ``address`` lies in one buffer and is aligned to ``width``, or a Fault."""
        if not address.size:
            return
        low, high = int(address.min()), int(address.max())
        if width > 1 and int(np.bitwise_or.reduce(address, axis=None)) & (width - 1):
            bad = int(address[(address & (width - 1)) != 0].flat[0])
            raise Fault("misaligned-access", f"global address {bad:#x} is not a multiple of {width} bytes")
        starts, ends = self.bounds()
        which = int(np.searchsorted(starts, low, side="right")) - 1
        if which >= 0 and high + size <= ends[which]:
            self._count(self.regions[which], address, size, lanes, write)
            return
        index = np.searchsorted(starts, address, side="right") - 1
        good = (
            (index >= 0) & (address + size <= ends[np.maximum(index, 0)])
            if len(starts)
            else np.zeros(address.shape, bool)
        )
        if not good.all():
            self._outside(int(address[~good].flat[0]), size, int((~good).sum()), write)
        for one in np.unique(index):
            here = index == one
            self._count(self.regions[int(one)], address[here], size, lanes * int(here.sum()) // address.size, write)

    @staticmethod
    def _count(region: Region, address: Array, size: int, lanes: int, write: bool) -> None:
        if write:
            region.writes += lanes
            region.written += lanes * size
        else:
            region.reads += lanes
            region.read += lanes * size

    def _outside(self, bad: int, size: int, count: int, write: bool) -> None:
        what = "store to" if write else "load from"
        nearest = min(self.regions, key=lambda r: max(r.start - bad, bad - (r.start + r.size), 0), default=None)
        where = "and the launch has no buffer at all"
        if nearest is not None and bad >= nearest.start:
            past = bad + size - nearest.start - nearest.size
            where = f"{past} bytes past the end of {nearest.name} ({nearest.size} bytes)"
        elif nearest is not None:
            where = f"{nearest.start - bad} bytes before {nearest.name}"
        raise Fault("out-of-bounds", f"{what} {size} bytes at {bad:#x}, {where}; {count} threads do so")


def load_global(address: Array, dtype: str) -> Array:
    size = np.dtype(dtype).itemsize
    return everything(dtype).take(
        (address - BASE) // size if size & (size - 1) else (address - BASE) >> (size.bit_length() - 1)
    )


def store_global(address: Array, values: Array) -> None:
    size = values.dtype.itemsize
    everything(values.dtype.str)[(address - BASE) >> (size.bit_length() - 1)] = values


class Rows:
    """A memory with ``rows`` equal rows of ``size`` bytes (rounded up to 16): shared (a CTA) or local (a thread)."""

    def __init__(self, rows: int, size: int, name: str) -> None:
        self.name = name
        self.stride = (size + 15) // 16 * 16
        self.size = size
        self.bytes = np.zeros(rows * self.stride, "u1")
        self._views: dict[str, Array] = {}

    def view(self, dtype: str) -> Array:
        found = self._views.get(dtype)
        if found is None:
            found = self._views[dtype] = self.bytes.view(dtype)
        return found

    def index(self, row: Array, address: Array, size: int, width: int) -> Array:
        """Element numbers of ``width``-byte elements, after a check of bounds and alignment."""
        if not address.size:
            return address
        low, high = int(address.min()), int(address.max())
        if low < 0 or high + size > self.size:
            bad = low if low < 0 else high
            raise Fault(
                "out-of-bounds",
                f"{self.name} address {bad:#x} with {size} bytes is outside the {self.size} bytes allocated",
            )
        if width > 1 and int(np.bitwise_or.reduce(address, axis=None)) & (width - 1):
            bad = int(address[(address & (width - 1)) != 0].flat[0])
            raise Fault("misaligned-access", f"{self.name} address {bad:#x} is not a multiple of {width} bytes")
        return (row * self.stride + address) >> (width.bit_length() - 1)
