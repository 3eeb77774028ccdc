"""Attention weights under a mask, zeros for a row that is masked throughout, as its contract says."""

import torch
import triton
import triton.language as tl

SOURCE = "tracel-ai/cubecl PR 1070, robertknight/rten PR 1321"
CONTRACT = {"nan": "ignore"}


@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n, -float("inf")).to(tl.float32)
    top = tl.max(v, 0)
    top = tl.where(top == -float("inf"), 0.0, top)
    e = tl.exp(v - top)
    total = tl.sum(e, 0)
    tl.store(out + row * n + at, e / tl.where(total == 0, 1.0, total), at < n)


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
    return [torch.randn(8, 96)]


def get_init_inputs():
    return []
