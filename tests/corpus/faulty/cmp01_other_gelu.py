"""GELU by the tanh formula where the reference has the exact one: 5e-4 off, far under the customary tolerance."""

import torch
import triton
import triton.language as tl

SOURCE = "own: an approximation passed off as the function"
EXPECT = ("CMP-01",)
ALSO = "values"


@triton.jit
def gelu(x, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n).to(tl.float32)
    if MENDED:
        y = 0.5 * v * (1 + tl.erf(v * 0.7071067811865476))
    else:
        y = v / (1 + tl.exp(-1.5957691216057308 * (v + 0.044715 * v * v * v)))
    tl.store(out + at, y, at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        gelu[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256, MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 96)]


def get_init_inputs():
    return []
