"""Each row's sum plus the next row's: in two launches, and in one whose programs read what others write."""

import torch
import triton
import triton.language as tl


@triton.jit
def neighbour_kernel(x, sums, o, n, rows, WRITE: tl.constexpr, READ: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    if WRITE:
        tl.store(sums + row, tl.sum(tl.load(x + row * n + c, c < n, 0.0).to(tl.float32), 0))
    if READ:
        tl.store(o + row, tl.load(sums + row) + tl.load(sums + (row + 1) % rows))


class Model(torch.nn.Module):
    def forward(self, x):
        total = x.sum(dim=1)
        return total + total.roll(-1)


class ModelNew(torch.nn.Module):
    launches = ((True, False), (False, True))

    def forward(self, x):
        x = x.contiguous()
        sums = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
        o = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        for write, read in self.launches:
            block = triton.next_power_of_2(x.shape[1])
            neighbour_kernel[(x.shape[0],)](x, sums, o, x.shape[1], x.shape[0], write, read, block, num_warps=1)
        return o


class InOneLaunch(ModelNew):
    launches = ((True, True),)


def get_inputs():
    return [torch.randn(4, 64)]
