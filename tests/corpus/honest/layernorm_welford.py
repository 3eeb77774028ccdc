"""Layer normalisation whose mean and variance are merged tile by tile, with scale and shift."""

import torch
import triton
import triton.language as tl

SOURCE = "own: Welford's update over tiles"


@triton.jit
def norm(x, w, b, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    count, mean, spread = 0.0, 0.0, 0.0
    for first in range(0, n, BLOCK):
        real = first + at < n
        v = tl.load(x + row * n + first + at, real, 0.0).to(tl.float32)
        here = tl.minimum(n - first, BLOCK).to(tl.float32)
        own = tl.sum(v, 0) / here
        d = tl.where(real, v - own, 0.0)
        gap = own - mean
        both = count + here
        spread += tl.sum(d * d, 0) + gap * gap * count * here / both
        mean += gap * here / both
        count = both
    scale = 1 / tl.sqrt(spread / n + 1e-5)
    for first in range(0, n, BLOCK):
        real = first + at < n
        v = tl.load(x + row * n + first + at, real, 0.0).to(tl.float32)
        gain, shift = tl.load(w + first + at, real, 0.0), tl.load(b + first + at, real, 0.0)
        y = (v - mean) * scale * gain.to(tl.float32) + shift.to(tl.float32)
        tl.store(out + row * n + first + at, y, real)


class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = torch.nn.LayerNorm(n)

    def forward(self, x):
        return self.norm(x)


class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = torch.nn.LayerNorm(n)

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.shape[-1]
        norm[(x.numel() // n,)](x, self.norm.weight, self.norm.bias, out, n, BLOCK=64)
        return out


def get_inputs():
    return [torch.randn(8, 200)]


def get_init_inputs():
    return [200]
