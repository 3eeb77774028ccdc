"""Small kernels that break an order, each beside a twin that does not, and how they are compiled and checked."""

import functools

import triton
import triton.language as tl
from compiled import compile_kernel

from kcontract.ir.artifact import Artifact
from kcontract.passes.base import check

F32 = {"x": "*fp32", "o": "*fp32", "n": "i32"}
BF16 = {"x": "*bf16", "o": "*bf16", "n": "i32"}


@functools.cache
def _artifact(fn, signature, constants, target, options):
    compiled = compile_kernel(fn, dict(signature), dict(constants), target, **dict(options))
    return Artifact.from_compiled(compiled.metadata, compiled.asm)


def artifact(fn, signature=None, target=90, constants=None, **options):
    """The compiled kernel, once a process. ``constants`` default to BLOCK = 128."""
    signature = F32 if signature is None else signature
    constants = {"BLOCK": 128} if constants is None else constants
    return _artifact(fn, tuple(signature.items()), tuple(constants.items()), target, tuple(options.items()))


def findings(rule, fn, signature=None, target=90, constants=None, contract=None, launches=(), **options):
    """The findings of one rule; fails on an error inside it."""
    made = artifact(fn, signature, target, constants, **options)
    report = check(made, select=[rule], contract=contract, launches=launches)
    assert report.errors == ()
    return report.findings


# ---- unordered-float-atomic


@triton.jit
def split_add(x, o, n, BLOCK: tl.constexpr):
    """Programs along axis 1 add to one row."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(o + at, tl.load(x + tl.program_id(1) * n + at, at < n), at < n)


@triton.jit
def row_add(x, o, n, BLOCK: tl.constexpr):
    """The twin: a row of its own for each program."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(1) * n
    tl.atomic_add(o + row + at, tl.load(x + row + at, at < n), at < n)


@triton.jit
def scatter_add(x, index, o, BLOCK: tl.constexpr):
    """An embedding's backward: where it adds is data."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(o + tl.load(index + at), tl.load(x + at))


@triton.jit
def overlapping_add(x, o, n, BLOCK: tl.constexpr):
    """Blocks of 128 every 100 elements."""
    at = tl.program_id(0) * 100 + tl.arange(0, BLOCK)
    tl.atomic_add(o + at, tl.load(x + at))


@triton.jit
def pairs_add(x, o, n, BLOCK: tl.constexpr):
    """Two programs share one element."""
    program = tl.program_id(0)
    tl.atomic_add(o + program // 2, tl.sum(tl.load(x + program * BLOCK + tl.arange(0, BLOCK))))


@triton.jit
def tiles_add(x, o, n, BLOCK: tl.constexpr):
    """The twin: quotient and remainder together tell programs apart."""
    program = tl.program_id(0)
    at = (program // 8) * n + (program % 8) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(o + at, tl.load(x + program * BLOCK + tl.arange(0, BLOCK)))


@triton.jit
def lanes_add(x, o, n, BLOCK: tl.constexpr):
    """All lanes of a program add to one element."""
    at = tl.arange(0, BLOCK)
    program = tl.program_id(0)
    tl.atomic_add(tl.broadcast_to(o + program, [BLOCK]), tl.load(x + program * BLOCK + at))


@triton.jit
def first_program_adds(x, o, n, BLOCK: tl.constexpr):
    """One writer by a guard."""
    if tl.program_id(0) == 0:
        tl.atomic_add(o, tl.sum(tl.load(x + tl.arange(0, BLOCK))))


@triton.jit
def other_programs_leave(x, o, n, BLOCK: tl.constexpr):
    """One writer by an early return."""
    if tl.program_id(0) != 0:
        return
    tl.atomic_add(o, tl.sum(tl.load(x + tl.arange(0, BLOCK))))


@triton.jit
def count_add(x, o, n, BLOCK: tl.constexpr):
    """Whole numbers in float32: exact in any order."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(o, tl.sum((tl.load(x + at) > 0).to(tl.float32)))


@triton.jit
def persistent_add(x, o, n, BLOCK: tl.constexpr):
    """A loop over tiles that no two programs share."""
    for tile in range(tl.program_id(0), n, tl.num_programs(0)):
        at = tile * BLOCK + tl.arange(0, BLOCK)
        tl.atomic_add(o + at, tl.load(x + at))


@triton.jit
def in_turn(x, o, lock, BLOCK: tl.constexpr):
    """Deterministic attention backward: atomics that wait for their turn."""
    program = tl.program_id(0)
    while tl.atomic_cas(lock, program, program) != program:
        pass
    at = tl.arange(0, BLOCK)
    tl.atomic_add(o + at, tl.load(x + program * BLOCK + at))
    tl.debug_barrier()
    tl.atomic_xchg(lock, program + 1)


@triton.jit
def in_turn_by_counter(x, o, lock, BLOCK: tl.constexpr):
    """The same with a counter that is polled."""
    program = tl.program_id(0)
    while tl.atomic_add(lock, 0) < program:
        pass
    at = tl.arange(0, BLOCK)
    tl.atomic_add(o + at, tl.load(x + program * BLOCK + at))
    tl.debug_barrier()
    tl.atomic_add(lock, 1)


@triton.jit
def in_turn_by_load(x, o, lock, BLOCK: tl.constexpr):
    """The same with a volatile load."""
    program = tl.program_id(0)
    while tl.load(lock, volatile=True) != program:
        pass
    at = tl.arange(0, BLOCK)
    tl.atomic_add(o + at, tl.load(x + program * BLOCK + at))
    tl.debug_barrier()
    tl.atomic_xchg(lock, program + 1)


@triton.jit
def under_lock(x, o, lock, BLOCK: tl.constexpr):
    """A lock that any program may take next."""
    program = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + program * BLOCK + at).to(tl.float32)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(o + at, tl.load(o + at).to(tl.float32) + value)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def descriptor_add(d, x, BLOCK: tl.constexpr):
    """A TMA reduction at one place."""
    at = tl.arange(0, BLOCK)
    base = x + tl.program_id(0) * BLOCK * BLOCK
    d.atomic_add([0, 0], tl.load(base + at[:, None] * BLOCK + at[None, :]))


@triton.jit
def descriptor_rows_add(d, x, BLOCK: tl.constexpr):
    """The twin: a box of its own for each program."""
    at = tl.arange(0, BLOCK)
    program = tl.program_id(0)
    d.atomic_add([program * BLOCK, 0], tl.load(x + program * BLOCK * BLOCK + at[:, None] * BLOCK + at[None, :]))


@triton.jit(noinline=True)
def put(where, value):
    tl.atomic_add(where, value)


@triton.jit
def called_add(x, o, n, BLOCK: tl.constexpr, SHARED: tl.constexpr, GUARD: tl.constexpr):
    """The atomic is in a function of its own, address and guard are the caller's."""
    program = tl.program_id(0)
    if program == 0 or not GUARD:
        put(o if SHARED else o + program, tl.load(x + program))


@triton.jit
def assembly_add(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    where = (o + at).to(tl.int64)
    tl.inline_asm_elementwise(
        "red.global.add.f32 [$1], $2; mov.u32 $0, 0;", "=r,l,f", [where, tl.load(x + at)], tl.int32, False, 1
    )


# ---- half-precision-partials


@triton.jit
def split_k(a, b, c, M, N, K, am, ck, cm, BLOCK: tl.constexpr, BK: tl.constexpr, ATOMIC: tl.constexpr):
    """Split-K: each program along axis 2 multiplies its share of K."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    split = tl.program_id(2)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for step in range(tl.cdiv(K, BK * 4)):
        inner = (step * 4 + split) * BK + tl.arange(0, BK)
        left = tl.load(a + rows[:, None] * am + inner[None, :], inner[None, :] < K, 0.0)
        right = tl.load(b + inner[:, None] * N + columns[None, :], inner[:, None] < K, 0.0)
        total = tl.dot(left, right, total)
    value = total.to(c.dtype.element_ty)
    if ATOMIC:
        tl.atomic_add(c + rows[:, None] * cm + columns[None, :], value)
    else:
        tl.store(c + split * ck + rows[:, None] * cm + columns[None, :], value)


@triton.jit
def split_k_descriptor(d, a, b, BLOCK: tl.constexpr):
    """Split-K whose parts a TMA reduction adds up."""
    at = tl.arange(0, BLOCK)
    tile = tl.program_id(0) * BLOCK * BLOCK + at[:, None] * BLOCK + at[None, :]
    d.atomic_add([0, 0], tl.dot(tl.load(a + tile), tl.load(b + tile)).to(d.dtype))


@triton.jit
def whole_k(a, b, c, M, N, K, am, ck, cm, BLOCK: tl.constexpr, BK: tl.constexpr):
    """The twin: a batch of products, each whole, stored once in 16 bits."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    batch = tl.program_id(2)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for step in range(tl.cdiv(K, BK)):
        inner = step * BK + tl.arange(0, BK)
        left = tl.load(a + batch * M * am + rows[:, None] * am + inner[None, :], inner[None, :] < K, 0.0)
        right = tl.load(b + inner[:, None] * N + columns[None, :], inner[:, None] < K, 0.0)
        total = tl.dot(left, right, total)
    tl.store(c + batch * ck + rows[:, None] * cm + columns[None, :], total.to(c.dtype.element_ty))


@triton.jit
def block_gradient(x, o, lock, BLOCK: tl.constexpr):
    """A classifier's gradient summed over token blocks in the output's type, under a lock."""
    at = tl.arange(0, BLOCK)
    tokens = tl.program_id(0) * 16 + tl.arange(0, 16)
    value = tl.sum(tl.load(x + tokens[:, None] * BLOCK + at[None, :]).to(tl.float32), 0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(o + at, (tl.load(o + at).to(tl.float32) + value).to(o.dtype.element_ty))
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


# ---- variances, roundings


@triton.jit
def variance_one_pass(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + tl.program_id(0) * n + at, at < n, 0.0)
    mean = tl.sum(value) / n
    tl.store(o + tl.program_id(0), tl.sum(value * value) / n - mean * mean)


@triton.jit
def variance_one_pass_in_loop(x, o, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + at, at < n, 0.0)
        total += value
        squares += value * value
    mean = tl.sum(total) / n
    tl.store(o, tl.sum(squares) / n - mean * mean)


@triton.jit
def variance_two_pass(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + tl.program_id(0) * n + at, at < n, 0.0)
    shifted = tl.where(at < n, value - tl.sum(value) / n, 0.0)
    tl.store(o + tl.program_id(0), tl.sum(shifted * shifted) / n)


@triton.jit
def covariance(x, o, n, BLOCK: tl.constexpr):
    """A difference of sums of different values."""
    at = tl.arange(0, BLOCK)
    first, second = tl.load(x + at), tl.load(x + n + at)
    mean = tl.sum(first) / n
    tl.store(o, tl.sum(second * second) / n - mean * mean)


@triton.jit
def rounded_logits(a, b, o, BLOCK: tl.constexpr, ROUND: tl.constexpr):
    """Logits of a product, rounded to bfloat16 or not, and the sum of their exponentials."""
    at = tl.arange(0, BLOCK)
    tile = at[:, None] * BLOCK + at[None, :]
    logits = tl.dot(tl.load(a + tile), tl.load(b + tile))
    if ROUND:
        logits = logits.to(tl.bfloat16).to(tl.float32)
    tl.store(o + at, tl.sum(tl.exp(logits), 1))


# ---- decays


@triton.jit
def decay(x, o, n, BLOCK: tl.constexpr, CLAMP: tl.constexpr):
    """exp(c_last - c_k) of a parallel prefix sum."""
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    prefix = tl.cumsum(value)
    difference = tl.sum(value) - prefix
    if CLAMP:
        difference = tl.minimum(difference, 0.0)
    tl.store(o + at, tl.exp(difference))


@triton.jit
def decay_pairs(x, o, n, BLOCK: tl.constexpr):
    """exp(c_i - c_j) under a mask that clamps nothing."""
    at = tl.arange(0, BLOCK)
    prefix = tl.cumsum(tl.load(x + at))
    difference = tl.where(at[:, None] >= at[None, :], prefix[:, None] - prefix[None, :], float("-inf"))
    tl.store(o + at[:, None] * BLOCK + at[None, :], tl.exp(difference))


@triton.jit
def decay_one(x, o, n, BLOCK: tl.constexpr):
    """The exponential of one prefix sum: no difference."""
    at = tl.arange(0, BLOCK)
    tl.store(o + at, tl.exp(tl.cumsum(tl.load(x + at))))


# ---- read back, in place


@triton.jit
def transpose_through_memory(x, t, o, BLOCK: tl.constexpr, BARRIER: tl.constexpr):
    at = tl.arange(0, BLOCK)
    rows, columns = at[:, None] * BLOCK, at[None, :]
    tl.store(t + rows + columns, tl.load(x + rows + columns))
    if BARRIER:
        tl.debug_barrier()
    tl.store(o + rows + columns, tl.load(t + at[None, :] * BLOCK + at[:, None]))


@triton.jit
def same_back(x, t, o, BLOCK: tl.constexpr):
    """Each thread reads back what it wrote."""
    at = tl.arange(0, BLOCK)
    tl.store(t + at, tl.load(x + at) * 2)
    tl.store(o + at, tl.load(t + at) + 1)


@triton.jit
def scaled_in_place(x, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + at, tl.load(o + at, at < n) * 2, at < n)


@triton.jit
def set_then_add(x, o, n, BLOCK: tl.constexpr):
    """The accumulator is set by the kernel itself."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + at, tl.zeros((BLOCK,), tl.float32))
    tl.debug_barrier()
    tl.atomic_add(o + at, tl.load(x + at))


@triton.jit
def copied(x, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + at, tl.load(x + at, at < n) * 2, at < n)


# ---- order by launch


@triton.jit
def grid_stride_sum(x, o, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for block in range(tl.program_id(0), n, tl.num_programs(0)):
        total += tl.load(x + block * BLOCK + tl.arange(0, BLOCK))
    tl.store(o + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), total)


@triton.jit
def split_sum(x, o, n, num_splits, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    share = tl.cdiv(n, num_splits)
    split = tl.program_id(0)
    for block in range(split * share, min(split * share + share, n)):
        total += tl.load(x + block * BLOCK + tl.arange(0, BLOCK))
    tl.store(o + split * BLOCK + tl.arange(0, BLOCK), total)


@triton.jit
def persistent_matmul(a, b, c, tiles, K, BLOCK: tl.constexpr, BK: tl.constexpr):
    """The loop over tiles strides by the grid, each tile's sum is whole."""
    columns = tl.arange(0, BLOCK)
    inner = tl.arange(0, BK)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        rows = tile * BLOCK + tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK, BLOCK), tl.float32)
        for k in range(0, K, BK):
            left = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
            total = tl.dot(left, tl.load(b + (k + inner)[:, None] * BLOCK + columns[None, :]), total)
        tl.store(c + rows[:, None] * BLOCK + columns[None, :], total.to(tl.float16))


@triton.jit
def fused_persistent_sum(x, o, tiles, steps, BLOCK: tl.constexpr):
    """One loop over all steps of all tiles; the sum starts afresh with each tile."""
    total = tl.zeros((BLOCK,), tl.float32)
    at = tl.arange(0, BLOCK)
    mine = tl.cdiv(tiles, tl.num_programs(0)) * steps
    for step in range(mine):
        tile = tl.program_id(0) + (step // steps) * tl.num_programs(0)
        total += tl.load(x + (tile * steps + step % steps) * BLOCK + at)
        if step % steps == steps - 1:
            tl.store(o + tile * BLOCK + at, total)
            total = tl.zeros((BLOCK,), tl.float32)


@triton.jit
def descriptor_difference(d, x, BLOCK: tl.constexpr):
    """A tile that a TMA copy puts into an allocation, subtracted."""
    at = tl.arange(0, BLOCK)
    tile = d.load([0, 0])
    tl.store(x + at[:, None] * BLOCK + at[None, :], tile - tile * tile)
