"""An exponential of the loaded value as it is: Triton has none in 16 bits, so it does not compile there."""

import torch
import triton
import triton.language as tl

SOURCE = "own: no conversion before a function that takes float32 only"
EXPECT = ("PRC-01",)


@triton.jit
def sigmoid(x, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n)
    if MENDED:
        v = v.to(tl.float32)
    tl.store(out + at, 1 / (1 + tl.exp(-v)), at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.sigmoid(x)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        sigmoid[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256, MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 96)]


def get_init_inputs():
    return []
