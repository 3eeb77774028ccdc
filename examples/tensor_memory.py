"""Two 128 x 256 accumulators fill Tensor Memory; scaling the left operand moves it there too, past the limit.

It compiles without complaint and fails when it is loaded on a B200. The repaired twin halves the tile.
"""

import triton
import triton.language as tl
from compiling import compile_for


@triton.jit
def two_products(a_ptr, b_ptr, c_ptr, d_ptr, e_ptr, scale, K, M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    rows, cols, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK)
    first = tl.zeros((M, N), dtype=tl.float32)
    second = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, K, BLOCK):
        a = tl.load(a_ptr + rows[:, None] * K + start + depth[None, :])
        b = tl.load(b_ptr + (start + depth)[:, None] * N + cols[None, :])
        c = tl.load(c_ptr + (start + depth)[:, None] * N + cols[None, :])
        scaled = (a * scale).to(tl.bfloat16)
        first = tl.dot(scaled, b, first)
        second = tl.dot(scaled, c, second)
    place = rows[:, None] * N + cols[None, :]
    tl.store(d_ptr + place, first)
    tl.store(e_ptr + place, second)


if __name__ == "__main__":
    pointers = {"a_ptr": "*bf16", "b_ptr": "*bf16", "c_ptr": "*bf16", "d_ptr": "*fp32", "e_ptr": "*fp32"}
    for width in (256, 128):
        sizes = {"M": 128, "N": width, "BLOCK": 64}
        compile_for("sm_100", two_products, {**pointers, "scale": "fp32", "K": "i32"}, sizes)
