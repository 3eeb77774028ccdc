"""Tensor maps: the 128 bytes that describe a tensor to the copy engine, in a layout of the simulator's own.

Hardware keeps the format secret; programs make maps with `tensormap.replace` or through the host's encoder and never
look inside, so any layout will do. Fields and their order: PTX ISA 9, "tensormap.replace" and "Tensor-map".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kcontract.dynamic.engines.simulator.values import Array

BYTES = 128
#: Byte offset and numpy type of each field; the ones with a count are arrays indexed by ordinal.
FIELDS: dict[str, tuple[int, str, int]] = {
    "global_address": (0, "u8", 1),
    "rank": (8, "u1", 1),
    "elemtype": (9, "u1", 1),
    "interleave_layout": (10, "u1", 1),
    "swizzle_mode": (11, "u1", 1),
    "fill_mode": (12, "u1", 1),
    "swizzle_atomicity": (13, "u1", 1),
    "global_dim": (16, "u4", 5),
    "global_stride": (40, "u8", 4),
    "box_dim": (72, "u4", 5),
    "element_stride": (92, "u4", 5),
}
#: Element sizes in bits by `.elemtype` value.
ELEMENT_BITS = (8, 16, 32, 32, 64, 64, 16, 32, 32, 64, 16, 32, 32, 4, 4, 6)
SWIZZLE_BYTES = (0, 32, 64, 128)
_TF32 = (11, 12)


@dataclass(frozen=True)
class TensorMap:
    """One map, decoded: sizes innermost first, strides in bytes (of all dimensions but the innermost)."""

    address: int
    element: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    box: tuple[int, ...]
    step: tuple[int, ...]
    interleave: int
    swizzle: int
    nan: bool

    @property
    def bits(self) -> int:
        return ELEMENT_BITS[self.element]


def encode(
    address: int, element: int, size: Sequence[int], stride: Sequence[int], box: Sequence[int], swizzle: int, nan: bool
) -> bytes:
    """A map as bytes; all lists innermost first, ``stride`` in bytes without the innermost."""
    data = np.zeros(BYTES, "u1")
    put(data, "global_address", 0, address)
    for name, value in (("rank", len(size) - 1), ("elemtype", element), ("swizzle_mode", swizzle), ("fill_mode", nan)):
        put(data, name, 0, int(value))
    for name, values in (("global_dim", size), ("global_stride", stride), ("box_dim", box)):
        for k, value in enumerate(values):
            put(data, name, k, int(value))
    for k in range(len(size)):
        put(data, "element_stride", k, 1)
    return data.tobytes()


def put(data: Array, name: str, ordinal: int, value: int) -> None:
    """Write a field into 128 bytes (uint8)."""
    offset, dtype, _ = FIELDS[name]
    width = np.dtype(dtype).itemsize
    start = offset + ordinal * width
    data[start : start + width] = np.frombuffer((value % (1 << (8 * width))).to_bytes(width, "little"), "u1")


def decode(data: bytes) -> TensorMap:
    """The map in 128 bytes. Raises ``ValueError`` where it cannot be one."""
    whole = np.frombuffer(data, "u1")

    def get(name: str) -> list[int]:
        offset, dtype, count = FIELDS[name]
        width = np.dtype(dtype).itemsize
        return [int(x) for x in whole[offset : offset + width * count].view(dtype)]

    rank = get("rank")[0] + 1
    element, swizzle = get("elemtype")[0], get("swizzle_mode")[0]
    if rank > 5 or element >= len(ELEMENT_BITS) or swizzle >= len(SWIZZLE_BYTES):
        raise ValueError(f"rank {rank}, element type {element}, swizzle {swizzle}")
    return TensorMap(
        get("global_address")[0], element, tuple(get("global_dim")[:rank]), tuple(get("global_stride")[: rank - 1]),
        tuple(get("box_dim")[:rank]), tuple(get("element_stride")[:rank]), get("interleave_layout")[0], swizzle,
        bool(get("fill_mode")[0]),
    )  # fmt: skip
