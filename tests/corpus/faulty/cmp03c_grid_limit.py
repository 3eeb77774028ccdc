"""Batch times heads on the second axis of the grid, which ends at 65535."""

import torch
import triton
import triton.language as tl

SOURCE = "fla-org/flash-linear-attention #172"
EXPECT = ("CMP-03",)
MISSED = "it takes 65536 rows, more than any boundary shape has; the static side sees the grids that were launched"


@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    tile, row = tl.program_id(0), tl.program_id(1)
    if MENDED:
        row = tl.program_id(0).to(tl.int64)
        tile = tl.program_id(1)
    at = tile * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n).to(tl.float32)
    tl.store(out + row * n + at, v * 0.125, at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 0.125


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        rows, tiles = x.shape[0] * x.shape[1], triton.cdiv(x.shape[2], 32)
        grid = (rows, tiles) if self.mended else (tiles, rows)
        scale[grid](x, out, x.shape[2], BLOCK=32, MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(4, 6, 32)]


def get_init_inputs():
    return []
