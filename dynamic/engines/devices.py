"""What a program sees when it asks for the GPU: one product of each kind.

A kind's limits stand in ``kcontract.ir.target``; a program also asks for what differs between products of one kind
(name, number of multiprocessors, memory). These answers steer the program's own choices (grid sizes, tile sizes), they
are no limit and no rule reads them. Multiprocessor counts and memory are those of NVIDIA's data sheets of the product
named; a kind without an entry answers with the H100's figures under its own name.
"""

from __future__ import annotations

from dataclasses import dataclass

from kcontract.errors import InputError, UsageError
from kcontract.ir.target import TABLE, Target

GIB = 2**30

#: name, multiprocessors, memory in GiB
_PRODUCTS: dict[int, tuple[str, int, int]] = {
    75: ("Tesla T4", 40, 16),
    80: ("NVIDIA A100-SXM4-80GB", 108, 80),
    86: ("NVIDIA RTX A6000", 84, 48),
    89: ("NVIDIA L40S", 142, 48),
    90: ("NVIDIA H100 80GB HBM3", 132, 80),
    100: ("NVIDIA B200", 148, 180),
    120: ("NVIDIA GeForce RTX 5090", 170, 32),
    121: ("NVIDIA GB10", 48, 128),
}


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU as a program sees it; ``memory`` in bytes."""

    target: Target
    name: str
    multiprocessors: int
    memory: int

    @property
    def capability(self) -> tuple[int, int]:
        """Major and minor compute capability."""
        return divmod(self.target.capability or 0, 10)


def device(target: str) -> Device:
    """The device that stands for ``target`` (``sm_90``). Raises ``UsageError`` unless it is a known NVIDIA kind."""
    try:
        kind = Target.parse(target)
    except InputError as error:
        raise UsageError(str(error)) from None
    if not kind.is_nvidia or kind.capability is None or not kind.is_known:
        known = ", ".join(row.name for row in TABLE.values())
        raise UsageError(f"{target!r} is no NVIDIA target with known limits; write one of {known}")
    name, multiprocessors, memory = _PRODUCTS.get(kind.capability, (f"NVIDIA {kind.name}", 132, 80))
    return Device(kind, name, multiprocessors, memory * GIB)
