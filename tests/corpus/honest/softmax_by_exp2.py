"""Softmax by the fast exp2, which flushes subnormal results: beside a sum of at least one they are nothing."""

import torch
import triton
import triton.language as tl

SOURCE = "triton-lang/triton PR 3816, #5735"


@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n, -float("inf")).to(tl.float32)
    e = tl.exp2((v - tl.max(v, 0)) * 1.4426950408889634)
    tl.store(out + row * n + at, e / tl.sum(e, 0), at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.shape[1]
        softmax[(x.shape[0],)](x, out, n, BLOCK=triton.next_power_of_2(max(n, 16)))
        return out


def get_inputs():
    return [torch.randn(8, 120)]


def get_init_inputs():
    return []
