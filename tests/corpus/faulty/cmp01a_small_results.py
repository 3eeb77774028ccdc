"""Softmax that drops every result below 1e-3: beside an absolute tolerance of 1e-2 the loss of whole rows is unseen."""

import torch
import triton
import triton.language as tl

SOURCE = "ScalingIntelligence/KernelBench #165"
EXPECT = ("CMP-01",)
ALSO = "values"


@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n, -float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    p = e / tl.sum(e, 0)
    if not MENDED:
        p = tl.where(p < 1e-3, 0.0, p)
    tl.store(out + row * n + at, p, at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.shape[1]
        softmax[(x.shape[0],)](x, out, n, BLOCK=triton.next_power_of_2(max(n, 16)), MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.rand(4, 2048)]


def get_init_inputs():
    return []
