"""Online log-sum-exp: while all that was seen is -Inf, the old sum is rescaled by exp(-Inf + Inf), which is NaN."""

import torch
import triton
import triton.language as tl

SOURCE = "Dao-AILab/flash-attention #1930"
EXPECT = ("EXC-01",)


@triton.jit
def online(x, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    top, total = -float("inf"), 0.0
    for first in range(0, n, BLOCK):
        v = tl.load(x + row * n + first + at, first + at < n, -float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(v, 0))
        shift = higher
        if MENDED:
            shift = tl.where(tl.abs(higher) == float("inf"), 0.0, higher)
        total = total * tl.exp(top - shift) + tl.sum(tl.exp(v - shift), 0)
        top = shift
    tl.store(out + row, top + tl.log(total))


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.logsumexp(x, dim=1)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        online[(x.shape[0],)](x, out, x.shape[1], BLOCK=64, MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 200)]


def get_init_inputs():
    return []
