"""The result is on the input's device, the launch is on the current one."""

import torch
import triton
import triton.language as tl

SOURCE = "linkedin/Liger-Kernel #1303"
EXPECT = ("RES-01",)
ENGINE = "gpu"
DEVICES = 2


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) * 2, at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        device = x.device if self.mended else torch.cuda.current_device()
        with torch.cuda.device(device):
            double[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 96)]


def get_init_inputs():
    return []
