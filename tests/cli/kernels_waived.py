"""Kernels with waivers in their source, for ``test_check``."""

import triton
import triton.language as tl


@triton.jit
def waived(x, o, N: tl.constexpr):
    tl.store(o, tl.sum(tl.load(x + tl.arange(0, N)), axis=0))  # kcontract: allow half-precision-accumulator (a test)


@triton.jit
def waived_above(x, o, N: tl.constexpr):
    # kcontract: allow PRC-02 (a test)
    # and another line of comment
    tl.store(o, tl.sum(tl.load(x + tl.arange(0, N)), axis=0))


@triton.jit
def total(value):
    return tl.sum(value, axis=0)


@triton.jit
def waived_at_the_call(x, o, N: tl.constexpr):
    tl.store(o, total(tl.load(x + tl.arange(0, N))))  # kcontract: allow half-precision-accumulator (a test)


@triton.jit
def without_reason(x, o, N: tl.constexpr):
    tl.store(o, tl.sum(tl.load(x + tl.arange(0, N)), axis=0))  # kcontract: allow half-precision-accumulator


@triton.jit
def of_another_rule(x, o, N: tl.constexpr):
    tl.store(o, tl.sum(tl.load(x + tl.arange(0, N)), axis=0))  # kcontract: allow over-budget (not this one)


@triton.jit
def needless(x, o, N: tl.constexpr):
    # kcontract: allow half-precision-accumulator (no longer needed)
    tl.store(o, tl.sum(tl.load(x + tl.arange(0, N)).to(tl.float32), axis=0))


@triton.jit
def misspelt(x, o, N: tl.constexpr):
    tl.store(o, tl.sum(tl.load(x + tl.arange(0, N)), axis=0))  # kcontract: allow half-precision-acumulator (a test)
