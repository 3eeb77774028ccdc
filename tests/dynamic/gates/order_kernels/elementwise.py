"""ELU: honest, dropping NaN, flushing subnormals."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def elu_kernel(x, o, n, FLUSH: tl.constexpr, DROP: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n).to(tl.float32)
    if FLUSH:
        v = tl.inline_asm_elementwise("mul.rn.ftz.f32 $0, $1, 0f3F800000;", "=r,r", [v], tl.float32, True, 1)
    if DROP:
        low = tl.minimum(v, 0.0)
        y = tl.maximum(v, 0.0) + libdevice.expm1(low)
    else:
        y = tl.where(v > 0, v, libdevice.expm1(v))
    tl.store(o + at, y, at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.elu(x)


class ModelNew(torch.nn.Module):
    flush = drop = False

    def forward(self, x):
        x = x.contiguous()
        o = torch.empty_like(x)
        elu_kernel[(triton.cdiv(x.numel(), 128),)](x, o, x.numel(), self.flush, self.drop, 128)
        return o


class DropsNan(ModelNew):
    drop = True


class Flushes(ModelNew):
    flush = True


def get_inputs():
    return [torch.randn(4, 64)]
