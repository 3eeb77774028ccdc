"""The largest value of each row: with NaN as torch has it, and without."""

import torch
import triton
import triton.language as tl


@triton.jit
def keep(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def max_kernel(x, o, n, KEEP: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + c, c < n, -float("inf"))
    tl.store(o + row, tl.reduce(v, 0, keep) if KEEP else tl.max(v, 0))


class Model(torch.nn.Module):
    def forward(self, x):
        return x.amax(dim=1)


class ModelNew(torch.nn.Module):
    keep = True

    def forward(self, x):
        x = x.contiguous()
        o = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        max_kernel[(x.shape[0],)](x, o, x.shape[1], self.keep, triton.next_power_of_2(x.shape[1]))
        return o


class DropsNan(ModelNew):
    keep = False


def get_inputs():
    return [torch.randn(4, 64)]
