"""A kernel on a stream of its own that waits for nobody and that nobody waits for."""

import torch
import triton
import triton.language as tl

SOURCE = "ScalingIntelligence/KernelBench PR 82"
EXPECT = ("RES-01",)
ALSO = ("CMP-01", "CMP-02", "CMP-03", "EXC-01", "EXC-02", "HON-01", "MEM-01", "ORD-01", "ORD-02", "ORD-03", "PRC-01")
ENGINE = "gpu"


@triton.jit
def square(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n)
    tl.store(out + at, v * v, at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return x * x


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        side = torch.cuda.Stream()
        if self.mended:
            side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            square[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        if self.mended:
            torch.cuda.current_stream().wait_stream(side)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 96)]


def get_init_inputs():
    return []
