"""A norm whose squares are summed in strides, not as torch does: other bits, the same bound."""

import torch
import triton
import triton.language as tl

SOURCE = "triton-lang/triton #3076, #10438"


@triton.jit
def norm(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n, BLOCK):
        v = tl.load(x + row * n + first + at, first + at < n, 0.0).to(tl.float32)
        total += v * v
    tl.store(out + row, tl.sqrt(tl.sum(total, 0)))


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.sqrt((x * x).sum(dim=1))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        norm[(x.shape[0],)](x, out, x.shape[1], BLOCK=32)
        return out


def get_inputs():
    return [torch.randn(8, 300)]


def get_init_inputs():
    return []
