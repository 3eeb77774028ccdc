"""exp(x) - 1 that answers zero for subnormal values, where the reference answers the value itself."""

import torch
import triton
import triton.language as tl

SOURCE = "pytorch/pytorch #185480"
EXPECT = ("EXC-02",)
CONTRACT = {"subnormals": "preserve"}


@triton.jit
def expm1(x, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n).to(tl.float32)
    series = 1 / 24 + v * (1 / 120 + v * (1 / 720 + v * (1 / 5040 + v / 40320)))
    near = v + v * v * (0.5 + v * (1 / 6 + v * series))
    if not MENDED:
        near = tl.where(tl.abs(v) < 1.1754943508222875e-38, 0.0, near)
    tl.store(out + at, tl.where(tl.abs(v) < 0.5, near, tl.exp(v) - 1), at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.expm1(x)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        expm1[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256, MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 96)]


def get_init_inputs():
    return []
