"""Soft cap by a ratio of two exponentials, which both overflow where the cap is reached."""

import torch
import triton
import triton.language as tl

SOURCE = "vllm-project/vllm #56578"
EXPECT = ("CMP-01", "EXC-01")
ALSO = "values"


@triton.jit
def softcap(x, out, n, cap, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at, at < n).to(tl.float32) / cap
    if MENDED:
        t = tl.exp(-2 * tl.abs(a))
        far = (1 - t) / (1 + t)
        s = a * a
        near = a * (1 + s * (-1 / 3 + s * (2 / 15 - s * (17 / 315))))
        y = tl.where(tl.abs(a) < 0.2, near, tl.where(a < 0, -far, far))
    else:
        up, down = tl.exp(a), tl.exp(-a)
        y = (up - down) / (up + down)
    tl.store(out + at, cap * y, at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return 50.0 * torch.tanh(x / 50.0)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        softcap[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), 50.0, BLOCK=256, MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 96) * 100]


def get_init_inputs():
    return []
