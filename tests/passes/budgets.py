"""Kernels at and over their budgets, for ``test_budgets``."""

from pathlib import Path

import triton
import triton.language as tl
from compiled import compile_kernel

from kcontract.passes.analysis.occupancy import block_registers


@triton.jit
def two_products(a, b, c, d, e, scale, K, M: tl.constexpr, N: tl.constexpr, B: tl.constexpr):
    rows, cols, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, B)
    first = tl.zeros((M, N), dtype=tl.float32)
    second = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, K, B):
        left = tl.load(a + rows[:, None] * K + start + depth[None, :])
        scaled = (left * scale).to(tl.bfloat16)
        first = tl.dot(scaled, tl.load(b + (start + depth)[:, None] * N + cols[None, :]), first)
        second = tl.dot(scaled, tl.load(c + (start + depth)[:, None] * N + cols[None, :]), second)
    place = rows[:, None] * N + cols[None, :]
    tl.store(d + place, first)
    tl.store(e + place, second)


@triton.jit
def raising(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    asm: tl.constexpr = "setmaxnreg.inc.sync.aligned.u32 232; mov.b32 $0, $1;"
    tl.store(o + i, tl.inline_asm_elementwise(asm, "=r,r", [tl.load(x + i)], tl.float32, is_pure=False, pack=1))


@triton.jit
def lowering(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    asm: tl.constexpr = "setmaxnreg.dec.sync.aligned.u32 96; mov.b32 $0, $1;"
    tl.store(o + i, tl.inline_asm_elementwise(asm, "=r,r", [tl.load(x + i)], tl.float32, is_pure=False, pack=1))


def two_products_for(width, depth=64):
    pointers = {**dict.fromkeys("abc", "*bf16"), "d": "*fp32", "e": "*fp32"}
    return compile_kernel(
        two_products, {**pointers, "scale": "fp32", "K": "i32"}, {"M": 128, "N": width, "B": depth}, 100
    )


def pool_for(direction, count):
    kernel = {("inc", 232): raising, ("dec", 96): lowering}[direction, count]
    return compile_kernel(kernel, {"x": "*fp32", "o": "*fp32"}, {"B": 256}, 90, num_warps=8, maxnreg=128)


def registers(resources, target):
    return block_registers(resources.registers, resources.threads, target)


def source_line(place):
    return Path(place.file).read_text().splitlines()[place.line - 1]
