"""RMS normalisation without eps: a row of zeros, or of tiny values, is divided by nothing."""

import torch
import triton
import triton.language as tl

SOURCE = "own: eps left out"
EXPECT = ("CMP-01",)
ALSO = ("CMP-03", "EXC-01", "EXC-02", "ORD-01", "ORD-03", "PRC-01")


@triton.jit
def norm(x, out, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n, 0.0).to(tl.float32)
    tl.store(out + row * n + at, v / tl.sqrt(tl.sum(v * v, 0) / n + eps), at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6)


class ModelNew(torch.nn.Module):
    eps = 0.0

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.shape[1]
        norm[(x.shape[0],)](x, out, n, self.eps, BLOCK=triton.next_power_of_2(max(n, 16)))
        return out


class Repaired(ModelNew):
    eps = 1e-6


def get_inputs():
    return [torch.randn(8, 96)]


def get_init_inputs():
    return []
