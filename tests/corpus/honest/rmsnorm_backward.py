"""RMS normalisation with both gradients, the weight's by partial sums a program and a second kernel."""

import torch
import triton
import triton.language as tl

SOURCE = "own: a full backward"


@triton.jit
def forward(x, w, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n, 0.0).to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(v * v, 0) / n + 1e-6)
    tl.store(out + row * n + at, v * scale * tl.load(w + at, at < n, 0.0).to(tl.float32), at < n)


@triton.jit
def backward(x, w, up, dx, parts, rows, n, TILE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    gain = tl.load(w + at, at < n, 0.0).to(tl.float32)
    share = tl.zeros((BLOCK,), tl.float32)
    first = tl.program_id(0) * TILE
    for row in range(first, tl.minimum(first + TILE, rows)):
        v = tl.load(x + row * n + at, at < n, 0.0).to(tl.float32)
        u = tl.load(up + row * n + at, at < n, 0.0).to(tl.float32)
        scale = 1 / tl.sqrt(tl.sum(v * v, 0) / n + 1e-6)
        g = u * gain
        inner = tl.sum(g * v, 0) * scale * scale / n
        tl.store(dx + row * n + at, (g - v * inner) * scale, at < n)
        share += u * v * scale
    tl.store(parts + tl.program_id(0) * n + at, share, at < n)


@triton.jit
def gather(parts, dw, count, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(count):
        total += tl.load(parts + k * n + at, at < n, 0.0)
    tl.store(dw + at, total, at < n)


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        x = x.contiguous()
        rows, n = x.shape
        out = torch.empty_like(x)
        forward[(rows,)](x, w, out, n, BLOCK=triton.next_power_of_2(n))
        ctx.save_for_backward(x, w)
        return out

    @staticmethod
    def backward(ctx, up):
        x, w = ctx.saved_tensors
        rows, n = x.shape
        programs, block = triton.cdiv(rows, 4), triton.next_power_of_2(n)
        dx, dw = torch.empty_like(x), torch.empty_like(w)
        parts = torch.empty(programs, n, dtype=torch.float32, device=x.device)
        backward[(programs,)](x, w, up.contiguous(), dx, parts, rows, n, TILE=4, BLOCK=block)
        gather[(1,)](parts, dw, programs, n, BLOCK=block)
        return dx, dw


class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(n))

    def forward(self, x):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.weight


class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(n))

    def forward(self, x):
        return Norm.apply(x, self.weight)


def get_inputs():
    return [torch.randn(10, 60, requires_grad=True)]


def get_init_inputs():
    return [60]
