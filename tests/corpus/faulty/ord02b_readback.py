"""Stores a tile to a scratch buffer and loads it back transposed: one thread reads what another has yet to write."""

import torch
import triton
import triton.language as tl

SOURCE = "triton-lang/triton #10924"
EXPECT = ()
EXPECT_STATIC = ("unsynchronised-readback",)
ALSO = ("ORD-02",)


@triton.jit
def turn(x, scratch, out, rows, n, TILE: tl.constexpr, MENDED: tl.constexpr):
    row, column = tl.program_id(0) * TILE, tl.program_id(1) * TILE
    at = tl.arange(0, TILE)
    mine = scratch + (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)) * TILE * TILE
    inside = (row + at < rows)[:, None] & (column + at < n)[None, :]
    v = tl.load(x + (row + at)[:, None] * n + (column + at)[None, :], inside, 0.0)
    tl.store(mine + at[:, None] * TILE + at[None, :], v * 2)
    if MENDED:
        tl.debug_barrier()
    w = tl.load(mine + at[None, :] * TILE + at[:, None])
    outside = (column + at < n)[:, None] & (row + at < rows)[None, :]
    tl.store(out + (column + at)[:, None] * rows + (row + at)[None, :], w, outside)


class Model(torch.nn.Module):
    def forward(self, x):
        return (x * 2).t()


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        rows, n = x.shape
        grid = (triton.cdiv(rows, 32), triton.cdiv(n, 32))
        scratch = torch.empty(max(1, grid[0] * grid[1]) * 1024, dtype=x.dtype, device=x.device)
        out = torch.empty(n, rows, dtype=x.dtype, device=x.device)
        turn[grid](x, scratch, out, rows, n, TILE=32, MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(48, 40)]


def get_init_inputs():
    return []
