"""A running sum in bfloat16 stops growing at 256 times its terms; the repaired twin keeps it in float32."""

import triton
import triton.language as tl
from compiling import compile_for


@triton.jit
def column_sum_bf16(x_ptr, out_ptr, rows, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.bfloat16)
    for row in range(rows):
        acc += tl.load(x_ptr + row * BLOCK + cols)
    tl.store(out_ptr + cols, acc)


@triton.jit
def column_sum_fp32(x_ptr, out_ptr, rows, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for row in range(rows):
        acc += tl.load(x_ptr + row * BLOCK + cols).to(tl.float32)
    tl.store(out_ptr + cols, acc.to(tl.bfloat16))


if __name__ == "__main__":
    for kernel in (column_sum_bf16, column_sum_fp32):
        compile_for("sm_100", kernel, {"x_ptr": "*bf16", "out_ptr": "*bf16", "rows": "i32"}, {"BLOCK": 512})
