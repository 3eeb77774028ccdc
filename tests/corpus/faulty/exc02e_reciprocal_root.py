"""The reciprocal square root by an approximate instruction that reads subnormal values as zero: Inf for 1e-40."""

import torch
import triton
import triton.language as tl

SOURCE = "tensorflow/tensorflow #118644"
EXPECT = ("EXC-02",)
ALSO = ("CMP-01", "CMP-03")
CONTRACT = {"subnormals": "preserve"}


@triton.jit
def root(x, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n, 1.0).to(tl.float32)
    if MENDED:
        low = v < 1e-30
        y = tl.rsqrt(tl.where(low, v * 1.8014398509481984e16, v)) * tl.where(low, 134217728.0, 1.0)
    else:
        y = tl.rsqrt(v)
    tl.store(out + at, y, at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.rsqrt(x)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        root[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256, MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.rand(8, 96) + 0.01]


def get_init_inputs():
    return []
