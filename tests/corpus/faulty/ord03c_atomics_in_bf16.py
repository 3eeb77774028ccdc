"""Split-K that adds bfloat16 partial products atomically into the result."""

import torch
import triton
import triton.language as tl

SOURCE = "flagos-ai/FlagGems PR 5876"
EXPECT = ("ORD-02", "ORD-03", "PRC-02")
ALSO = "values"


@triton.jit
def matmul(a, b, c, M, N, K, SPLIT: tl.constexpr, TILE: tl.constexpr, STEP: tl.constexpr, MENDED: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    split = tl.program_id(2)
    inner = tl.arange(0, STEP)
    total = tl.zeros((TILE, TILE), tl.float32)
    for k in range(split * STEP, K, SPLIT * STEP):
        real = k + inner < K
        x = tl.load(a + rows[:, None] * K + (k + inner)[None, :], (rows < M)[:, None] & real[None, :], 0.0)
        y = tl.load(b + (k + inner)[:, None] * N + columns[None, :], real[:, None] & (columns < N)[None, :], 0.0)
        total = tl.dot(x, y, total, input_precision="ieee")
    mask = (rows < M)[:, None] & (columns < N)[None, :]
    place = c + rows[:, None] * N + columns[None, :]
    if MENDED:
        tl.store(place, total.to(c.dtype.element_ty), mask)
    else:
        tl.atomic_add(place, total.to(c.dtype.element_ty), mask)


class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b


class ModelNew(torch.nn.Module):
    split = 4

    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[1]
        c = torch.zeros(m, n, dtype=a.dtype, device=a.device)
        grid = (triton.cdiv(m, 16), triton.cdiv(n, 16), self.split)
        matmul[grid](a, b, c, m, n, k, SPLIT=self.split, TILE=16, STEP=32, MENDED=self.split == 1)
        return c


class Repaired(ModelNew):
    split = 1


def get_inputs():
    return [torch.rand(16, 256).bfloat16(), torch.rand(256, 24).bfloat16()]


def get_init_inputs():
    return []
