"""A bf16 matrix product whose K is split: partial sums in float32, stored in bf16, added by bf16 atomics."""

import torch
import triton
import triton.language as tl


@triton.jit
def split_kernel(
    a, b, parts, M, N, K, SIZE, ATOMIC: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    part = tl.program_id(2)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(part * SIZE, part * SIZE + SIZE, BK):
        k = start + tl.arange(0, BK)
        fits = k < K
        left = tl.load(a + m[:, None] * K + k[None, :], (m[:, None] < M) & fits[None, :], 0.0)
        right = tl.load(b + k[:, None] * N + n[None, :], fits[:, None] & (n[None, :] < N), 0.0)
        total = tl.dot(left, right, total)
    inside = (m[:, None] < M) & (n[None, :] < N)
    at = m[:, None] * N + n[None, :]
    if ATOMIC:
        tl.atomic_add(parts + at, total.to(parts.dtype.element_ty), inside)
    else:
        tl.store(parts + part * M * N + at, total.to(parts.dtype.element_ty), inside)


@triton.jit
def gather_kernel(parts, o, count, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in tl.static_range(SPLIT):
        total += tl.load(parts + k * count + at, at < count, 0.0).to(tl.float32)
    tl.store(o + at, total.to(o.dtype.element_ty), at < count)


class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b


class ModelNew(torch.nn.Module):
    partial, atomic, split = torch.float32, False, 2

    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[1]
        partial = self.partial or a.dtype
        size = triton.cdiv(triton.cdiv(k, self.split), 32) * 32
        grid = (triton.cdiv(m, 16), triton.cdiv(n, 16), self.split)
        if self.atomic:
            parts = torch.zeros(m, n, dtype=partial, device=a.device)
        else:
            parts = torch.empty(self.split, m, n, dtype=partial, device=a.device)
        split_kernel[grid](a, b, parts, m, n, k, size, self.atomic, 16, 16, 32, num_warps=1)
        if self.atomic:
            return parts.to(a.dtype)
        o = torch.empty(m, n, dtype=a.dtype, device=a.device)
        gather_kernel[(triton.cdiv(m * n, 256),)](parts, o, m * n, self.split, 256)
        return o


class RoundedPartials(ModelNew):
    partial = None


class RoundedAtomics(ModelNew):
    partial, atomic = None, True


class Float32Atomics(ModelNew):
    atomic, split = True, 4


def get_inputs():
    return [torch.randn(16, 128, dtype=torch.bfloat16), torch.randn(128, 16, dtype=torch.bfloat16)]
