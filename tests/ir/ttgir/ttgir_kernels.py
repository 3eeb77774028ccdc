"""Triton kernels whose IR shows every construct the reader must know; compiled, never run.

``CASES`` lists (kernel, signature, constant arguments, element types, compute capabilities, options). ``$`` in a
signature stands for the element type of the case.
"""

import triton
import triton.language as tl

ALL = (75, 80, 86, 89, 90, 100, 120, 121)
TMA = (90, 100, 120, 121)
FLOATS = ("fp16", "bf16", "fp32")
INTS = ("i8", "i16", "i32", "i64")


@triton.jit
def elementwise(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    y = tl.exp2(x) * tl.rsqrt(tl.abs(x) + 1.0) + tl.where(x > 0, x, 0.0) - tl.sigmoid(x) + tl.sqrt_rn(tl.abs(x))
    y = tl.maximum(y, x, propagate_nan=tl.PropagateNan.ALL) + tl.clamp(x, -1.0, 1.0) + tl.div_rn(x, y) + tl.erf(x)
    y += tl.fma(x, y, y) + tl.floor(x) + tl.cos(x)
    tl.store(
        y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=mask, cache_modifier=".cg", eviction_policy="evict_first"
    )


@triton.jit
def integers(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, cache_modifier=".ca", eviction_policy="evict_last")
    y = ((x >> 2) ^ (x << 1) | 3) & ~x
    y = tl.where((y % 7 == 0) | (y // 3 < n), y, -y).to(x.dtype)
    z = tl.umulhi(x.to(tl.uint32), y.to(tl.uint32))
    tl.store(y_ptr + offsets, y + z.to(x.dtype) + (x.to(tl.float32) * 2).to(x.dtype), mask=x > 0)


@triton.jit
def reductions(x_ptr, y_ptr, n, M: tl.constexpr, N: tl.constexpr):
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + rows[:, None] * n + columns[None, :])
    best, where = tl.max(x, axis=1, return_indices=True)
    tl.store(y_ptr + rows, best + tl.sum(x, axis=1) + tl.min(x, axis=1) + where.to(x.dtype))
    tl.store(y_ptr + columns, tl.argmin(x, axis=0).to(x.dtype) + tl.sum(x, axis=0))
    tl.store(y_ptr, tl.sum(tl.sum(x, axis=1), axis=0) + tl.max(x))


@triton.jit
def logical(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(y_ptr, tl.xor_sum(x, axis=0) + tl.reduce_or(x, axis=0))


@triton.jit
def _welford(mean_a, m2_a, count_a, mean_b, m2_b, count_b):
    count = count_a + count_b
    delta = mean_b - mean_a
    return mean_a + delta * count_b / count, m2_a + m2_b + delta * delta * count_a * count_b / count, count


@triton.jit
def welford(x_ptr, y_ptr, n, M: tl.constexpr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, M)[:, None] * n + tl.arange(0, N)[None, :]).to(tl.float32)
    mean, m2, count = tl.reduce((x, x * 0, x * 0 + 1), 1, _welford)
    tl.store(y_ptr + tl.arange(0, M), (mean + m2 / count).to(y_ptr.dtype.element_ty))


@triton.jit
def scans(x_ptr, y_ptr, n, M: tl.constexpr, N: tl.constexpr):
    offsets = tl.arange(0, M)[:, None] * n + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + offsets)
    tl.store(y_ptr + offsets, tl.cumsum(x, axis=1) + tl.cumprod(x, axis=0, reverse=True).to(x.dtype))


@triton.jit
def _rotate(a0, b0, a1, b1):
    return a0 * a1, b0 * a1 + b1


@triton.jit
def linear_scan(x_ptr, y_ptr, n, M: tl.constexpr, N: tl.constexpr):
    offsets = tl.arange(0, M)[:, None] * n + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + offsets).to(tl.float32)
    a, b = tl.associative_scan((x, x + 1), 0, _rotate)
    tl.store(y_ptr + offsets, (a + b).to(y_ptr.dtype.element_ty))


@triton.jit
def sorting(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(y_ptr + tl.arange(0, BLOCK), tl.flip(tl.sort(x), 0))


@triton.jit
def matmul(
    a_ptr,
    b_ptr,
    c_ptr,
    m,
    n,
    k,
    stride,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    MODE: tl.constexpr,
    out: tl.constexpr,
):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    a_ptrs = a_ptr + rows[:, None] * stride + inner[None, :]
    b_ptrs = b_ptr + inner[:, None] * stride + columns[None, :]
    acc = tl.zeros((M, N), dtype=out)
    for step in range(tl.cdiv(k, K)):
        a = tl.load(a_ptrs, mask=inner[None, :] < k - step * K, other=0.0)
        b = tl.load(b_ptrs, mask=inner[:, None] < k - step * K, other=0.0)
        acc = tl.dot(a, b, acc, input_precision=MODE, out_dtype=out)
        a_ptrs += K
        b_ptrs += K * stride
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c_ptr + rows[:, None] * stride + columns[None, :], acc.to(c_ptr.dtype.element_ty), mask=mask)


@triton.jit
def half_matmul(a_ptr, b_ptr, c_ptr, k, M: tl.constexpr, K: tl.constexpr):
    offsets = tl.arange(0, M)[:, None] * K + tl.arange(0, K)[None, :]
    transposed = tl.arange(0, K)[:, None] + tl.arange(0, M)[None, :] * K
    acc = tl.zeros((M, M), dtype=tl.float16)
    for step in tl.range(0, k, K, num_stages=3):
        a = tl.load(a_ptr + offsets + step)
        acc = tl.dot(a, tl.load(b_ptr + transposed + step), acc, out_dtype=tl.float16)
    tl.store(c_ptr + tl.arange(0, M)[:, None] * M + tl.arange(0, M)[None, :], acc)


@triton.jit
def attention(q_ptr, k_ptr, v_ptr, o_ptr, n, scale, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + inner[None, :])
    biggest = tl.full((M,), float("-inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, D), tl.float32)
    for start in range(0, n, N):
        k = tl.load(k_ptr + (start + columns)[None, :] * D + inner[:, None])
        scores = tl.dot(q, k) * scale
        scores = tl.where(rows[:, None] >= (start + columns)[None, :], scores, float("-inf"))
        new = tl.maximum(biggest, tl.max(scores, 1))
        p = tl.exp2(scores - new[:, None])
        alpha = tl.exp2(biggest - new)
        total = total * alpha + tl.sum(p, 1)
        v = tl.load(v_ptr + (start + columns)[:, None] * D + inner[None, :])
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        biggest = new
    tl.store(o_ptr + rows[:, None] * D + inner[None, :], (acc / total[:, None]).to(o_ptr.dtype.element_ty))


@triton.jit
def scaled_matmul(a_ptr, as_ptr, b_ptr, bs_ptr, c_ptr, k, M: tl.constexpr, K: tl.constexpr, FORMAT: tl.constexpr):
    packed: tl.constexpr = 2 if FORMAT == "e2m1" else 1
    rows, inner, groups = tl.arange(0, M), tl.arange(0, K // packed), tl.arange(0, K // 32)
    acc = tl.zeros((M, M), tl.float32)
    for step in range(k):
        a = tl.load(a_ptr + rows[:, None] * k + inner[None, :] + step * K)
        b = tl.load(b_ptr + rows[None, :] * k + inner[:, None] + step * K)
        a_scale = tl.load(as_ptr + rows[:, None] * k + groups[None, :] + step)
        b_scale = tl.load(bs_ptr + rows[:, None] * k + groups[None, :] + step)
        acc = tl.dot_scaled(a, a_scale, FORMAT, b, b_scale, FORMAT, acc)
    tl.store(c_ptr + rows[:, None] * M + rows[None, :], acc)


@triton.jit
def half_scaled(a_ptr, as_ptr, b_ptr, c_ptr, M: tl.constexpr, K: tl.constexpr):
    rows, inner, groups = tl.arange(0, M), tl.arange(0, K), tl.arange(0, K // 32)
    a = tl.load(a_ptr + rows[:, None] * K + inner[None, :])
    a_scale = tl.load(as_ptr + rows[:, None] * K + groups[None, :])
    b = tl.load(b_ptr + rows[None, :] * K + inner[:, None])
    tl.store(c_ptr + rows[:, None] * M + rows[None, :], tl.dot_scaled(a, a_scale, "e4m3", b, None, "bf16"))


@triton.jit
def atomics(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    old = tl.atomic_add(y_ptr + offsets, x, mask=offsets < n, sem="relaxed", scope="cta")
    tl.atomic_max(z_ptr + offsets, offsets)
    tl.atomic_add(y_ptr + offsets, old, sem="acquire", scope="sys")
    tl.atomic_add(z_ptr, 1)


@triton.jit
def spin(lock_ptr, y_ptr, n, BLOCK: tl.constexpr):
    while tl.atomic_cas(lock_ptr, 0, 1, sem="acquire") == 1:
        pass
    tl.store(y_ptr + tl.arange(0, BLOCK), tl.atomic_xchg(y_ptr + tl.arange(0, BLOCK), n))
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0, sem="release")


@triton.jit
def atomic_accesses(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.atomic_load(x_ptr + offsets, mask=offsets < n, sem="acquire", scope="gpu")
    tl.atomic_store(y_ptr + offsets, x + x, mask=offsets < n, sem="release", scope="gpu")
    tl.atomic_poll(y_ptr, n)
    done = tl.atomic_poll(y_ptr, n, timeout_ns=1000)
    tl.store(x_ptr, done.to(tl.int32))


@triton.jit
def descriptors(x_ptr, y_ptr, m, n, M: tl.constexpr, N: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, shape=[m, n], strides=[n, 1], block_shape=[M, N])
    y = tl.make_tensor_descriptor(y_ptr, shape=[m, n], strides=[n, 1], block_shape=[M, N])
    for row in range(0, m, M):
        tile = x.load([row, 0])
        y.store([row, 0], tile + tile)
    y.atomic_add([0, 0], x.load([0, 0]))


@triton.jit
def host_descriptors(a_desc, b_desc, c_desc, k, M: tl.constexpr, K: tl.constexpr, WS: tl.constexpr):
    acc = tl.zeros((M, M), tl.float32)
    for step in tl.range(0, k, K, warp_specialize=WS):
        acc = tl.dot(a_desc.load([0, step]), b_desc.load([0, step]).T, acc)
    c_desc.store([0, 0], acc.to(tl.float16))


@triton.jit
def persistent(a_desc, b_desc, c_desc, tiles, k, M: tl.constexpr, K: tl.constexpr, FLATTEN: tl.constexpr):
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN):
        acc = tl.zeros((M, M), tl.float32)
        for step in range(k):
            acc = tl.dot(a_desc.load([tile * M, step * K]), b_desc.load([0, step * K]).T, acc)
        c_desc.store([tile * M, 0], acc.to(tl.float16))


@triton.jit
def gather_scatter(desc, x_ptr, y_ptr, column, M: tl.constexpr, N: tl.constexpr):
    rows = tl.load(x_ptr + tl.arange(0, M))
    tile = desc.gather(rows, column)
    desc.scatter(tile + tile, rows, column)
    tl.store(y_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], tile)


@triton.jit
def loops(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    i = 0
    while i < n:
        for j in range(i):
            if j % 2 == 0:
                total += tl.load(x_ptr + j * BLOCK + tl.arange(0, BLOCK)).to(tl.float32)
            else:
                total -= 1.0
                if j > 100:
                    total *= 2.0
        for j in tl.static_range(2):
            total += j
        i += 1
    tl.store(y_ptr + tl.arange(0, BLOCK), total.to(y_ptr.dtype.element_ty))


@triton.jit
def early_return(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    if n < 0:
        return
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    if n == 7:
        tl.store(y_ptr + tl.arange(0, BLOCK), x)
        return
    tl.store(y_ptr + tl.arange(0, BLOCK), x + x)


@triton.jit(noinline=True)
def _device(n, y_ptr, BLOCK: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, BLOCK), n)
    return n + 1, y_ptr


@triton.jit(noinline=True)
def _scalar(n):
    return n * 2


@triton.jit
def calls(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    a, pointer = _device(n, y_ptr, BLOCK)
    tl.store(pointer + _scalar(n) + tl.arange(0, BLOCK), a + x)


@triton.jit
def shapes(x_ptr, y_ptr, n, M: tl.constexpr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    pair = tl.join(x, tl.trans(tl.reshape(x, (N, M))))
    a, b = tl.split(pair)
    c = tl.permute(tl.interleave(a, b).reshape((M, 2, N)), (1, 2, 0))
    d = tl.broadcast_to(tl.expand_dims(tl.sum(c, 0), 0), (2, N, M))
    offsets = tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :]
    tl.store(y_ptr + offsets, tl.sum(d, 0))
    flat = tl.cat(tl.ravel(a), tl.ravel(b), can_reorder=True)
    tl.store(y_ptr + tl.arange(0, 2 * M * N), flat)


@triton.jit
def indexing(x_ptr, i_ptr, y_ptr, M: tl.constexpr, N: tl.constexpr):
    offsets = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + offsets)
    index = tl.load(i_ptr + offsets)
    tl.store(y_ptr + offsets, tl.gather(x, index, 0))
    tl.store(i_ptr + tl.arange(0, 64), tl.histogram(tl.ravel(index), 64))
    tl.store(i_ptr + tl.arange(0, 64), tl.histogram(tl.ravel(index), 64, mask=tl.ravel(index) > 3))


@triton.jit
def assembly(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK)).to(tl.float32)
    code: tl.constexpr = """{ // %x = "quoted" : -> (
    .reg .f32 t; add.f32 t, $2, $3; mov.b32 $0, t; mul.f32 $1, t, t; }"""
    a, b = tl.inline_asm_elementwise(code, "=r,=r,r,r", [x, x], (tl.float32, tl.float32), is_pure=True, pack=1)
    time = tl.inline_asm_elementwise("mov.u32 $0, %clock;", "=r", [], tl.int32, is_pure=False, pack=1)
    tl.store(y_ptr + tl.arange(0, BLOCK), (a + b).to(y_ptr.dtype.element_ty))
    tl.store(y_ptr, time.to(y_ptr.dtype.element_ty))


@triton.jit
def debugging(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.device_print('loc(%x) : {"', x, n)
    tl.device_print("hex", n, hex=True)
    tl.device_assert(n > 0, 'a "quoted" // loc(#loc1) {')
    tl.device_assert(tl.arange(0, BLOCK) < n)
    tl.assume(n > 4)
    x = tl.max_contiguous(tl.multiple_of(x, 16), 16)
    tl.store(y_ptr + tl.arange(0, BLOCK) + n, x)


@triton.jit
def random(y_ptr, seed, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    a, b = tl.pair_uniform_to_normal(tl.rand(seed, offsets), tl.rand(seed, offsets + BLOCK))
    tl.store(y_ptr + offsets, (a + b).to(y_ptr.dtype.element_ty))


@triton.jit
def conversions(x_ptr, y_ptr, p_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    y = x.to(tl.float16).to(tl.uint16, bitcast=True).to(tl.int64)
    address = tl.load(p_ptr).to(tl.pointer_type(tl.float32))
    tl.store(address + tl.arange(0, BLOCK), y.to(tl.float32))
    tl.store(y_ptr + tl.arange(0, BLOCK), x.to(tl.float32).to(tl.float8e5, fp_downcast_rounding="rtne").to(tl.float32))
    tl.store(p_ptr + 1, (y_ptr + 3).to(tl.int64))
    tl.store(y_ptr + tl.arange(0, BLOCK), (x.to(tl.float64) * 3.0).to(tl.float32).to(tl.int1).to(tl.float32))


@triton.jit
def _cases(a, b):
    if a > b:
        return a - b, a
    return b, a + b


@triton.jit
def mapped(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK)).to(tl.float32)
    a, b = tl.map_elementwise(_cases, x, x * 2)
    tl.store(y_ptr + tl.arange(0, BLOCK), (a * b).to(y_ptr.dtype.element_ty))


@triton.jit
def block_pointers(x_ptr, y_ptr, m, n, M: tl.constexpr, N: tl.constexpr):
    x = tl.make_block_ptr(x_ptr, (m, n), (n, 1), (0, 0), (M, N), (1, 0))
    y = tl.make_block_ptr(y_ptr, (m, n), (n, 1), (0, 0), (M, N), (1, 0))
    for _ in range(0, n, N):
        tl.store(y, tl.load(x, boundary_check=(0, 1), padding_option="zero"), boundary_check=(0,))
        x = tl.advance(x, (0, N))
        y = tl.advance(y, (0, N))


@triton.jit
def dependent_launch(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    tl.extra.cuda.gdc_wait()
    x = tl.load(x_ptr + tl.arange(0, BLOCK), volatile=True)
    tl.extra.cuda.gdc_launch_dependents()
    tl.store(
        y_ptr + tl.arange(0, BLOCK), x + tl.extra.cuda.globaltimer().to(x.dtype) + tl.extra.cuda.smid().to(x.dtype)
    )


def _plain(kernel, types, block=256, targets=ALL, warps=(1, 4), **options):
    constants = {"BLOCK": block}
    if "BLOCK" not in kernel.arg_names:
        constants = {"M": 32, "N": 64}
    scalars = [name for name in kernel.arg_names if name not in constants]
    signature = {name: "*$" if name.endswith("_ptr") else "i32" for name in scalars}
    return [(kernel, signature, constants, types, targets, {"num_warps": w, **options}) for w in warps]


_MATMUL = {"a_ptr": "*$", "b_ptr": "*$", "c_ptr": "*fp32", "m": "i32", "n": "i32", "k": "i32", "stride": "i32"}
_ATTENTION = {"q_ptr": "*$", "k_ptr": "*$", "v_ptr": "*$", "o_ptr": "*$", "n": "i32", "scale": "fp32"}
_SCALED = {"a_ptr": "*$", "as_ptr": "*u8", "b_ptr": "*$", "bs_ptr": "*u8", "c_ptr": "*fp32", "k": "i32"}
_DESCRIPTORS = dict.fromkeys(("a_desc", "b_desc"), "tensordesc<fp16[128, 64]>") | {
    "c_desc": "tensordesc<fp16[128, 128]>"
}


def _matmuls():
    for tile, warps, stages in (
        ((64, 64, 32), 4, 2),
        ((128, 128, 64), 8, 3),
        ((16, 32, 64), 2, 4),
        ((128, 64, 64), 4, 1),
    ):
        constants = dict(zip("MNK", tile, strict=True))
        options = {"num_warps": warps, "num_stages": stages}
        ieee, tf32 = constants | {"MODE": "ieee", "out": tl.float32}, constants | {"MODE": "tf32", "out": tl.float32}
        yield matmul, _MATMUL, ieee, ("fp16", "bf16", "fp32"), ALL, options
        yield matmul, _MATMUL, ieee | {"out": tl.int32}, ("i8",), ALL[1:], options
        yield matmul, _MATMUL, tf32, ("fp32",), ALL[1:], options
        yield matmul, _MATMUL, ieee, ("fp8e5", "fp8e4nv"), ALL[3:], options
    yield matmul, _MATMUL, {"M": 64, "N": 64, "K": 32, "MODE": "tf32x3", "out": tl.float32}, ("fp32",), ALL[1:], {}
    yield matmul, _MATMUL, {"M": 16, "N": 16, "K": 16, "MODE": "ieee", "out": tl.float64}, ("fp64",), (80, 90, 100), {}
    clusters = {"num_warps": 8, "num_ctas": 2}
    yield (
        matmul,
        _MATMUL,
        {"M": 256, "N": 128, "K": 64, "MODE": "tf32", "out": tl.float32},
        ("fp16",),
        (90, 100),
        clusters,
    )


CASES = [
    *_plain(elementwise, FLOATS),
    *_plain(integers, INTS),
    *_plain(reductions, (*FLOATS, "i32")),
    *_plain(logical, ("i32",)),
    *_plain(welford, FLOATS),
    *_plain(scans, (*FLOATS, "i32")),
    *_plain(linear_scan, FLOATS),
    *_plain(sorting, ("fp32", "i32"), block=64),
    (atomics, {"x_ptr": "*fp16", "y_ptr": "*fp16", "z_ptr": "*i32", "n": "i32"}, {"BLOCK": 128}, ("",), ALL[2:], {}),
    *_plain(atomics, ("fp32", "i32")),
    *_plain(spin, ("i32",)),
    *(_plain(atomic_accesses, ("i32",)) if hasattr(tl, "atomic_poll") else []),
    *_plain(descriptors, ("fp16", "fp32"), targets=ALL),
    *_plain(loops, FLOATS),
    *_plain(early_return, ("fp32", "i32")),
    *_plain(calls, ("fp16", "fp32")),
    *_plain(shapes, ("fp16", "fp32", "i8")),
    *_plain(assembly, ("fp32",)),
    *_plain(debugging, ("fp32", "i64"), debug=True),
    *_plain(random, ("fp32",)),
    *_plain(mapped, ("fp16", "fp32")),
    *_plain(block_pointers, ("fp16", "fp32")),
    *_plain(dependent_launch, ("fp32",), targets=TMA),
    (indexing, {"x_ptr": "*$", "i_ptr": "*i32", "y_ptr": "*$"}, {"M": 32, "N": 16}, ("fp16", "fp32"), ALL, {}),
    (conversions, {"x_ptr": "*$", "y_ptr": "*fp32", "p_ptr": "*i64"}, {"BLOCK": 128}, ("fp32", "bf16"), ALL, {}),
    *_matmuls(),
    (
        half_matmul,
        dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*fp16") | {"k": "i32"},
        {"M": 64, "K": 64},
        ("",),
        ALL,
        {},
    ),
    (attention, _ATTENTION, {"M": 64, "N": 64, "D": 64}, ("fp16", "bf16"), ALL, {"num_stages": 3}),
    (attention, _ATTENTION, {"M": 128, "N": 64, "D": 128}, ("fp16",), ALL, {"num_warps": 8}),
    (scaled_matmul, _SCALED, {"M": 128, "K": 128, "FORMAT": "e4m3"}, ("fp8e4nv",), ALL[3:], {}),
    (scaled_matmul, _SCALED, {"M": 128, "K": 128, "FORMAT": "e2m1"}, ("u8",), ALL[1:], {}),
    (
        half_scaled,
        {"a_ptr": "*fp8e4nv", "as_ptr": "*u8", "b_ptr": "*bf16", "c_ptr": "*fp32"},
        {"M": 64, "K": 64},
        ("",),
        ALL[3:],
        {},
    ),
    (host_descriptors, _DESCRIPTORS | {"k": "i32"}, {"M": 128, "K": 64, "WS": False}, ("",), TMA, {}),
    (host_descriptors, _DESCRIPTORS | {"k": "i32"}, {"M": 128, "K": 64, "WS": True}, ("",), (100,), {}),
    *(
        (persistent, _DESCRIPTORS | {"tiles": "i32", "k": "i32"}, {"M": 128, "K": 64, "FLATTEN": f}, ("",), TMA, {})
        for f in (False, True)
    ),
    (
        gather_scatter,
        {"desc": "tensordesc<fp16[1, 64]>", "x_ptr": "*i32", "y_ptr": "*fp16", "column": "i32"},
        {"M": 32, "N": 64},
        ("",),
        (100,),
        {},
    ),
]
