"""Softmax with minus infinity in the padding lanes: safe, since each row has a real column."""

import torch
import triton
import triton.language as tl

SOURCE = "triton-lang/triton, python/tutorials/02-fused-softmax.py"


@triton.jit
def softmax(x, out, rows, stride, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        v = tl.load(x + row * stride + at, at < n, -float("inf")).to(tl.float32)
        e = tl.exp(v - tl.max(v, 0))
        tl.store(out + row * n + at, e / tl.sum(e, 0), at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        if x.stride(1) != 1:
            x = x.contiguous()
        rows, n = x.shape
        out = torch.empty(rows, n, dtype=x.dtype, device=x.device)
        softmax[(min(rows, 4),)](x, out, rows, x.stride(0), n, BLOCK=triton.next_power_of_2(max(n, 16)))
        return out


def get_inputs():
    return [torch.randn(10, 77)]


def get_init_inputs():
    return []
