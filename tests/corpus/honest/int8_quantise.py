"""Quantises rows to eight bits and back, by the largest magnitude of each row."""

import torch
import triton
import triton.language as tl

SOURCE = "own: quantise by row"
CONTRACT = {"nan": "ignore"}


@triton.jit
def quantise(x, out, scales, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n, 0.0).to(tl.float32)
    scale = tl.max(tl.abs(v), 0) / 127.0 + 1e-6
    rounded = (v / scale + 12582912.0) - 12582912.0  # to the nearest, ties to even: the next float is 1 away there
    tl.store(out + row * n + at, rounded.to(tl.int8), at < n)
    tl.store(scales + row, scale)


class Model(torch.nn.Module):
    def forward(self, x):
        v = x.float()
        scale = v.abs().amax(dim=1, keepdim=True) / 127.0 + 1e-6
        return torch.round(v / scale).to(torch.int8), scale[:, 0]


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n = x.shape[1]
        out = torch.empty(x.shape, dtype=torch.int8, device=x.device)
        scales = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
        quantise[(x.shape[0],)](x, out, scales, n, BLOCK=triton.next_power_of_2(max(n, 16)))
        return out, scales


def get_inputs():
    return [torch.randn(8, 96)]


def get_init_inputs():
    return []
