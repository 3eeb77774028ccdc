"""A last block that is stored whole: at sizes that are no multiple of it, it writes past the end of the result."""

import torch
import triton
import triton.language as tl

SOURCE = "own: a store without a mask"
EXPECT = ("MEM-01",)
ALSO = ("CMP-01", "CMP-03", "CMP-02", "EXC-01", "PRC-01", "ORD-02")


@triton.jit
def shift(x, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n, 0.0) + 1
    if MENDED:
        tl.store(out + at, v, at < n)
    else:
        tl.store(out + at, v)


class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        shift[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128, MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 128)]


def get_init_inputs():
    return []
