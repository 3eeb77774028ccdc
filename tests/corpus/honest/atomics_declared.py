"""Column sums by float32 atomics, whose author declares that runs agree within the bound only."""

import torch
import triton
import triton.language as tl

SOURCE = "Dao-AILab/flash-attention #414, #988"
CONTRACT = {"determinism": "bounded"}


@triton.jit
def columns(x, out, rows, n, TILE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    at = tl.arange(0, BLOCK)
    mask = (row < rows)[:, None] & (at < n)[None, :]
    v = tl.load(x + row[:, None] * n + at[None, :], mask, 0.0).to(tl.float32)
    tl.atomic_add(out + at, tl.sum(v, 0), at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return x.float().sum(dim=0)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, n = x.shape
        out = torch.zeros(n, dtype=torch.float32, device=x.device)
        columns[(triton.cdiv(rows, 8),)](x, out, rows, n, TILE=8, BLOCK=triton.next_power_of_2(max(n, 16)))
        return out


def get_inputs():
    return [torch.randn(100, 24)]


def get_init_inputs():
    return []
