"""A reduction whose combine function is not associative gives what the layout happens to be; the twin's is."""

import triton
import triton.language as tl
from compiling import compile_for


@triton.jit
def average_of_two(a, b):
    return (a + b) * 0.5


@triton.jit
def total_of_two(a, b):
    return a + b


@triton.jit
def mean_by_averages(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(out_ptr, tl.reduce(x, 0, average_of_two))


@triton.jit
def mean_by_total(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(out_ptr, tl.reduce(x, 0, total_of_two) / N)


if __name__ == "__main__":
    for kernel in (mean_by_averages, mean_by_total):
        compile_for("sm_100", kernel, {"x_ptr": "*fp32", "out_ptr": "*fp32"}, {"N": 1024})
