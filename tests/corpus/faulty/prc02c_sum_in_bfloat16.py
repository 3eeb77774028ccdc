"""A plain tl.sum of bfloat16 values, which Triton keeps in bfloat16."""

import torch
import triton
import triton.language as tl

SOURCE = "pytorch/pytorch PR 141052, triton-lang/triton #1960"
EXPECT = ("PRC-02",)
ALSO = "values"


@triton.jit
def mean(x, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n, 0.0)
    if MENDED:
        v = v.to(tl.float32)
    tl.store(out + row, tl.sum(v, 0).to(tl.float32) / n)


class Model(torch.nn.Module):
    def forward(self, x):
        return x.mean(dim=1)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        n = x.shape[1]
        out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        mean[(x.shape[0],)](x, out, n, BLOCK=triton.next_power_of_2(max(n, 16)), MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.rand(8, 200).bfloat16()]


def get_init_inputs():
    return []
