"""The output is kept by size and handed out again: the next call overwrites the last one's result."""

import torch
import triton
import triton.language as tl

SOURCE = "flashinfer-ai/flashinfer PR 4627"
EXPECT = ("ORD-02",)
ALSO = ("HON-01",)


@triton.jit
def slopes(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n).to(tl.float32)
    tl.store(out + at, tl.where(v < 0, 0.25 * v, 3 * v), at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.where(x < 0, 0.25 * x, 3 * x)


class ModelNew(torch.nn.Module):
    mended = False

    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, x):
        x = x.contiguous()
        key = (tuple(x.shape), x.dtype, x.device)
        if self.mended or key not in self.kept:
            self.kept[key] = torch.empty_like(x)
        out = self.kept[key]
        slopes[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 96)]


def get_init_inputs():
    return []
