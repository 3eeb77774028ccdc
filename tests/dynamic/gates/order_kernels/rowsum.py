"""Sums over rows of 16-bit values: in float32, in 16 bits, by atomics, tuned."""

import torch
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x, o, n, HALF: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + c, c < n, 0.0)
    if not HALF:
        v = v.to(tl.float32)
    tl.store(o + row, tl.sum(v, 0))


@triton.jit
def atomic_kernel(x, o, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * n + c, c < n, 0.0).to(tl.float32)
    tl.atomic_add(o + row, tl.sum(v, 0))


CONFIGS = [triton.Config({"BLOCK": 16}, num_warps=1), triton.Config({"BLOCK": 32}, num_warps=1)]
tuned_kernel = triton.autotune(CONFIGS, key=["n"])(atomic_kernel)
reset_kernel = triton.autotune(CONFIGS, key=["n"], reset_to_zero=["o"])(atomic_kernel)


class Model(torch.nn.Module):
    def forward(self, x):
        return x.sum(dim=1)


class ModelNew(torch.nn.Module):
    half = False

    def forward(self, x):
        x = x.contiguous()
        o = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        sum_kernel[(x.shape[0],)](x, o, x.shape[1], self.half, triton.next_power_of_2(x.shape[1]))
        return o


class Half(ModelNew):
    half = True


class Atomic(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        o = self.memory(x)
        self.launch(x, o)
        return o.to(x.dtype)

    def memory(self, x):
        return torch.zeros(x.shape[0], dtype=torch.float32, device=x.device)

    def launch(self, x, o):
        atomic_kernel[(x.shape[0], triton.cdiv(x.shape[1], 16))](x, o, x.shape[1], 16)


class AddsToLeftovers(Atomic):
    def memory(self, x):
        return torch.empty(x.shape[0], dtype=torch.float32, device=x.device)


class Tuned(Atomic):
    kernel = tuned_kernel

    def launch(self, x, o):
        self.kernel[lambda meta: (x.shape[0], triton.cdiv(x.shape[1], meta["BLOCK"]))](x, o, x.shape[1])


class TunedAndReset(Tuned):
    kernel = reset_kernel


def get_inputs():
    return [torch.randn(4, 256, dtype=torch.bfloat16)]
