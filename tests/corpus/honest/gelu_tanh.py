"""GELU by the tanh formula, for a reference that asks for it."""

import torch
import triton
import triton.language as tl

SOURCE = "own: tanh as a logistic function"


@triton.jit
def gelu(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n).to(tl.float32)
    inner = 1.5957691216057308 * (v + 0.044715 * v * v * v)
    tl.store(out + at, v / (1 + tl.exp(-inner)), at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x, approximate="tanh")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        gelu[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out


def get_inputs():
    return [torch.randn(8, 96)]


def get_init_inputs():
    return []
