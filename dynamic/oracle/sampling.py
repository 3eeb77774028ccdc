"""Grid sampling whose gradients are told by the rules of plain operations: torch has no decomposition of its backward.

With gradients, ``grid_sample`` of four-dimensional inputs is done by torch's own decomposition of its forward, whose
steps autograd takes apart. Others stay as they are: the gradient of volumes is only estimated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

from kcontract.dynamic.oracle.dtypes import Tensor

MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
PADDINGS = {"zeros": 0, "border": 1, "reflection": 2}

_plain: Any = F.grid_sample


@contextlib.contextmanager
def stepwise() -> Iterator[None]:
    """``grid_sample`` of torch.nn.functional in steps; restored on leaving."""
    before = F.grid_sample
    F.grid_sample = grid_sample
    try:
        yield
    finally:
        F.grid_sample = before


def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    """As torch defines it."""
    wanted = torch.is_grad_enabled() and (input.requires_grad or grid.requires_grad)
    if not wanted or input.dim() != 4 or mode not in MODES or padding_mode not in PADDINGS:
        return _plain(input, grid, mode, padding_mode, align_corners)
    from torch._decomp.decompositions import grid_sampler_2d

    return grid_sampler_2d(input, grid, MODES[mode], PADDINGS[padding_mode], bool(align_corners))
