"""Softmax over rows: honest, and with faults of buffers and bounds."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x, o, n, stride, LAST: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    if MASKED:
        v = tl.load(x + row * stride + c, c < n, -float("inf"))
    else:
        v = tl.load(x + row * stride + c)
        v = v + tl.where(c < n, 0.0, -float("inf"))
    v = tl.exp(v - tl.max(v, 0))
    tl.store(o + row * stride + c, v / tl.sum(v, 0), c < n - LAST)


def softmax(x, o, last=0, masked=True):
    softmax_kernel[(x.shape[0],)](x, o, x.shape[1], x.stride(0), last, masked, triton.next_power_of_2(x.shape[1]))
    return o


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        return softmax(x, torch.empty_like(x))


class KeepsItsBuffer(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        if getattr(self, "kept", None) is None or self.kept.shape != x.shape or self.kept.dtype != x.dtype:
            self.kept = torch.empty_like(x)
        return softmax(x, self.kept)


class KeepsItsBufferButCopies(KeepsItsBuffer):
    def forward(self, x):
        return super().forward(x).clone()


class WritesIntoItsInput(torch.nn.Module):
    def forward(self, x):
        return softmax(x, x)


class LeavesTheLastColumn(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        return softmax(x, torch.empty_like(x), last=1)


class ReadsPastTheEnd(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        return softmax(x, torch.empty_like(x), masked=False)


@triton.jit
def mark_kernel(x, n):
    tl.store(x + n + tl.arange(0, 4), 7.0)


class WritesPastTheEnd(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        o = softmax(x, torch.empty_like(x))
        mark_kernel[(1,)](x, x.numel())
        return o


def get_inputs():
    return [torch.randn(4, 64)]
