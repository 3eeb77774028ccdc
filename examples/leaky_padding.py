"""A softmax in KernelBench's format whose padding counts: right at its own width, wrong at every other one.

kcontract verify examples/leaky_padding.py
kcontract verify examples/leaky_padding.py --candidate Repaired
"""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_rows(x, out, n, PADDING: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n, PADDING)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * n + at, e / tl.sum(e, 0), at < n)


class Model(torch.nn.Module):
    """The reference."""

    def forward(self, x):
        return torch.softmax(x, dim=1)


class ModelNew(torch.nn.Module):
    """The candidate: lanes past the row's end load 0, and each adds exp(0 - max) to the sum."""

    padding = 0.0

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        if x.numel():
            block = triton.next_power_of_2(x.shape[1])
            softmax_rows[(x.shape[0],)](x, out, x.shape[1], PADDING=self.padding, BLOCK=block)
        return out


class Repaired(ModelNew):
    """The same with padding that adds nothing."""

    padding = -float("inf")


def get_inputs():
    return [torch.rand(64, 256)]


def get_init_inputs():
    return []
