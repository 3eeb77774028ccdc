"""A matmul that keeps its sum in fp16, and the repaired twin that keeps it in fp32."""

import triton
import triton.language as tl
from compiling import compile_for


@triton.jit
def matmul_fp16_sum(a_ptr, b_ptr, c_ptr, K: tl.constexpr, M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    rows, cols, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK)
    acc = tl.zeros((M, N), dtype=tl.float16)
    for start in range(0, K, BLOCK):
        a = tl.load(a_ptr + rows[:, None] * K + start + depth[None, :])
        b = tl.load(b_ptr + (start + depth)[:, None] * N + cols[None, :])
        acc = tl.dot(a, b, acc, out_dtype=tl.float16)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc)


@triton.jit
def matmul_fp32_sum(a_ptr, b_ptr, c_ptr, K: tl.constexpr, M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    rows, cols, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK)
    acc = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, K, BLOCK):
        a = tl.load(a_ptr + rows[:, None] * K + start + depth[None, :])
        b = tl.load(b_ptr + (start + depth)[:, None] * N + cols[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc.to(tl.float16))


if __name__ == "__main__":
    sizes = {"K": 4096, "M": 128, "N": 128, "BLOCK": 64}
    for kernel in (matmul_fp16_sum, matmul_fp32_sum):
        compile_for("sm_100", kernel, {"a_ptr": "*fp16", "b_ptr": "*fp16", "c_ptr": "*fp16"}, sizes)
