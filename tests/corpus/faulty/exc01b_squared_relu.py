"""The squared ReLU by a maximum with zero, which turns NaN into zero."""

import torch
import triton
import triton.language as tl

SOURCE = "NVIDIA/TensorRT-LLM PR 18082"
EXPECT = ("EXC-01",)


@triton.jit
def squared(x, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n).to(tl.float32)
    v = tl.where(v < 0, 0.0, v) if MENDED else tl.maximum(v, 0.0)
    tl.store(out + at, v * v, at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        kept = torch.relu(x)
        return kept * kept


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        squared[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256, MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 96)]


def get_init_inputs():
    return []
