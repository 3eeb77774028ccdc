"""RMS normalisation whose backward returns nothing for the weight, which then never trains."""

import torch
import triton
import triton.language as tl

SOURCE = "unslothai/unsloth #4533"
EXPECT = ("CMP-02",)


@triton.jit
def forward(x, w, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n, 0.0).to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(v * v, 0) / n + 1e-6)
    tl.store(out + row * n + at, v * scale * tl.load(w + at, at < n, 0.0).to(tl.float32), at < n)


@triton.jit
def backward(x, w, up, dx, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n, 0.0).to(tl.float32)
    g = tl.load(up + row * n + at, at < n, 0.0).to(tl.float32) * tl.load(w + at, at < n, 0.0).to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(v * v, 0) / n + 1e-6)
    inner = tl.sum(g * v, 0) * scale * scale / n
    tl.store(dx + row * n + at, (g - v * inner) * scale, at < n)


@triton.jit
def weight(x, up, dw, rows, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(rows):
        v = tl.load(x + row * n + at, at < n, 0.0).to(tl.float32)
        scale = 1 / tl.sqrt(tl.sum(v * v, 0) / n + 1e-6)
        total += v * scale * tl.load(up + row * n + at, at < n, 0.0).to(tl.float32)
    tl.store(dw + at, total, at < n)


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, mended):
        x = x.contiguous()
        rows, n = x.shape
        out = torch.empty_like(x)
        forward[(rows,)](x, w, out, n, BLOCK=triton.next_power_of_2(n))
        ctx.save_for_backward(x, w)
        ctx.mended = mended
        return out

    @staticmethod
    def backward(ctx, up):
        x, w = ctx.saved_tensors
        rows, n = x.shape
        up, dx = up.contiguous(), torch.empty_like(x)
        block = triton.next_power_of_2(n)
        backward[(rows,)](x, w, up, dx, n, BLOCK=block)
        if not ctx.mended:
            return dx, None, None
        dw = torch.empty_like(w)
        weight[(1,)](x, up, dw, rows, n, BLOCK=block)
        return dx, dw, None


class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(n))

    def forward(self, x):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.weight


class ModelNew(torch.nn.Module):
    mended = False

    def __init__(self, n):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(n))

    def forward(self, x):
        return Norm.apply(x, self.weight, self.mended)


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 60, requires_grad=True)]


def get_init_inputs():
    return [60]
