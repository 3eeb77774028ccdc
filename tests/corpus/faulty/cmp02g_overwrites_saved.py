"""Softmax whose backward writes its gradient over the saved result, without telling autograd."""

import torch
import triton
import triton.language as tl

SOURCE = "linkedin/Liger-Kernel #272, axolotl-ai-cloud/axolotl PR 3892"
EXPECT = ("CMP-02",)


@triton.jit
def forward(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n, -float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * n + at, e / tl.sum(e, 0), at < n)


@triton.jit
def backward(y, up, dx, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    p = tl.load(y + row * n + at, at < n, 0.0).to(tl.float32)
    g = tl.load(up + row * n + at, at < n, 0.0).to(tl.float32)
    tl.store(dx + row * n + at, p * (g - tl.sum(p * g, 0)), at < n)


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mended):
        x = x.contiguous()
        out = torch.empty_like(x)
        forward[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(max(x.shape[1], 16)))
        ctx.save_for_backward(out)
        ctx.mended = mended
        return out

    @staticmethod
    def backward(ctx, up):
        (y,) = ctx.saved_tensors
        dx = torch.empty_like(y) if ctx.mended else y.detach()
        block = triton.next_power_of_2(max(y.shape[1], 16))
        backward[(y.shape[0],)](y, up.contiguous(), dx, y.shape[1], BLOCK=block)
        return dx, None


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        return Softmax.apply(x, self.mended)


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 60, requires_grad=True)]


def get_init_inputs():
    return []
