"""A product whose loop over K has no mask: a K that is no multiple of the tile reads the next row."""

import torch
import triton
import triton.language as tl

SOURCE = "own: no mask along K"
EXPECT = ("CMP-03",)
ALSO = ("MEM-01",)


@triton.jit
def matmul(a, b, c, M, N, K, TILE: tl.constexpr, STEP: tl.constexpr, MENDED: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inner = tl.arange(0, STEP)
    total = tl.zeros((TILE, TILE), tl.float32)
    for k in range(0, K, STEP):
        left, right = (rows < M)[:, None], (columns < N)[None, :]
        if MENDED:
            left, right = left & (k + inner < K)[None, :], right & (k + inner < K)[:, None]
        x = tl.load(a + rows[:, None] * K + (k + inner)[None, :], left, 0.0)
        y = tl.load(b + (k + inner)[:, None] * N + columns[None, :], right, 0.0)
        total = tl.dot(x, y, total, input_precision="ieee")
    mask = (rows < M)[:, None] & (columns < N)[None, :]
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(c.dtype.element_ty), mask)


class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[1]
        c = torch.empty(m, n, dtype=a.dtype, device=a.device)
        grid = (triton.cdiv(m, 16), triton.cdiv(n, 16))
        matmul[grid](a, b, c, m, n, k, TILE=16, STEP=32, MENDED=self.mended)
        return c


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(24, 64, dtype=torch.float16), torch.randn(64, 40, dtype=torch.float16)]


def get_init_inputs():
    return []
