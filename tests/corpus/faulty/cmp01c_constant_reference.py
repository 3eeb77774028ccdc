"""A reference whose result does not depend on its input: whatever agrees with it has shown nothing."""

import torch
import triton
import triton.language as tl

SOURCE = "AI-Hypercomputer/accelerator-agents PR 50"
EXPECT = ("REF-01",)
ALSO = ("HON-01",)


@triton.jit
def fill(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n)
    tl.store(out + at, tl.where(v == v, 0.0, 0.0), at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(torch.zeros_like(x) - 1.0)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        fill[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out


def get_inputs():
    return [torch.randn(8, 96)]


def get_init_inputs():
    return []
