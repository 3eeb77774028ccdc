"""Clamping by minimum and maximum, which gives a bound where torch's clamp keeps NaN."""

import torch
import triton
import triton.language as tl

SOURCE = "own: clamp by minimum and maximum"
EXPECT = ("EXC-01",)


@triton.jit
def clamp(x, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n).to(tl.float32)
    v = tl.clamp(v, -1.0, 1.0, propagate_nan=tl.PropagateNan.ALL) if MENDED else tl.minimum(tl.maximum(v, -1.0), 1.0)
    tl.store(out + at, v, at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.clamp(x, -1.0, 1.0)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        clamp[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256, MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 96)]


def get_init_inputs():
    return []
