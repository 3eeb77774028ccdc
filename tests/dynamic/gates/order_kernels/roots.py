"""Reciprocal square roots: by division, and by the instruction that reads subnormal numbers as zero."""

import torch
import triton
import triton.language as tl


@triton.jit
def root_kernel(x, o, n, FAST: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n, 1.0)
    tl.store(o + at, tl.rsqrt(v) if FAST else tl.div_rn(1.0, tl.sqrt_rn(v)), at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.rsqrt(x)


class ModelNew(torch.nn.Module):
    fast = False

    def forward(self, x):
        x = x.contiguous()
        o = torch.empty_like(x)
        root_kernel[(triton.cdiv(x.numel(), 128),)](x, o, x.numel(), self.fast, 128)
        return o


class Fast(ModelNew):
    fast = True


def get_inputs():
    return [torch.rand(4, 64) + 0.5]
