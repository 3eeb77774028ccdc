"""Layer normalisation with the variance as the mean of squares less the square of the mean."""

import torch
import triton
import triton.language as tl

SOURCE = "NVIDIA/trt-samples-for-hackathon-cn #88"
EXPECT = ("ORD-01",)
ALSO = ("CMP-01", "CMP-03", "ORD-03", "PRC-01")


@triton.jit
def norm(x, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n, 0.0).to(tl.float32)
    mean = tl.sum(v, 0) / n
    d = v - mean
    if MENDED:
        kept = tl.where(at < n, d, 0.0)
        var = tl.sum(kept * kept, 0) / n
    else:
        var = tl.sum(v * v, 0) / n - mean * mean
    tl.store(out + row * n + at, d / tl.sqrt(var + 1e-5), at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.layer_norm(x, x.shape[-1:])


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.shape[-1]
        norm[(x.shape[0],)](x, out, n, BLOCK=triton.next_power_of_2(max(n, 16)), MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.rand(8, 240)]


def get_init_inputs():
    return []
