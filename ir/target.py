"""GPU kinds and their limits.

Why: whether a kernel fits is a question about numbers that stand in NVIDIA's documents, not on the machine that
compiles. One table holds them, each with its source in ``SOURCES``. What a figure means for a kernel (does it fit,
what would) is a rule's business; what a device of this kind has beyond its kind (number of multiprocessors,
clocks, memory size) is not held at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kcontract.errors import InputError

KIB = 1024

_GUIDE = "CUDA Programming Guide 13, 5.1 Compute Capabilities, "
SOURCES: Mapping[str, str] = MappingProxyType(
    {
        "registers_per_thread": _GUIDE + "table of memory information",
        "registers_per_block": _GUIDE + "table of memory information",
        "registers_per_sm": _GUIDE + "table of memory information",
        "register_granularity": "CUDA Occupancy Calculator: register allocation unit 256, granularity warp",
        "shared_per_block": _GUIDE + "table of memory information (opt-in: per SM less the reserved KiB a block)",
        "shared_per_block_default": _GUIDE + "memory information, note on static and dynamic shared memory over 48 KiB",
        "shared_per_sm": _GUIDE + "table of memory information",
        "shared_reserved": _GUIDE + "memory information: 1 KiB a block is the system's from capability 8.0 on",
        "tmem_columns": "PTX ISA 9, tcgen05 Tensor Memory: 512 columns a CTA on sm_100, 103 and 110; none elsewhere",
        "threads_per_block": _GUIDE + "table of device and multiprocessor information",
        "threads_per_sm": _GUIDE + "device and multiprocessor information (11.0: documents disagree, left unknown)",
        "warps_per_sm": _GUIDE + "device and multiprocessor information (11.0: documents disagree, left unknown)",
        "blocks_per_sm": _GUIDE + "device and multiprocessor information (12.x: guide 12.9 said 32; 11.0: unknown)",
        "cluster_portable": "CUDA Programming Guide 13, Thread Block Clusters: 8 is portable from capability 9.0 on",
        "cluster_max": "Hopper and Blackwell Tuning Guides: 16 non-portable on H100 and B200; not stated for others",
        "grid": _GUIDE + "table of device and multiprocessor information",
    }
)


@dataclass(frozen=True, slots=True, repr=False)
class Target:
    """One GPU kind. A limit of None is unknown, which never means "fits".

    ``name`` is ``sm_90`` for NVIDIA (the letter of ``sm_90a`` names instructions, not limits, and is dropped) and
    the architecture as given for another vendor. ``capability`` is 10 × major + minor. Registers are 32-bit;
    ``register_granularity`` is what a warp's registers are rounded up to. Shared memory is in bytes:
    ``shared_per_block`` needs the launcher's opt-in, which Triton does. ``grid`` holds the inclusive maxima in x,
    y, z. ``cluster_portable`` and ``cluster_max`` count blocks; 1 means no clusters.
    """

    name: str
    vendor: str = "nvidia"
    capability: int | None = None
    warp_size: int = 32
    registers_per_thread: int | None = None
    registers_per_block: int | None = None
    registers_per_sm: int | None = None
    register_granularity: int | None = None
    shared_per_block: int | None = None
    shared_per_block_default: int | None = None
    shared_per_sm: int | None = None
    shared_reserved: int | None = None
    tmem_columns: int | None = None
    threads_per_block: int | None = None
    threads_per_sm: int | None = None
    warps_per_sm: int | None = None
    blocks_per_sm: int | None = None
    cluster_portable: int | None = None
    cluster_max: int | None = None
    grid: tuple[int, int, int] | None = None

    @property
    def is_nvidia(self) -> bool:
        """Whether kcontract's rules apply; other vendors are named and left alone."""
        return self.vendor == "nvidia"

    @property
    def is_known(self) -> bool:
        """Whether the table holds this kind's limits."""
        return self.registers_per_thread is not None

    @staticmethod
    def parse(value: object) -> Target:
        """The target named by ``value``.

        Takes ``"sm_90"``, ``"sm_90a"``, ``"sm90"``, ``"cuda:90"``, ``90``, ``("cuda", 90, 32)``, a mapping with
        ``backend``, ``arch`` and ``warp_size``, Triton's ``GPUTarget``, and the same for HIP (``"gfx942"``,
        ``"hip:gfx942"``). A number that the table lacks gives a target without limits. Raises ``InputError``.
        """
        if isinstance(value, Target):
            return value
        if isinstance(value, bool):
            raise _unreadable(value)
        if isinstance(value, int):
            return _nvidia(value, value)
        if isinstance(value, str):
            return _from_text(value)
        if isinstance(value, (tuple, list)):
            backend, arch, warp = (*value, None, None, None)[:3]
        elif isinstance(value, Mapping):
            backend, arch, warp = value.get("backend"), value.get("arch"), value.get("warp_size")
        else:
            backend, arch, warp = (getattr(value, name, None) for name in ("backend", "arch", "warp_size"))
        if not isinstance(backend, str) or isinstance(arch, bool) or not isinstance(arch, (int, str)):
            raise _unreadable(value)
        if backend == "cuda":
            return Target.parse(arch)
        return _other(backend, str(arch), warp if isinstance(warp, int) else None)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Target({self.name!r})"


def _row(
    capability: int,
    shared_per_sm: int,
    threads_per_sm: int | None,
    blocks_per_sm: int | None,
    cluster_max: int | None = None,
    tmem_columns: int = 0,
) -> Target:
    """One table row. ``shared_per_sm`` is in KiB; what all rows of a family share is filled in here."""
    reserved = KIB if capability >= 80 else 0
    clusters = capability >= 90
    return Target(
        name=f"sm_{capability}",
        capability=capability,
        registers_per_thread=255,
        registers_per_block=65536,
        registers_per_sm=65536,
        register_granularity=256,
        shared_per_block=shared_per_sm * KIB - reserved,
        shared_per_block_default=48 * KIB,
        shared_per_sm=shared_per_sm * KIB,
        shared_reserved=reserved,
        threads_per_block=1024,
        threads_per_sm=threads_per_sm,
        warps_per_sm=None if threads_per_sm is None else threads_per_sm // 32,
        blocks_per_sm=blocks_per_sm,
        grid=(2**31 - 1, 65535, 65535),
        tmem_columns=tmem_columns,
        cluster_portable=8 if clusters else 1,
        cluster_max=cluster_max if clusters else 1,
    )


#: Every kind with known limits, by capability. Columns: capability, shared memory per SM (KiB), threads per SM,
#: blocks per SM, and what is special.
TABLE: Mapping[int, Target] = MappingProxyType(
    {
        row.capability: row
        for row in (
            _row(75, 64, 1024, 16),
            _row(80, 164, 2048, 32),
            _row(86, 100, 1536, 16),
            _row(87, 164, 1536, 16),
            _row(89, 100, 1536, 24),
            _row(90, 228, 2048, 32, cluster_max=16),
            _row(100, 228, 2048, 32, cluster_max=16, tmem_columns=512),
            _row(103, 228, 2048, 32, tmem_columns=512),
            _row(110, 228, None, None, tmem_columns=512),
            _row(120, 100, 1536, 24),
            _row(121, 100, 1536, 24),
        )
        if row.capability is not None
    }
)

_NVIDIA = re.compile(r"(?:cuda:)?\s*(?:sm_?)?([0-9]{2,3})[af]?", re.IGNORECASE | re.ASCII)
_AMD = re.compile(r"(?:hip:)?(gfx[0-9a-z]{2,8})(?::[a-z0-9+:_-]*)?", re.IGNORECASE | re.ASCII)


def _from_text(text: str) -> Target:
    if len(text) <= 64:
        if match := _NVIDIA.fullmatch(text.strip()):
            return _nvidia(int(match[1]), text)
        if match := _AMD.fullmatch(text.strip()):
            return _other("hip", match[1].lower(), None)
    raise _unreadable(text)


def _nvidia(capability: int, given: object) -> Target:
    if not 10 <= capability <= 999:
        raise _unreadable(given)
    return TABLE.get(capability) or Target(f"sm_{capability}", capability=capability)


def _other(backend: str, arch: str, warp_size: int | None) -> Target:
    """``warp_size`` unstated: 64 lanes up to gfx9 (GCN, CDNA), 32 from gfx10 on (RDNA)."""
    lanes = warp_size or (32 if arch.startswith("gfx1") else 64)
    return Target(arch[:64], vendor="amd" if backend == "hip" else backend[:64], warp_size=lanes)


def _unreadable(value: object) -> InputError:
    shown = repr(value[:80]) if isinstance(value, str) else f"a value of type {type(value).__name__}"
    if isinstance(value, int) and abs(value) < 10**9:
        shown = repr(value)
    return InputError(f"{shown} names no GPU; write a target such as sm_90, cuda:100 or gfx942")
