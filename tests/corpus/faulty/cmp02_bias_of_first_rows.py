"""Bias and SiLU; the backward of the bias sums the first tile of rows and no other."""

import torch
import triton
import triton.language as tl

SOURCE = "own: a loop over row tiles that runs once"
EXPECT = ("CMP-02",)


@triton.jit
def forward(x, b, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n).to(tl.float32) + tl.load(b + at, at < n).to(tl.float32)
    tl.store(out + row * n + at, v / (1 + tl.exp(-v)), at < n)


@triton.jit
def backward(x, b, up, dx, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n).to(tl.float32) + tl.load(b + at, at < n).to(tl.float32)
    s = 1 / (1 + tl.exp(-v))
    g = tl.load(up + row * n + at, at < n).to(tl.float32)
    tl.store(dx + row * n + at, g * s * (1 + v * (1 - s)), at < n)


@triton.jit
def bias(dx, db, rows, n, TILE: tl.constexpr, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    at, tile = tl.arange(0, BLOCK), tl.arange(0, TILE)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, rows if MENDED else TILE, TILE):
        mask = ((first + tile) < rows)[:, None] & (at < n)[None, :]
        total += tl.sum(tl.load(dx + (first + tile)[:, None] * n + at[None, :], mask, 0.0).to(tl.float32), 0)
    tl.store(db + at, total, at < n)


class BiasSilu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, b, mended):
        x, b = x.contiguous(), b.contiguous()
        out = torch.empty_like(x)
        forward[(x.shape[0],)](x, b, out, x.shape[1], BLOCK=triton.next_power_of_2(max(x.shape[1], 16)))
        ctx.save_for_backward(x, b)
        ctx.mended = mended
        return out

    @staticmethod
    def backward(ctx, up):
        x, b = ctx.saved_tensors
        rows, n = x.shape
        block = triton.next_power_of_2(max(n, 16))
        dx, db = torch.empty_like(x, dtype=torch.float32), torch.empty_like(b)
        backward[(rows,)](x, b, up.contiguous(), dx, n, BLOCK=block)
        bias[(1,)](dx, db, rows, n, TILE=16, BLOCK=block, MENDED=ctx.mended)
        return dx.to(x.dtype), db, None


class Model(torch.nn.Module):
    def forward(self, x, b):
        return torch.nn.functional.silu(x + b)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x, b):
        return BiasSilu.apply(x, b, self.mended)


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(40, 48, requires_grad=True), torch.randn(48, requires_grad=True)]


def get_init_inputs():
    return []
