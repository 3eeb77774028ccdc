"""Cross-entropy whose backward scales every token's gradient by the first token's upstream gradient."""

import torch
import triton
import triton.language as tl

SOURCE = "linkedin/Liger-Kernel #968"
EXPECT = ("CMP-02",)


@triton.jit
def forward(x, target, loss, lse, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n, -float("inf")).to(tl.float32)
    top = tl.max(v, 0)
    total = top + tl.log(tl.sum(tl.exp(v - top), 0))
    tl.store(lse + row, total)
    tl.store(loss + row, total - tl.load(x + row * n + tl.load(target + row)).to(tl.float32))


@triton.jit
def backward(x, target, lse, upstream, grad, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n, -float("inf")).to(tl.float32)
    p = tl.exp(v - tl.load(lse + row)) - tl.where(at == tl.load(target + row), 1.0, 0.0)
    scale = tl.load(upstream + (row if MENDED else 0)).to(tl.float32)
    tl.store(grad + row * n + at, p * scale, at < n)


class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, target, mended):
        x, target = x.contiguous(), target.contiguous()
        rows, n = x.shape
        loss = torch.empty(rows, dtype=x.dtype, device=x.device)
        lse = torch.empty(rows, dtype=torch.float32, device=x.device)
        forward[(rows,)](x, target, loss, lse, n, BLOCK=triton.next_power_of_2(max(n, 16)))
        ctx.save_for_backward(x, target, lse)
        ctx.mended = mended
        return loss

    @staticmethod
    def backward(ctx, upstream):
        x, target, lse = ctx.saved_tensors
        rows, n = x.shape
        grad = torch.empty_like(x)
        block = triton.next_power_of_2(max(n, 16))
        backward[(rows,)](x, target, lse, upstream.contiguous(), grad, n, BLOCK=block, MENDED=ctx.mended)
        return grad, None, None


class Model(torch.nn.Module):
    def forward(self, x, target):
        return torch.nn.functional.cross_entropy(x, target, reduction="none")


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x, target):
        return Loss.apply(x, target, self.mended)


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 60, requires_grad=True), torch.randint(0, 60, (8,))]


def get_init_inputs():
    return []
