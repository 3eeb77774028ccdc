"""The decay from each place of a chunk to its end, from prefix sums of what is never above 0 (−|a|)."""

import torch
import triton
import triton.language as tl


@triton.jit
def decay_kernel(a, o, n, CLAMP: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = -tl.abs(tl.load(a + row * n + c, c < n, 0.0))
    total = tl.cumsum(v, 0)
    difference = tl.sum(tl.where(c == n - 1, total, 0.0), 0) - total
    if CLAMP:
        difference = tl.minimum(difference, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(o + row * n + c, tl.exp(difference), c < n)


class Model(torch.nn.Module):
    def forward(self, a):
        total = torch.cumsum(-a.abs(), dim=1)
        return torch.exp(total[:, -1:] - total)


class ModelNew(torch.nn.Module):
    clamp = True

    def forward(self, a):
        a = a.contiguous()
        o = torch.empty_like(a)
        decay_kernel[(a.shape[0],)](a, o, a.shape[1], self.clamp, triton.next_power_of_2(a.shape[1]))
        return o


class Unclamped(ModelNew):
    clamp = False


def get_inputs():
    return [torch.randn(4, 256) * 0.1]
