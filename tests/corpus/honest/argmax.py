"""The index of the largest element; the first NaN counts as the largest."""

import torch
import triton
import triton.language as tl

SOURCE = "own: argmax"


@triton.jit
def argmax(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n, -float("inf")).to(tl.float32)
    odd = tl.min(tl.where((v != v) & (at < n), at, BLOCK), 0)
    top = tl.max(v, 0)
    best = tl.min(tl.where((v == top) & (at < n), at, BLOCK), 0)
    tl.store(out + row, tl.where(odd < BLOCK, odd, best).to(tl.int64))


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.argmax(x, dim=1)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n = x.shape[1]
        out = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
        argmax[(x.shape[0],)](x, out, n, BLOCK=triton.next_power_of_2(max(n, 16)))
        return out


def get_inputs():
    return [torch.randn(16, 100)]


def get_init_inputs():
    return []
