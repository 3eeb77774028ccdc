"""Dropout with the mask given, scaled by what is kept."""

import torch
import triton
import triton.language as tl

SOURCE = "own: dropout"


@triton.jit
def dropout(x, keep, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n, 0.0).to(tl.float32)
    kept = tl.load(keep + at, at < n, 0) != 0
    tl.store(out + at, tl.where(kept, v / 0.75, 0.0), at < n)


class Model(torch.nn.Module):
    def forward(self, x, keep):
        return torch.where(keep != 0, x / 0.75, 0.0)


class ModelNew(torch.nn.Module):
    def forward(self, x, keep):
        x, keep = x.contiguous(), keep.contiguous()
        out = torch.empty_like(x)
        dropout[(triton.cdiv(x.numel(), 256),)](x, keep, out, x.numel(), BLOCK=256)
        return out


def get_inputs():
    return [torch.randn(8, 96), (torch.rand(8, 96) < 0.75).to(torch.int32)]


def get_init_inputs():
    return []
