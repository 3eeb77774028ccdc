"""The upper triangle is masked by a product with zero, which keeps NaN and makes NaN of Inf."""

import torch
import triton
import triton.language as tl

SOURCE = "own: a mask that multiplies"
EXPECT = ("EXC-01",)


@triton.jit
def lower(x, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n)
    v = tl.where(at <= row, v, 0.0) if MENDED else v * (at <= row).to(v.dtype)
    tl.store(out + row * n + at, v, at < n)


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
