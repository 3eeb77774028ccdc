"""Softmax shifted by the maximum of the first tile only: later, larger values overflow."""

import torch
import triton
import triton.language as tl

SOURCE = "own: the running maximum is never updated"
EXPECT = ("CMP-01", "EXC-01")
ALSO = "values"


@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    top = tl.max(tl.load(x + row * n + at, at < n, -float("inf")).to(tl.float32), 0)
    if MENDED:
        for k in range(BLOCK, n, BLOCK):
            top = tl.maximum(top, tl.max(tl.load(x + row * n + k + at, k + at < n, -float("inf")).to(tl.float32), 0))
    total = 0.0
    for k in range(0, n, BLOCK):
        v = tl.load(x + row * n + k + at, k + at < n, -float("inf")).to(tl.float32)
        total += tl.sum(tl.exp(v - top), 0)
    for k in range(0, n, BLOCK):
        v = tl.load(x + row * n + k + at, k + at < n, -float("inf")).to(tl.float32)
        tl.store(out + row * n + k + at, tl.exp(v - top) / total, k + at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        softmax[(x.shape[0],)](x, out, x.shape[1], BLOCK=64, MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 200)]


def get_init_inputs():
    return []
