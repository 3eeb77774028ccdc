"""Layer normalisation whose padding lanes, zero less the mean, are squared into the variance."""

import torch
import triton
import triton.language as tl

SOURCE = "triton-lang/triton #9838"
EXPECT = ("CMP-03",)


@triton.jit
def norm(x, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    real = at < n
    d = tl.load(x + row * n + at, real, 0.0).to(tl.float32)
    d = d - tl.sum(d, 0) / n
    if MENDED:
        d = tl.where(real, d, 0.0)
    tl.store(out + row * n + at, d / tl.sqrt(tl.sum(d * d, 0) / n + 1e-5), real)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.layer_norm(x, x.shape[-1:])


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.shape[-1]
        norm[(x.shape[0],)](x, out, n, BLOCK=triton.next_power_of_2(max(n, 1)), MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 256)]


def get_init_inputs():
    return []
