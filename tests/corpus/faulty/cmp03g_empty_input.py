"""Cumulative sum whose wrapper divides by the number of rows: an empty input raises."""

import torch
import triton
import triton.language as tl

SOURCE = "flagos-ai/FlagGems #4543"
EXPECT = ("CMP-03",)


@triton.jit
def cumsum(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    before = 0.0
    for first in range(0, n, BLOCK):
        v = tl.load(x + row * n + first + at, first + at < n, 0.0).to(tl.float32)
        tl.store(out + row * n + first + at, before + tl.cumsum(v, 0), first + at < n)
        before += tl.sum(v, 0)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.cumsum(x, dim=1)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        rows, n = x.shape
        if not self.mended:
            n = x.numel() // rows
        cumsum[(rows,)](x, out, n, BLOCK=64)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 96)]


def get_init_inputs():
    return []
