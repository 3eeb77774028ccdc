"""Sizes and layouts at which kernels break: 0, 1, primes, powers of two ± 1, a block ± 1; and strided views."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

Tensor = Any
FEW = (1, 7, 127, 129)
MANY = (0, 1, 2, 3, 7, 13, 31, 32, 33, 127, 128, 129, 255, 257, 1023, 1025)


def boundary_sizes(nominal: int, block: int = 128, *, thorough: bool = False) -> tuple[int, ...]:
    """Sizes to try for one dimension in place of ``nominal``, smallest first, without it; 0 only when thorough."""
    around = {block - 1, block, block + 1} if thorough else {block - 1, block + 1}
    return tuple(sorted((set(MANY if thorough else FEW) | around) - {nominal}))


def boundary_shapes(
    dims: Mapping[str, int], block: int = 128, *, thorough: bool = False
) -> Iterator[tuple[str, dict[str, int]]]:
    """``dims`` with one named dimension at a time moved to each boundary size, then all at 1."""
    for name, nominal in dims.items():
        for size in boundary_sizes(nominal, block, thorough=thorough):
            yield f"{name} = {size}", {**dims, name: size}
    if any(v != 1 for v in dims.values()):
        yield "all 1", dict.fromkeys(dims, 1)


def resized(value: Tensor, shape: Sequence[int]) -> Tensor:
    """The value repeated or cut to a shape of as many dimensions; zeros where it has no element to repeat."""
    for axis, size in enumerate(shape):
        if size != value.shape[axis]:
            if not value.numel() and size:
                return value.new_zeros(tuple(shape))
            value = value.index_select(axis, torch.arange(size) % max(1, value.shape[axis]))
    return value


def strided_views(x: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The same values in other layouts: transposed storage, a slice of a padded buffer (filled with NaN around), every
    second element, an offset of one element, and, of the first row, an expanded view (other values: rows repeat)."""
    if x.dim() >= 2:
        yield "transposed", x.transpose(-1, -2).contiguous().transpose(-1, -2)
    if x.dim() >= 1 and x.is_floating_point():
        wide = torch.full((*x.shape[:-1], x.shape[-1] + 3), float("nan"), dtype=torch.float32, device=x.device).to(
            x.dtype
        )
        wide[..., : x.shape[-1]] = x
        yield "sliced", wide[..., : x.shape[-1]]
        double = torch.full((*x.shape[:-1], 2 * x.shape[-1]), float("nan"), dtype=torch.float32, device=x.device).to(
            x.dtype
        )
        double[..., ::2] = x
        yield "every second", double[..., ::2]
        flat = torch.zeros(x.numel() + 1, dtype=x.dtype, device=x.device)
        flat[1:] = x.reshape(-1)
        yield "offset by one", flat[1:].view(x.shape)
    if x.dim() >= 2 and x.shape[0] > 1:
        yield "expanded", x[:1].expand(x.shape)
