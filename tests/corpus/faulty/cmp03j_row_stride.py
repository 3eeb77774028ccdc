"""Log-softmax that takes the row's length for its stride: rows of a sliced, padded buffer are read askew."""

import torch
import triton
import triton.language as tl

SOURCE = "vllm-project/vllm #42684"
EXPECT = ("CMP-03",)


@triton.jit
def log_softmax(x, out, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + at, at < n, -float("inf")).to(tl.float32)
    v = v - tl.max(v, 0)
    tl.store(out + row * n + at, v - tl.log(tl.sum(tl.exp(v), 0)), at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.log_softmax(x, dim=1)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        if x.stride(1) != 1:
            x = x.contiguous()
        n = x.shape[1]
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        stride = x.stride(0) if self.mended else n
        log_softmax[(x.shape[0],)](x, out, stride, n, BLOCK=triton.next_power_of_2(max(n, 16)))
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 100)]


def get_init_inputs():
    return []
