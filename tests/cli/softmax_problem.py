"""A KernelBench problem with three candidates: an honest one, one that drops NaN, one whose padding counts."""

import torch
import triton
import triton.language as tl


@triton.jit
def rows(x, out, n, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    padding = 0.0 if FAULT == "padding" else -float("inf")
    v = tl.load(x + row * n + at, at < n, padding)
    if FAULT == "nan":
        v = tl.where(v != v, 0.0, v)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * n + at, e / tl.sum(e, 0), at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


class ModelNew(torch.nn.Module):
    fault = ""

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        if x.numel():
            rows[(x.shape[0],)](x, out, x.shape[1], FAULT=self.fault, BLOCK=triton.next_power_of_2(x.shape[1]))
        return out


class DropsNan(ModelNew):
    fault = "nan"


class CountsPadding(ModelNew):
    fault = "padding"


def get_inputs():
    return [torch.rand(8, 64)]


def get_init_inputs():
    return []
