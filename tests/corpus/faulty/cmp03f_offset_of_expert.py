"""Rows gathered by a 32-bit index times a 32-bit stride: past 2^31 the offset wraps."""

import torch
import triton
import triton.language as tl

SOURCE = "linkedin/Liger-Kernel #1296, sgl-project/sglang #20389"
EXPECT = ("CMP-03",)
MISSED = "it takes a table of more than 2^31 elements; bounds for all sizes are the static side's to prove"


@triton.jit
def gather(table, index, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0)
    which = tl.load(index + row)
    if not MENDED:
        which = which.to(tl.int32)
    at = tl.arange(0, BLOCK)
    tl.store(out + row.to(tl.int64) * n + at, tl.load(table + which * n + at, at < n), at < n)


class Model(torch.nn.Module):
    def forward(self, table, index):
        return table[index]


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, table, index):
        table, index = table.contiguous(), index.contiguous()
        n = table.shape[1]
        out = torch.empty(index.shape[0], n, dtype=table.dtype, device=table.device)
        block = triton.next_power_of_2(max(n, 16))
        gather[(index.shape[0],)](table, index, out, n, BLOCK=block, MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(32, 48), torch.randint(0, 32, (20,))]


def get_init_inputs():
    return []
