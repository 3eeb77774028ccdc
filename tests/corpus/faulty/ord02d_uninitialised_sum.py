"""Counts added atomically into memory that nobody has set to zero."""

import torch
import triton
import triton.language as tl

SOURCE = "ByteDance-Seed/Triton-distributed PR 184"
EXPECT = ("ORD-02",)
ALSO = "values"
FRESH = True


@triton.jit
def count(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n, 0.0)
    tl.atomic_add(out + row, tl.sum((v > 0).to(tl.int32), 0))


class Model(torch.nn.Module):
    def forward(self, x):
        return (x > 0).sum(dim=1, dtype=torch.int32)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        make = torch.zeros if self.mended else torch.empty
        out = make(x.shape[0], dtype=torch.int32, device=x.device)
        count[(x.shape[0], triton.cdiv(x.shape[1], 64))](x, out, x.shape[1], BLOCK=64)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 200)]


def get_init_inputs():
    return []
