"""Small kernels, named after what the rules of ``fake_rules`` say of them."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def clean(x, y, N: tl.constexpr):
    tl.store(y + tl.arange(0, N), tl.load(x + tl.arange(0, N)))


@triton.jit
def violation(x, y, N: tl.constexpr):
    tl.store(y + tl.arange(0, N), tl.load(x + tl.arange(0, N)))


@triton.jit
def guess(x, y, N: tl.constexpr):
    tl.store(y + tl.arange(0, N), tl.load(x + tl.arange(0, N)))


@triton.jit
def hazard(x, y, N: tl.constexpr):
    tl.store(y + tl.arange(0, N), tl.load(x + tl.arange(0, N)))


@triton.jit
def note(x, y, N: tl.constexpr):
    tl.store(y + tl.arange(0, N), tl.load(x + tl.arange(0, N)))


@triton.jit
def misfit(x, y, N: tl.constexpr):
    tl.store(y + tl.arange(0, N), tl.load(x + tl.arange(0, N)))


@triton.jit
def defect(x, y, N: tl.constexpr):
    tl.store(y + tl.arange(0, N), tl.load(x + tl.arange(0, N)))


@triton.jit
def interrupt(x, y, N: tl.constexpr):
    tl.store(y + tl.arange(0, N), tl.load(x + tl.arange(0, N)))


def compile(kernel, n=128, target=("cuda", 80, 32), **options):
    source = ASTSource(kernel, {"x": "*fp32", "y": "*fp32", "N": "constexpr"}, {"N": n})
    return triton.compile(source, target=GPUTarget(*target), options=options)
