"""Sums over a window as differences of prefix sums: one large early term and every later window loses its digits."""

import torch
import triton
import triton.language as tl

SOURCE = "own: a window as a difference of prefixes"
EXPECT = ("ORD-03",)
ALSO = ("CMP-01", "CMP-03", "ORD-01", "PRC-01", "EXC-01")


@triton.jit
def window(x, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n, 0.0).to(tl.float32)
    if MENDED:
        total = v
        for k in range(1, 4):
            total += tl.load(x + row * n + at - k, (at >= k) & (at < n), 0.0).to(tl.float32)
    else:
        prefix = tl.cumsum(v, 0)
        before = tl.gather(prefix, tl.maximum(at - 4, 0), 0)
        total = prefix - tl.where(at >= 4, before, 0.0)
    tl.store(out + row * n + at, total, at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.pad(x, (3, 0)).unfold(1, 4, 1).sum(dim=-1)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.shape[1]
        window[(x.shape[0],)](x, out, n, BLOCK=triton.next_power_of_2(max(n, 16)), MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 200)]


def get_init_inputs():
    return []
