"""A float32 product with the default precision of tl.dot, which is TF32: the format's error, not a fault."""

import torch
import triton
import triton.language as tl

SOURCE = "pytorch #67384, triton-lang/triton #6192"


@triton.jit
def matmul(a, b, c, M, N, K, TILE: tl.constexpr, STEP: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inner = tl.arange(0, STEP)
    total = tl.zeros((TILE, TILE), tl.float32)
    for k in range(0, K, STEP):
        real = k + inner < K
        x = tl.load(a + rows[:, None] * K + (k + inner)[None, :], (rows < M)[:, None] & real[None, :], 0.0)
        y = tl.load(b + (k + inner)[:, None] * N + columns[None, :], real[:, None] & (columns < N)[None, :], 0.0)
        total = tl.dot(x, y, total)
    mask = (rows < M)[:, None] & (columns < N)[None, :]
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(c.dtype.element_ty), mask)


class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[1]
        c = torch.empty(m, n, dtype=a.dtype, device=a.device)
        matmul[(triton.cdiv(m, 32), triton.cdiv(n, 32))](a, b, c, m, n, k, TILE=32, STEP=32)
        return c


def get_inputs():
    return [torch.randn(40, 64), torch.randn(64, 24)]


def get_init_inputs():
    return []
