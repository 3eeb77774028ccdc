"""The result is allocated on the current device, not on the input's."""

import torch
import triton
import triton.language as tl

SOURCE = "deepseek-ai/TileKernels #28"
EXPECT = ("RES-01",)


@triton.jit
def halve(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) * 0.5, at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 0.5


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        device = x.device if self.mended else "cuda"
        out = torch.empty(x.shape, dtype=x.dtype, device=device)
        with torch.cuda.device(device):
            halve[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 96)]


def get_init_inputs():
    return []
