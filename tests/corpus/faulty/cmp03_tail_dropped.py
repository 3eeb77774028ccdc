"""As many programs as whole blocks: what is left over after the last of them is never written."""

import torch
import triton
import triton.language as tl

SOURCE = "own: grid by floor division"
EXPECT = ("CMP-03",)


@triton.jit
def leaky(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n).to(tl.float32)
    tl.store(out + at, tl.where(v < 0, 0.01 * v, v), at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.leaky_relu(x, 0.01)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        leaky[(triton.cdiv(n, 128) if self.mended else n // 128,)](x, out, n, BLOCK=128)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 128)]


def get_init_inputs():
    return []
