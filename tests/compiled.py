"""Real compiler output for tests: ``compile_kernel`` for any target, no GPU, each compile done once a process.

Kernels for it stand here too, so that tests of several readers look at the same code.
"""

import atexit
import functools
import shutil
import tempfile
import warnings

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TARGETS = (75, 80, 90, 100, 120)
_FOLDER = tempfile.mkdtemp(prefix="kcontract-tests-")
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)


def compile_kernel(fn, signature, constexprs, target, **options):
    """The ``CompiledKernel`` of ``fn`` for compute capability ``target`` (such as 90), with Triton's ``options``."""
    frozen = tuple(signature.items()), tuple(constexprs.items()), tuple(options.items())
    return _compile(fn, target, *frozen)


@functools.cache
def _compile(fn, target, signature, constexprs, options):
    types = {**dict(signature), **{name: "constexpr" for name, _ in constexprs}}
    source = ASTSource(fn, types, constexprs=dict(constexprs))
    with triton.knobs.cache.scope(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        triton.knobs.cache.dir = _FOLDER
        return triton.compile(source, target=GPUTarget("cuda", target, 32), options=dict(options))


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask) + tl.load(y + at, mask), mask)


@triton.jit
def sincos(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, at < n)
    tl.store(out + at, tl.sin(value) + tl.cos(value), at < n)


@triton.jit
def halved(value):
    return tl.maximum(value, 0.5)


@triton.jit
def shifted(value):
    return halved(value + 1.0) - 3.0


@triton.jit
def inlined(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, shifted(tl.load(x + at)))


@triton.jit
def matmul(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    total = tl.zeros((M, N), tl.float32)
    for k in range(0, K, BK):
        left = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
        right = tl.load(b + (k + inner)[:, None] * N + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.float16))


@triton.jit
def specialized(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, tl.cdiv(K, BK), warp_specialize=True):
        total = tl.dot(a.load([row, k * BK]), b.load([column, k * BK]).T, total)
    c.store([row, column], total.to(tl.float16))


@triton.jit(noinline=True)
def outlined(value):
    return tl.sin(value) * 2


@triton.jit
def calling(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) + outlined(tl.load(x)))


def add_for(target, **options):
    signature = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"}
    return compile_kernel(add, signature, {"BLOCK": 1024}, target, **options)


def sincos_for(target, block=1024, **options):
    return compile_kernel(sincos, {"x": "*fp32", "out": "*fp32", "n": "i32"}, {"BLOCK": block}, target, **options)


def inlined_for(target):
    return compile_kernel(inlined, {"x": "*fp32", "out": "*fp32"}, {"BLOCK": 128}, target)


def calling_for(target):
    return compile_kernel(calling, {"x": "*fp32", "out": "*fp32"}, {"BLOCK": 128}, target)


def matmul_for(target, block=128, inner=64, **options):
    signature = {"a": "*fp16", "b": "*fp16", "c": "*fp16", "K": "i32"}
    return compile_kernel(matmul, signature, {"M": block, "N": block, "BK": inner}, target, **options)


def specialized_for(target):
    """A warp-specialised TMA matmul; compiles for sm_100 on both Triton ends."""
    blocks = {"BM": 128, "BN": 128, "BK": 64}
    signature = {
        "a": "tensordesc<fp16[128,64]>",
        "b": "tensordesc<fp16[128,64]>",
        "c": "tensordesc<fp16[128,128]>",
        **dict.fromkeys("MNK", "i32"),
    }
    return compile_kernel(specialized, signature, blocks, target)


def corpus():
    """One compile each of a dozen kernel and target pairs."""
    for target in TARGETS:
        yield add_for(target)
        yield sincos_for(target)
    for target in TARGETS[1:]:
        yield matmul_for(target, block=64, inner=32)
    yield inlined_for(90)
    yield calling_for(80)
    yield specialized_for(100)
