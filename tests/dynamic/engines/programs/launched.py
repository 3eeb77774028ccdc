"""Kernels the test programs launch."""

import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (64, 128) for warps in (2, 4)]


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) + tl.load(y + at, at < n), at < n)


@triton.autotune(CONFIGS, key=["n"])
@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) * 2, at < n)


@triton.autotune([triton.Config({"FAULT": fault}) for fault in ("abort", "error", "none")], key=["n"])
@triton.jit
def picky(x, n, FAULT: tl.constexpr):
    value = tl.load(x + tl.arange(0, 32))
    if FAULT == "abort":
        value = tl.inline_asm_elementwise("mov.b32 $0, $1;", "{zz}", [value], tl.float32, is_pure=True, pack=1)
    if FAULT == "error":
        value = value + not_defined  # noqa: F821
    tl.store(x + tl.arange(0, 32), value)


@triton.jit
def kills_the_compiler(x):
    at = tl.arange(0, 32)
    tl.store(x + at, tl.inline_asm_elementwise("mov.b32 $0, $1;", "{zz}", [tl.load(x + at)], tl.float32, True, 1))


@triton.jit
def does_not_compile(x):
    tl.store(x, not_defined)  # noqa: F821
