"""A difference with the left neighbour: the first element's neighbour lies before the buffer and is multiplied by 0."""

import torch
import triton
import triton.language as tl

SOURCE = "own: a halo that is read and then weighed with zero"
EXPECT = ("MEM-01",)
ALSO = ("CMP-03", "ORD-02")
CUSTOMARY = "interpreter"


@triton.jit
def difference(x, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n, 0.0).to(tl.float32)
    if MENDED:
        left = tl.load(x + at - 1, (at > 0) & (at < n), 0.0).to(tl.float32)
    else:
        left = tl.load(x + at - 1, at < n, 0.0).to(tl.float32) * (at > 0)
    tl.store(out + at, v - left, at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return x - torch.nn.functional.pad(x, (1, 0))[: x.shape[0]]


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        difference[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256, MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(700)]


def get_init_inputs():
    return []
