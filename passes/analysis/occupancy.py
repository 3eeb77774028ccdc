"""How many blocks of a kernel one multiprocessor holds at a time, and what keeps it from holding more.

Why: a kernel that fits may still run alone on its multiprocessor; the limiter says which figure to lower. Example:
98,304 bytes of shared memory and 128 threads on sm_90 make 2 blocks, limited by shared memory.

Unknown figures or limits leave the answer None. The allocation unit of shared memory (128 bytes from capability 8.0
on, 256 before) is neglected.
"""

from __future__ import annotations

from typing import NamedTuple

from kcontract.ir.resources import Resources
from kcontract.ir.target import Target


class Occupancy(NamedTuple):
    """``blocks`` a multiprocessor, and the resource that limits them."""

    blocks: int
    limiter: str


def occupancy(found: Resources, target: Target) -> Occupancy | None:
    """By the rules of the CUDA Occupancy Calculator."""
    registers = block_registers(found.registers, found.threads, target)
    shared = found.shared if found.shared is not None else found.dynamic_shared
    if None in (registers, shared, found.threads, target.threads_per_sm, target.blocks_per_sm):
        return None
    assert registers is not None and shared is not None and found.threads is not None
    fits: list[tuple[int, str]] = [(target.blocks_per_sm or 0, "blocks")]
    for needed, there, name in (
        (found.threads, target.threads_per_sm, "threads"),
        (registers, target.registers_per_sm, "registers"),
        (shared + (target.shared_reserved or 0), target.shared_per_sm, "shared memory"),
        (_columns(found.tmem_columns), target.tmem_columns, "Tensor Memory"),
    ):
        if needed and there:
            fits.append((there // needed, name))
    return Occupancy(*min(fits, key=lambda fit: fit[0]))


def block_registers(registers: int | None, threads: int | None, target: Target) -> int | None:
    """Registers that a block takes: a warp's are rounded up to the allocation unit."""
    unit = target.register_granularity
    if registers is None or threads is None or unit is None:
        return None
    return -(-threads // 32) * (-(-registers * 32 // unit) * unit)


def _columns(columns: int | None) -> int:
    """Tensor Memory is allocated in powers of two, 32 columns at least (PTX ISA 9, tcgen05.alloc)."""
    return max(32, 1 << (columns - 1).bit_length()) if columns else 0
