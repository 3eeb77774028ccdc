"""Both state scans of the backward for Hopper (sm_90) in Gluon: K = V = 128, 16-bit inputs, a scalar gate.

The steps are those of `scan`, with what Triton decides there laid down by hand: operands arrive by asynchronous copies
one chunk ahead, results leave through one staging buffer, and nothing but the matrix unit stands between one product
and the next. A program is one warpgroup and 64 rows of V; two programs fit on a multiprocessor.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# The bodies below are Gluon, compiled for the GPU; annotations there mean compile-time constants, not Python types.

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    async_copy,
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from kcontract.kernels.gdn.tiles import SIZES

ROWS = gl.constexpr(64)
CHUNK = gl.constexpr(64)
WIDTH = gl.constexpr(128)
PLAIN = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [0]))

# Triton 3.9 renamed it.
_copy = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared


@gluon.jit
def fetch(shared, pointer, row_stride, limit, HEIGHT: gl.constexpr, COLS: gl.constexpr):
    """Start copying a tile ``[HEIGHT, COLS]``; rows from ``limit`` on become zeros."""
    LANES: gl.constexpr = COLS // 8
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [32 // LANES, LANES], [gl.num_warps(), 1], [1, 0])
    rows = gl.arange(0, HEIGHT, gl.SliceLayout(1, layout))
    cols = gl.arange(0, COLS, gl.SliceLayout(0, layout))
    at = pointer + (rows[:, None] * row_stride + cols[None, :])
    _copy(shared, at, mask=(rows < limit)[:, None])


@gluon.jit
def fetch_rows(shared, rows, tile, some):
    """Start copying the vectors Gam, r, beta and ga of a chunk."""
    i = gl.arange(0, 4 * CHUNK, gl.BlockedLayout([2], [32], [4], [0]))
    _copy(shared, rows + tile * (4 * CHUNK) + i, mask=i < 4 * some)


@gluon.jit
def _last(rows):
    """ga of a chunk's last row."""
    line: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    return gl.sum(rows.slice(4 * CHUNK - 1, 1).load(line), 0)


@gluon.jit
def put(pointer, shared, row_stride, COLS: gl.constexpr):
    """Write a tile of 64 rows from shared memory."""
    LANES: gl.constexpr = COLS // 8
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [32 // LANES, LANES], [gl.num_warps(), 1], [1, 0])
    rows = gl.arange(0, 64, gl.SliceLayout(1, layout))
    cols = gl.arange(0, COLS, gl.SliceLayout(0, layout))
    gl.store(pointer + (rows[:, None] * row_stride + cols[None, :]), shared.load(layout))


@gluon.jit
def _boundary(pointer, seq_head, top, GIVEN: gl.constexpr, layout: gl.constexpr):
    x = top + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    d = gl.arange(0, WIDTH, gl.SliceLayout(0, layout))
    if GIVEN:
        at = pointer + seq_head * (WIDTH * WIDTH) + (x[:, None] + d[None, :] * WIDTH)
        return gl.load(at).to(gl.float32)
    return gl.zeros([ROWS, WIDTH], gl.float32, layout)


@gluon.jit
def _forward(
    k, v, rows, inner, h, W, h0, seq_head, hv, hk, top, begin, length, chunk0, chunks, H, HV,
    GIVEN: gl.constexpr, acc: gl.constexpr, wide: gl.constexpr,
):  # fmt: skip
    dtype: gl.constexpr = k.dtype.element_ty
    tall: gl.constexpr = gl.NVMMASharedLayout.get_default_for([CHUNK, WIDTH], dtype)
    square: gl.constexpr = gl.NVMMASharedLayout.get_default_for([CHUNK, CHUNK], dtype)
    left: gl.constexpr = gl.DotOperandLayout(0, acc, 2)
    left_wide: gl.constexpr = gl.DotOperandLayout(0, wide, 2)
    line: gl.constexpr = gl.SliceLayout(0, acc)
    k_s = gl.allocate_shared_memory(dtype, [2, CHUNK, WIDTH], tall)
    v_s = gl.allocate_shared_memory(dtype, [2, CHUNK, ROWS], square)
    inner_s = gl.allocate_shared_memory(dtype, [2, CHUNK, CHUNK], square)
    rows_s = gl.allocate_shared_memory(gl.float32, [2, 4 * CHUNK], PLAIN)
    out = gl.allocate_shared_memory(dtype, [ROWS, WIDTH], tall)
    out_c = gl.allocate_shared_memory(dtype, [CHUNK, ROWS], square)
    zero = gl.zeros([ROWS, CHUNK], gl.float32, acc)

    S = _boundary(h0, seq_head, top, GIVEN, wide)
    tile = chunk0.to(gl.int64) * HV + hv
    some = gl.where(chunks > 0, CHUNK, 0)
    fetch(k_s.index(0), k + (begin * H + hk) * WIDTH, H * WIDTH, length, CHUNK, WIDTH)
    fetch(v_s.index(0), v + (begin * HV + hv) * WIDTH + top, HV * WIDTH, length, CHUNK, ROWS)
    fetch(inner_s.index(0), inner + tile * (CHUNK * CHUNK), CHUNK, some, CHUNK, CHUNK)
    fetch_rows(rows_s.index(0), rows, tile, some)
    async_copy.commit_group()
    for c in range(chunks):
        stage = c % 2
        tile = (chunk0 + c).to(gl.int64) * HV + hv
        s16 = S.to(dtype)
        out.store(s16)
        async_copy.wait_group(0)
        fence_async_shared()
        s16 = gl.convert_layout(s16, left)
        ks = warpgroup_mma(s16, k_s.index(stage).permute((1, 0)), zero, use_acc=False, is_async=True)

        first = begin + (c + 1) * CHUNK
        rest = length - (c + 1) * CHUNK
        some = gl.where(c + 1 < chunks, CHUNK, 0)
        fetch(k_s.index(1 - stage), k + (first * H + hk) * WIDTH, H * WIDTH, rest, CHUNK, WIDTH)
        fetch(v_s.index(1 - stage), v + (first * HV + hv) * WIDTH + top, HV * WIDTH, rest, CHUNK, ROWS)
        fetch(inner_s.index(1 - stage), inner + (tile + HV) * (CHUNK * CHUNK), CHUNK, some, CHUNK, CHUNK)
        fetch_rows(rows_s.index(1 - stage), rows, tile + HV, some)
        async_copy.commit_group()
        put(h + (tile * WIDTH + top) * WIDTH, out, WIDTH, WIDTH)
        v_t = v_s.index(stage).permute((1, 0)).load(acc).to(gl.float32)
        gam = rows_s.index(stage).slice(0, CHUNK).load(line)
        b = rows_s.index(stage).slice(2 * CHUNK, CHUNK).load(line)

        ks = warpgroup_mma_wait(0, deps=[ks])
        w = v_t - ks * gam[None, :]
        right = gl.convert_layout((b[None, :] * w).to(dtype), left)
        w = warpgroup_mma(right, inner_s.index(stage).permute((1, 0)), w, is_async=True)
        S *= gl.exp(_last(rows_s.index(stage)))
        factor = b * rows_s.index(stage).slice(CHUNK, CHUNK).load(line)
        w = warpgroup_mma_wait(0, deps=[w])
        scaled = gl.convert_layout((w * factor[None, :]).to(dtype), left_wide)
        S = warpgroup_mma(scaled, k_s.index(stage), S, is_async=True)
        out_c.permute((1, 0)).store(w.to(dtype))
        put(W + tile * (CHUNK * WIDTH) + top, out_c, WIDTH, ROWS)
        S = warpgroup_mma_wait(0, deps=[S])
    async_copy.wait_group(0)


@gluon.jit
def _reverse(
    q, k, do, rows, inner, P, dh, Y, dht, dh0, scale, seq_head, hv, hk, top, begin, length, chunk0, chunks, H, HV,
    GIVEN: gl.constexpr, WANTED: gl.constexpr, acc: gl.constexpr, wide: gl.constexpr,
):  # fmt: skip
    dtype: gl.constexpr = k.dtype.element_ty
    tall: gl.constexpr = gl.NVMMASharedLayout.get_default_for([CHUNK, WIDTH], dtype)
    square: gl.constexpr = gl.NVMMASharedLayout.get_default_for([CHUNK, CHUNK], dtype)
    left: gl.constexpr = gl.DotOperandLayout(0, acc, 2)
    left_wide: gl.constexpr = gl.DotOperandLayout(0, wide, 2)
    line: gl.constexpr = gl.SliceLayout(0, acc)
    k_s = gl.allocate_shared_memory(dtype, [2, CHUNK, WIDTH], tall)
    q_s = gl.allocate_shared_memory(dtype, [CHUNK, WIDTH], tall)
    do_s = gl.allocate_shared_memory(dtype, [2, CHUNK, ROWS], square)
    p_s = gl.allocate_shared_memory(dtype, [2, CHUNK, CHUNK], square)
    inner_s = gl.allocate_shared_memory(dtype, [2, CHUNK, CHUNK], square)
    rows_s = gl.allocate_shared_memory(gl.float32, [4 * CHUNK], PLAIN)
    out = gl.allocate_shared_memory(dtype, [ROWS, WIDTH], tall)
    kept = out.slice(0, CHUNK, dim=0).slice(0, ROWS, dim=1)
    zero = gl.zeros([ROWS, CHUNK], gl.float32, acc)

    D = _boundary(dht, seq_head, top, GIVEN, wide)
    c = chunks - 1
    tile = (chunk0 + c).to(gl.int64) * HV + hv
    first = begin + c * CHUNK
    rest = gl.where(chunks > 0, length - c * CHUNK, 0)
    some = gl.where(chunks > 0, CHUNK, 0)
    fetch(k_s.index(0), k + (first * H + hk) * WIDTH, H * WIDTH, rest, CHUNK, WIDTH)
    fetch(do_s.index(0), do + (first * HV + hv) * WIDTH + top, HV * WIDTH, rest, CHUNK, ROWS)
    fetch(p_s.index(0), P + tile * (CHUNK * CHUNK), CHUNK, some, CHUNK, CHUNK)
    fetch(inner_s.index(0), inner + tile * (CHUNK * CHUNK), CHUNK, some, CHUNK, CHUNK)
    async_copy.commit_group()
    fetch(q_s, q + (first * H + hk) * WIDTH, H * WIDTH, rest, CHUNK, WIDTH)
    fetch_rows(rows_s, rows, tile, some)
    async_copy.commit_group()
    for back in range(chunks):
        stage = back % 2
        c = chunks - 1 - back
        tile = (chunk0 + c).to(gl.int64) * HV + hv
        d16 = D.to(dtype)
        out.store(d16)
        async_copy.wait_group(1)
        fence_async_shared()
        local = warpgroup_mma(do_s.index(stage).permute((1, 0)), p_s.index(stage), zero, use_acc=False, is_async=True)
        d16 = gl.convert_layout(d16, left)
        dvn = warpgroup_mma(d16, k_s.index(stage).permute((1, 0)), zero, use_acc=False, is_async=True)

        first = begin + (c - 1) * CHUNK
        some = gl.where(c > 0, CHUNK, 0)
        fetch(k_s.index(1 - stage), k + (first * H + hk) * WIDTH, H * WIDTH, some, CHUNK, WIDTH)
        fetch(do_s.index(1 - stage), do + (first * HV + hv) * WIDTH + top, HV * WIDTH, some, CHUNK, ROWS)
        fetch(p_s.index(1 - stage), P + (tile - HV) * (CHUNK * CHUNK), CHUNK, some, CHUNK, CHUNK)
        fetch(inner_s.index(1 - stage), inner + (tile - HV) * (CHUNK * CHUNK), CHUNK, some, CHUNK, CHUNK)
        async_copy.commit_group()
        put(dh + (tile * WIDTH + top) * WIDTH, out, WIDTH, WIDTH)
        async_copy.wait_group(1)
        fence_async_shared()
        r = rows_s.slice(CHUNK, CHUNK).load(line)
        local, dvn = warpgroup_mma_wait(0, deps=[local, dvn])
        dvn = dvn * r[None, :] + local
        b = rows_s.slice(2 * CHUNK, CHUNK).load(line)
        y = warpgroup_mma(
            gl.convert_layout((dvn * b[None, :]).to(dtype), left), inner_s.index(stage), dvn, is_async=True
        )
        gam = rows_s.slice(0, CHUNK).load(line)
        do_t = do_s.index(stage).permute((1, 0)).load(acc).to(gl.float32)
        do_t = gl.convert_layout((do_t * (scale * gam)[None, :]).to(dtype), left_wide)
        D *= gl.exp(_last(rows_s))
        D = warpgroup_mma(do_t, q_s, D, is_async=True)
        factor = -rows_s.slice(2 * CHUNK, CHUNK).load(line) * gam
        y = warpgroup_mma_wait(1, deps=[y])
        z = gl.convert_layout((y * factor[None, :]).to(dtype), left_wide)
        D = warpgroup_mma(z, k_s.index(stage), D, is_async=True)
        kept.permute((1, 0)).store(y.to(dtype))
        put(Y + tile * (CHUNK * WIDTH) + top, kept, WIDTH, ROWS)
        D = warpgroup_mma_wait(0, deps=[D])
        fetch(q_s, q + (first * H + hk) * WIDTH, H * WIDTH, some, CHUNK, WIDTH)
        fetch_rows(rows_s, rows, tile - HV, some)
        async_copy.commit_group()
    async_copy.wait_group(0)
    if WANTED:
        x = top + gl.arange(0, ROWS, gl.SliceLayout(1, wide))
        d = gl.arange(0, WIDTH, gl.SliceLayout(0, wide))
        gl.store(dh0 + seq_head * (WIDTH * WIDTH) + (x[:, None] + d[None, :] * WIDTH), D)


@gluon.jit(do_not_specialize=SIZES)
def backward_scans(
    q, k, v, do, rows, inner, P, h, dh, W, Y, h0, dht, dh0, cu_seqlens, chunk_start, scale, T, NT, H, HV,
    VARLEN: gl.constexpr, HAS_H0: gl.constexpr, HAS_DHT: gl.constexpr, WANT_DH0: gl.constexpr,
):  # fmt: skip
    """Grid (2 tiles of V, sequences * HV, 2 directions). Layouts as in `scan`; rows, inner (N) and P as `prepare`
    keeps them.

    With N in place of A no division by beta is needed later: W = R + N (beta R), Vn = beta W, Y = dVn + N^T (beta dVn).
    """
    acc: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, CHUNK, 16])
    wide: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    top = gl.program_id(0) * ROWS
    n = gl.program_id(1) // HV
    hv = gl.program_id(1) % HV
    hk = hv // (HV // H)
    seq_head = n.to(gl.int64) * HV + hv
    if VARLEN:
        begin = gl.load(cu_seqlens + n).to(gl.int64)
        length = (gl.load(cu_seqlens + n + 1) - begin).to(gl.int32)
        chunk0 = gl.load(chunk_start + n)
        chunks = gl.load(chunk_start + n + 1) - chunk0
    else:
        begin = n.to(gl.int64) * T
        length = T
        chunk0 = n * NT
        chunks = NT
    if gl.program_id(2) == 0:
        _reverse(
            q, k, do, rows, inner, P, dh, Y, dht, dh0, scale, seq_head, hv, hk, top, begin, length, chunk0, chunks,
            H, HV, HAS_DHT, WANT_DH0, acc, wide,
        )  # fmt: skip
    else:
        _forward(
            k, v, rows, inner, h, W, h0, seq_head, hv, hk, top, begin, length, chunk0, chunks, H, HV, HAS_H0, acc, wide
        )
