"""A gate multiplied by an instruction that flushes subnormal results."""

import torch
import triton
import triton.language as tl

SOURCE = "own: mul.ftz in inline assembly"
EXPECT = ("EXC-02",)
CONTRACT = {"subnormals": "preserve"}


@triton.jit
def gated(x, y, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at, at < n).to(tl.float32)
    b = tl.load(y + at, at < n).to(tl.float32)
    c = a * b if MENDED else tl.inline_asm_elementwise("mul.ftz.f32 $0, $1, $2;", "=f,f,f", [a, b], tl.float32, True, 1)
    tl.store(out + at, c, at < n)


class Model(torch.nn.Module):
    def forward(self, x, y):
        return x * y


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty_like(x)
        gated[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256, MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 96), torch.randn(8, 96)]


def get_init_inputs():
    return []
