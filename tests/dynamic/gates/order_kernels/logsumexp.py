"""log of a sum of exponentials over tiles: guarded against tiles of −Inf, and not."""

import torch
import triton
import triton.language as tl


@triton.jit
def tile_kernel(x, o, n, GUARD: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    top = -float("inf")
    total = 0.0
    for start in range(0, n, BLOCK):
        c = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + c, c < n, -float("inf"))
        new = tl.maximum(top, tl.max(v, 0))
        base = tl.where(tl.abs(new) == float("inf"), 0.0, new) if GUARD else new
        total = total * tl.exp(top - base) + tl.sum(tl.exp(v - base), 0)
        top = new
    base = tl.where(tl.abs(top) == float("inf"), 0.0, top) if GUARD else top
    tl.store(o + row, tl.log(total) + base)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.logsumexp(x, dim=1)


class ModelNew(torch.nn.Module):
    guard = True

    def forward(self, x):
        x = x.contiguous()
        o = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        tile_kernel[(x.shape[0],)](x, o, x.shape[1], self.guard, 16, num_warps=1)
        return o


class Unguarded(ModelNew):
    guard = False


def get_inputs():
    return [torch.randn(4, 64)]
