"""Names that generated code uses without a module: selection, packing and unpacking of registers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kcontract.dynamic.engines.simulator.values import Array


def W(mask: Array, new: Array, old: Array) -> Array:
    """``new`` where the mask holds, else ``old``; no work where the mask is one value."""
    if mask.size == 1:
        return new if mask[0, 0] else old
    return np.where(mask, new, old)


def pack(parts: Sequence[Array], dtype: str) -> Array:
    """Narrow bits to one wide register, the first part lowest."""
    size = parts[0].dtype.itemsize
    if dtype == "c16":
        wide = np.empty((*np.broadcast_shapes(*(p.shape for p in parts)), len(parts)), parts[0].dtype)
        for k, p in enumerate(parts):
            wide[..., k] = p
        return wide.view("c16")[..., 0]
    out = parts[0].view(f"u{size}").astype(dtype)
    for k, p in enumerate(parts[1:], 1):
        out = out | (p.view(f"u{size}").astype(dtype) << out.dtype.type(8 * size * k))
    return out


def unpack(value: Array, dtype: str, count: int) -> list[Array]:
    """The ``count`` parts of a register, lowest first, as unsigned ``dtype``."""
    if value.dtype == np.complex128:
        fields = np.ascontiguousarray(value).view(dtype).reshape(*value.shape, count)
        return [np.ascontiguousarray(fields[..., k]) for k in range(count)]
    step = 8 * np.dtype(dtype).itemsize
    bits = value.view(f"u{value.dtype.itemsize}")
    return [(bits >> bits.dtype.type(step * k) if k else bits).astype(dtype) for k in range(count)]


def unpack_nibbles(value: Array, count: int) -> list[Array]:
    """4-bit parts, lowest first."""
    return [((value >> value.dtype.type(4 * k)) & value.dtype.type(15)).astype("u1") for k in range(count)]
