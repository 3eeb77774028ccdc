"""A signed square that is not tied to autograd: its input asks for a gradient and gets none."""

import torch
import triton
import triton.language as tl

SOURCE = "own: the forward is right, the graph ends at it"
EXPECT = ("CMP-02",)


@triton.jit
def forward(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n).to(tl.float32)
    tl.store(out + at, v * tl.abs(v), at < n)


@triton.jit
def backward(x, up, dx, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n).to(tl.float32)
    tl.store(dx + at, 2 * tl.abs(v) * tl.load(up + at, at < n).to(tl.float32), at < n)


class SignedSquare(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        forward[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        ctx.save_for_backward(x)
        return out

    @staticmethod
    def backward(ctx, up):
        (x,) = ctx.saved_tensors
        dx = torch.empty_like(x)
        backward[(triton.cdiv(x.numel(), 256),)](x, up.contiguous(), dx, x.numel(), BLOCK=256)
        return dx


class Model(torch.nn.Module):
    def forward(self, x):
        return x * torch.abs(x)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return SignedSquare.apply(x.detach())


class Repaired(torch.nn.Module):
    def forward(self, x):
        return SignedSquare.apply(x)


def get_inputs():
    return [torch.randn(8, 60, requires_grad=True)]


def get_init_inputs():
    return []
