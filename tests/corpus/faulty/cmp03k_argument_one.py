"""The mean of rows by a cast of the length, which is no tensor where the length is one and becomes a constant."""

import torch
import triton
import triton.language as tl

SOURCE = "triton-lang/triton #2939"
EXPECT = ("CMP-03",)


@triton.jit
def mean(x, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + row * n + at, at < n, 0.0).to(tl.float32), 0)
    if MENDED:
        tl.store(out + row, total / n)
    else:
        tl.store(out + row, total / n.to(tl.float32))


class Model(torch.nn.Module):
    def forward(self, x):
        return x.mean(dim=1)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        n = x.shape[1]
        out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        mean[(x.shape[0],)](x, out, n, BLOCK=triton.next_power_of_2(max(n, 16)), MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 96)]


def get_init_inputs():
    return []
