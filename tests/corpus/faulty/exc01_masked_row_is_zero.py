"""Softmax that answers zeros for a row of -Inf, where the reference answers NaN and no contract says otherwise."""

import torch
import triton
import triton.language as tl

SOURCE = "own: a fully masked row guarded by a constant"
EXPECT = ("EXC-01",)


@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n, -float("inf")).to(tl.float32)
    top = tl.max(v, 0)
    if not MENDED:
        top = tl.where(top == -float("inf"), 0.0, top)
    e = tl.exp(v - top)
    total = tl.sum(e, 0)
    if not MENDED:
        total = tl.where(total == 0, 1.0, total)
    tl.store(out + row * n + at, e / total, at < n)


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
    return [torch.randn(8, 96)]


def get_init_inputs():
    return []
