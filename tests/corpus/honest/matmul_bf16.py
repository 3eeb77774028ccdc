"""A bfloat16 product with a float32 accumulator, masks on all sides, and a bias."""

import torch
import triton
import triton.language as tl

SOURCE = "own: the common tiled product"


@triton.jit
def matmul(a, b, bias, c, M, N, K, TILE: tl.constexpr, STEP: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inner = tl.arange(0, STEP)
    total = tl.zeros((TILE, TILE), tl.float32)
    for k in range(0, K, STEP):
        real = k + inner < K
        x = tl.load(a + rows[:, None] * K + (k + inner)[None, :], (rows < M)[:, None] & real[None, :], 0.0)
        y = tl.load(b + (k + inner)[:, None] * N + columns[None, :], real[:, None] & (columns < N)[None, :], 0.0)
        total = tl.dot(x, y, total, input_precision="ieee")
    total += tl.load(bias + columns, columns < N, 0.0).to(tl.float32)[None, :]
    mask = (rows < M)[:, None] & (columns < N)[None, :]
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(c.dtype.element_ty), mask)


class Model(torch.nn.Module):
    def forward(self, a, b, bias):
        return a @ b + bias


class ModelNew(torch.nn.Module):
    def forward(self, a, b, bias):
        a, b, bias = a.contiguous(), b.contiguous(), bias.contiguous()
        (m, k), n = a.shape, b.shape[1]
        c = torch.empty(m, n, dtype=a.dtype, device=a.device)
        matmul[(triton.cdiv(m, 32), triton.cdiv(n, 32))](a, b, bias, c, m, n, k, TILE=32, STEP=32)
        return c


def get_inputs():
    return [torch.randn(40, 96).bfloat16(), torch.randn(96, 24).bfloat16(), torch.randn(24).bfloat16()]


def get_init_inputs():
    return []
