"""The result is always float32, whatever the input is."""

import torch
import triton
import triton.language as tl

SOURCE = "own: the output's type is written down, not taken from the input"
EXPECT = ("PRC-01",)


@triton.jit
def line(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n).to(tl.float32)
    tl.store(out + at, v * 0.5 + 1.0, at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 0.5 + 1.0


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty(x.shape, dtype=x.dtype if self.mended else torch.float32, device=x.device)
        line[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 96)]


def get_init_inputs():
    return []
