"""Squared distances as the squares of both less twice the product: near vectors, or a large common part, cancel."""

import torch
import triton
import triton.language as tl

SOURCE = "own: an expansion that cancels"
EXPECT = ("ORD-01",)
ALSO = "values"


@triton.jit
def distance(x, y, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    a = tl.load(x + row * n + at, at < n, 0.0).to(tl.float32)
    b = tl.load(y + row * n + at, at < n, 0.0).to(tl.float32)
    total = tl.sum((a - b) * (a - b), 0) if MENDED else tl.sum(a * a, 0) + tl.sum(b * b, 0) - 2 * tl.sum(a * b, 0)
    tl.store(out + row, total)


class Model(torch.nn.Module):
    def forward(self, x, y):
        return ((x - y) * (x - y)).sum(dim=-1)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        n = x.shape[-1]
        out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        distance[(x.shape[0],)](x, y, out, n, BLOCK=triton.next_power_of_2(max(n, 16)), MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 96), torch.randn(8, 96)]


def get_init_inputs():
    return []
