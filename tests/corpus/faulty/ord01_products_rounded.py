"""Row-wise dot products whose products are rounded to float16 before a float32 sum."""

import torch
import triton
import triton.language as tl

SOURCE = "own: the sum is wide, its terms are not"
EXPECT = ("ORD-01",)
ALSO = "values"


@triton.jit
def dot(x, y, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    left = tl.load(x + row * n + at, at < n, 0.0).to(tl.float32)
    right = tl.load(y + row * n + at, at < n, 0.0).to(tl.float32)
    terms = left * right
    if not MENDED:
        terms = terms.to(tl.float16).to(tl.float32)
    tl.store(out + row, tl.sum(terms, 0))


class Model(torch.nn.Module):
    def forward(self, x, y):
        return (x.float() * y.float()).sum(dim=1)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        n = x.shape[1]
        out = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
        dot[(x.shape[0],)](x, y, out, n, BLOCK=triton.next_power_of_2(max(n, 16)), MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.rand(8, 200).half(), torch.rand(8, 200).half()]


def get_init_inputs():
    return []
