"""``tl.sum`` of fp16 values adds in fp16; the repaired twin converts first."""

import triton
import triton.language as tl
from compiling import compile_for


@triton.jit
def row_sum_fp16(x_ptr, out_ptr, N: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * N + tl.arange(0, N))
    tl.store(out_ptr + row, tl.sum(x, axis=0))


@triton.jit
def row_sum_fp32(x_ptr, out_ptr, N: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * N + tl.arange(0, N))
    tl.store(out_ptr + row, tl.sum(x.to(tl.float32), axis=0))


if __name__ == "__main__":
    for kernel in (row_sum_fp16, row_sum_fp32):
        compile_for("sm_100", kernel, {"x_ptr": "*fp16", "out_ptr": "*fp16"}, {"N": 4096})
