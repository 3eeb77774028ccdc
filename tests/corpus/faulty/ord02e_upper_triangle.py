"""The strict upper triangle of the result is never written: it holds what was in that memory before."""

import torch
import triton
import triton.language as tl

SOURCE = "fla-org/flash-linear-attention #1158"
EXPECT = ("ORD-02",)
ALSO = "values"
FRESH = True


@triton.jit
def lower(x, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    seen = (at <= row) & (at < n)
    v = tl.load(x + row * n + at, seen, 0.0)
    tl.store(out + row * n + at, v, (at < n) if MENDED else seen)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tril(x)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.shape[1]
        lower[(x.shape[0],)](x, out, n, BLOCK=triton.next_power_of_2(max(n, 16)), MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(40, 48)]


def get_init_inputs():
    return []
