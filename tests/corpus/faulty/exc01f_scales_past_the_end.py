"""Group scales are loaded without a mask: past the end of their buffer lies anything, and zero times NaN is NaN."""

import torch
import triton
import triton.language as tl

SOURCE = "triton-lang/triton #10772"
EXPECT = ("MEM-01",)
ALSO = ("CMP-01", "CMP-03", "EXC-01", "PRC-01", "ORD-02")
CUSTOMARY = "interpreter"


@triton.jit
def weighted(x, scales, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n, 0.0).to(tl.float32)
    if MENDED:
        s = tl.load(scales + row * n + at, at < n, 0.0).to(tl.float32)
    else:
        s = tl.load(scales + row * n + at).to(tl.float32)
    tl.store(out + row, tl.sum(v * s, 0))


class Model(torch.nn.Module):
    def forward(self, x, scales):
        return (x * scales).sum(dim=1)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x, scales):
        x, scales = x.contiguous(), scales.contiguous()
        n = x.shape[1]
        out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        block = triton.next_power_of_2(max(n, 16))
        weighted[(x.shape[0],)](x, scales, out, n, BLOCK=block, MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 100), torch.rand(8, 100)]


def get_init_inputs():
    return []
