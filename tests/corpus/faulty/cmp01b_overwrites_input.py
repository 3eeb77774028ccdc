"""SiLU computed in place: the caller's input is gone, and the result is its storage."""

import torch
import triton
import triton.language as tl

SOURCE = "ScalingIntelligence/KernelBench PR 82"
EXPECT = ("ORD-02",)
ALSO = ("CMP-02",)


@triton.jit
def silu(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n).to(tl.float32)
    tl.store(out + at, v / (1 + tl.exp(-v)), at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x) if self.mended else x
        silu[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 96)]


def get_init_inputs():
    return []
