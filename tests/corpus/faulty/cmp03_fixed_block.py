"""Sums of absolute values over one block of 512 columns: longer rows are cut."""

import torch
import triton
import triton.language as tl

SOURCE = "own: a block that does not grow with the row"
EXPECT = ("CMP-03",)
ALSO = ("CMP-01",)


@triton.jit
def norm(x, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    total = 0.0
    for first in range(0, n if MENDED else BLOCK, BLOCK):
        total += tl.sum(tl.abs(tl.load(x + row * n + first + at, first + at < n, 0.0).to(tl.float32)), 0)
    tl.store(out + row, total)


class Model(torch.nn.Module):
    def forward(self, x):
        return x.abs().sum(dim=1)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        norm[(x.shape[0],)](x, out, x.shape[1], BLOCK=512, MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(4, 512)]


def get_init_inputs():
    return []
