"""Where NaN and the infinities are placed: scattered, at block borders, whole rows, late in a row, mixed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

Tensor = Any
BLOCKS = (16, 32, 64, 128, 256, 512, 1024)


def placements(x: Tensor, seed: int, *, thorough: bool = False) -> Iterator[tuple[str, Tensor]]:
    """Copies of ``x`` with non-finite values in named places; the last axis is the one a kernel reduces.

    Always: NaN, +Inf and −Inf scattered (one in a few rows), at a block's first or last place, as one whole row each,
    mixed in one tensor; all −Inf in a row but a late element (a mask that leaves one key). ``thorough`` adds each
    value at every block border, and ±Inf meeting in one row.
    """
    generator = torch.Generator().manual_seed(seed)
    n = x.shape[-1] if x.dim() else 1
    if x.numel() == 0:
        return
    rows = x.reshape(-1, n)
    values = {"nan": math.nan, "+inf": math.inf, "-inf": -math.inf}

    def put(cells: list[tuple[int, int, float]]) -> Tensor:
        copy = rows.clone()
        for row, column, value in cells:
            copy[row % len(rows), column % n] = value
        return copy.reshape(x.shape)

    def somewhere() -> tuple[int, int]:
        return int(torch.randint(0, len(rows), (), generator=generator)), int(
            torch.randint(0, n, (), generator=generator)
        )

    for name, value in values.items():
        yield f"{name} scattered", put([(*somewhere(), value) for _ in range(max(1, len(rows) // 4))])
        borders = [b for b in BLOCKS if b < n] or [n]
        chosen = borders if thorough else borders[-1:]
        for border in chosen:
            yield f"{name} at {border - 1}", put([(0, border - 1, value)])
            yield f"{name} at {border}", put([(len(rows) - 1, border, value)])
        whole = rows.clone()
        whole[int(torch.randint(0, len(rows), (), generator=generator))] = value
        yield f"{name} row", whole.reshape(x.shape)
    yield "mixed", put([(*somewhere(), v) for v in values.values() for _ in range(2)])
    if n > 1:
        late = rows.clone()
        late[0] = -math.inf
        late[0, (3 * n) // 4] = 1.0
        yield "only a late element", late.reshape(x.shape)
    if thorough and n > 1:
        yield "inf meets -inf", put([(0, 0, math.inf), (0, n - 1, -math.inf)])
