"""Powers of two by tl.exp2, which answers zero below 2^-126 although the contract keeps subnormals."""

import torch
import triton
import triton.language as tl

SOURCE = "pytorch/pytorch #125557"
EXPECT = ("EXC-02",)
CONTRACT = {"subnormals": "preserve"}


@triton.jit
def power(x, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n).to(tl.float32)
    if MENDED:
        low = v < -100
        y = tl.exp2(tl.where(low, v + 64, v)) * tl.where(low, 5.421010862427522e-20, 1.0)
    else:
        y = tl.exp2(v)
    tl.store(out + at, y, at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.exp2(x)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        power[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256, MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 96) * 40 - 60]


def get_init_inputs():
    return []
