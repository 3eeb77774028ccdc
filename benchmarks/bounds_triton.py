"""Four honest Triton kernels to judge by the oracle: float32 sums, one pass over a row or a tile of a product."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def _sum(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(out + row, tl.sum(total, 0))


@triton.jit
def _softmax(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * n + at, e / tl.sum(e, 0), mask=at < n)


@triton.jit
def _layer_norm(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    mean = tl.sum(v, 0) / n
    d = tl.where(at < n, v - mean, 0.0)
    tl.store(out + row * n + at, d * tl.rsqrt(tl.sum(d * d, 0) / n + 1e-5), mask=at < n)


@triton.jit
def _logsumexp(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    top = -float("inf")
    total = 0.0
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + at, mask=at < n, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(v, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(v - higher), 0)
        top = higher
    tl.store(out + row, top + tl.log(total))


@triton.jit
def _dot(a, b, out, m, n, k, TF32: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        inner = start + tl.arange(0, BK)
        left = tl.load(
            a + rows[:, None] * k + inner[None, :], mask=(rows[:, None] < m) & (inner[None, :] < k), other=0.0
        )
        right = tl.load(
            b + inner[:, None] * n + columns[None, :], mask=(inner[:, None] < k) & (columns[None, :] < n), other=0.0
        )
        total = tl.dot(left, right, total, input_precision="tf32" if TF32 else "ieee")
    tl.store(out + rows[:, None] * n + columns[None, :], total, mask=(rows[:, None] < m) & (columns[None, :] < n))


KERNELS = {"sum": _sum, "softmax": _softmax, "layer_norm": _layer_norm, "logsumexp": _logsumexp}


def run(name: str, x: Any) -> Any:
    """One row kernel on (rows, n), whole rows at a time where the kernel needs it."""
    rows, n = x.shape
    out = torch.empty(x.shape if name in ("softmax", "layer_norm") else (rows,), dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(n) if name in ("softmax", "layer_norm") else 1024
    KERNELS[name][(rows,)](x.contiguous(), out, n, BLOCK=block)
    return out


def matmul(a: Any, b: Any, tf32: bool) -> Any:
    """(m, k) @ (k, n) with float32 accumulators."""
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty((m, n), dtype=a.dtype, device=a.device)
    _dot[(triton.cdiv(m, 64), triton.cdiv(n, 64))](a, b, out, m, n, k, TF32=tf32, BM=64, BN=64, BK=32)
    return out
