"""Layer normalisation without its scale and shift, which are one and zero when the module is made."""

import torch
import triton
import triton.language as tl

SOURCE = "own: parameters left out because they start at identity"
EXPECT = ("CMP-01",)
ALSO = "values"


@triton.jit
def norm(x, w, b, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    real = at < n
    v = tl.load(x + row * n + at, real, 0.0).to(tl.float32)
    d = tl.where(real, v - tl.sum(v, 0) / n, 0.0)
    y = d / tl.sqrt(tl.sum(d * d, 0) / n + 1e-5)
    if MENDED:
        y = y * tl.load(w + at, real).to(tl.float32) + tl.load(b + at, real).to(tl.float32)
    tl.store(out + row * n + at, y, real)


class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = torch.nn.LayerNorm(n)

    def forward(self, x):
        return self.norm(x)


class ModelNew(torch.nn.Module):
    mended = False

    def __init__(self, n):
        super().__init__()
        self.norm = torch.nn.LayerNorm(n)

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.shape[-1]
        block = triton.next_power_of_2(n)
        norm[(x.numel() // n,)](x, self.norm.weight, self.norm.bias, out, n, BLOCK=block, MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 96)]


def get_init_inputs():
    return [96]
