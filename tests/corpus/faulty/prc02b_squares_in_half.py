"""RMS normalisation that squares and sums in float16: 70000 is already Inf."""

import torch
import triton
import triton.language as tl

SOURCE = "ROCm/triton PR 633"
EXPECT = ("PRC-02",)
ALSO = "values"


@triton.jit
def norm(x, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n, 0.0)
    if MENDED:
        v = v.to(tl.float32)
    mean = tl.sum(v * v, 0).to(tl.float32) / n
    tl.store(out + row * n + at, v.to(tl.float32) / tl.sqrt(mean + 1e-6), at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        v = x.float()
        return (v / torch.sqrt((v * v).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.shape[1]
        norm[(x.shape[0],)](x, out, n, BLOCK=triton.next_power_of_2(max(n, 16)), MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.rand(4, 1200).half()]


def get_init_inputs():
    return []
