"""A product of float64 matrices whose factors are cut to float32; only the accumulator is wide."""

import torch
import triton
import triton.language as tl

SOURCE = "flagos-ai/FlagGems #2310"
EXPECT = ("CMP-01",)
ALSO = "values"


@triton.jit
def matmul(a, b, c, N, K, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    row, column = tl.program_id(0), tl.program_id(1)
    at = tl.arange(0, BLOCK)
    x = tl.load(a + row * K + at, at < K, 0.0)
    y = tl.load(b + at * N + column, at < K, 0.0)
    if not MENDED:
        x, y = x.to(tl.float32), y.to(tl.float32)
    tl.store(c + row * N + column, tl.sum(x.to(tl.float64) * y.to(tl.float64), 0))


class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[1]
        c = torch.empty(m, n, dtype=a.dtype, device=a.device)
        matmul[(m, n)](a, b, c, n, k, BLOCK=triton.next_power_of_2(max(k, 16)), MENDED=self.mended)
        return c


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 48, dtype=torch.float64), torch.randn(48, 6, dtype=torch.float64)]


def get_init_inputs():
    return []
