"""Decays as exp of a difference of two prefix sums: rounding makes some differences positive, and exp then explodes."""

import torch
import triton
import triton.language as tl

SOURCE = "vllm-project/vllm PR 37501, state-spaces/mamba PR 713"
EXPECT = ("ORD-03",)
ALSO = ("CMP-01", "ORD-01")


@triton.jit
def decay(x, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    step = -tl.abs(tl.load(x + row * n + at, at < n, 0.0).to(tl.float32))
    prefix = tl.cumsum(step, 0)
    last = tl.sum(tl.where(at == n - 1, prefix, 0.0), 0)
    d = last - prefix
    if MENDED:
        d = tl.where(d > 0, 0.0, d)
    tl.store(out + row * n + at, tl.exp(d), at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        prefix = torch.cumsum(-torch.abs(x), dim=1)
        return torch.exp(prefix[:, -1:] - prefix)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.shape[1]
        decay[(x.shape[0],)](x, out, n, BLOCK=triton.next_power_of_2(max(n, 16)), MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.rand(8, 200) / 16]


def get_init_inputs():
    return []
