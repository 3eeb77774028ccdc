"""A linear layer whose weights are zero in the reference, so its product is left out: only the bias is stored."""

import torch
import triton
import triton.language as tl

SOURCE = "AI-Hypercomputer/accelerator-agents PR 50"
EXPECT = ("CMP-01",)
ALSO = "values"


@triton.jit
def linear(x, w, b, out, n, k, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    row, column = tl.program_id(0), tl.program_id(1)
    total = tl.load(b + column).to(tl.float32)
    if MENDED:
        at = tl.arange(0, BLOCK)
        left = tl.load(x + row * k + at, at < k, 0.0).to(tl.float32)
        right = tl.load(w + column * k + at, at < k, 0.0).to(tl.float32)
        total += tl.sum(left * right, 0)
    tl.store(out + row * n + column, total)


class Model(torch.nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = torch.nn.Linear(k, n)
        torch.nn.init.zeros_(self.linear.weight)
        torch.nn.init.zeros_(self.linear.bias)

    def forward(self, x):
        return self.linear(x)


class ModelNew(torch.nn.Module):
    mended = False

    def __init__(self, k, n):
        super().__init__()
        self.linear = torch.nn.Linear(k, n)
        torch.nn.init.zeros_(self.linear.weight)
        torch.nn.init.zeros_(self.linear.bias)

    def forward(self, x):
        x = x.contiguous()
        w, b = self.linear.weight, self.linear.bias
        out = torch.empty(x.shape[0], w.shape[0], dtype=x.dtype, device=x.device)
        grid = (x.shape[0], w.shape[0])
        block = triton.next_power_of_2(w.shape[1])
        linear[grid](x, w, b, out, w.shape[0], w.shape[1], BLOCK=block, MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 64)]


def get_init_inputs():
    return [64, 16]
