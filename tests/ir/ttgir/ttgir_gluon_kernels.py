"""Gluon kernels: what only they, or only some pipelines, put into TTGIR. Compiled, never run."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource as SOURCE
from triton.experimental.gluon.language.nvidia import ampere, blackwell, hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

__all__ = ["CASES", "SOURCE"]

# Triton 3.9 has other names for these.
_copy_async = getattr(ampere.async_copy, "async_load", None) or ampere.async_copy.async_copy_global_to_shared
_tma_load = getattr(hopper.tma, "async_load", None) or hopper.tma.async_copy_global_to_shared
_tma_store = getattr(hopper.tma, "async_store", None) or hopper.tma.async_copy_shared_to_global

_SMEM = gl.NVMMASharedLayout.get_default_for([128, 64], gl.float16)


@gluon.jit
def copy(x_ptr, y_ptr, n, layout: gl.constexpr, shared: gl.constexpr):
    offsets = gl.arange(0, 256, layout=layout)
    buffer = gl.allocate_shared_memory(gl.float32, [2, 256], shared)
    _copy_async(buffer.index(0), x_ptr + offsets, mask=offsets < n)
    _copy_async(buffer.index(1), x_ptr + offsets)
    ampere.async_copy.commit_group()
    ampere.async_copy.wait_group(0)
    x = buffer.index(0).load(layout)
    buffer.index(1).store(x + x)
    gl.store(y_ptr + offsets, buffer.index(1).load(layout) + gl.convert_layout(x, layout), mask=offsets < n)


@gluon.jit
def warpgroup(a_desc, b_desc, y_ptr, k, layout: gl.constexpr):
    a = gl.allocate_shared_memory(gl.float16, [128, 64], a_desc.layout)
    b = gl.allocate_shared_memory(gl.float16, [128, 64], b_desc.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    acc = gl.zeros((128, 128), gl.float32, layout)
    phase = 0
    for step in range(0, k, 64):
        mbarrier.expect(bar, 2 * 128 * 64 * 2)
        _tma_load(a_desc, [0, step], bar, a)
        _tma_load(b_desc, [0, step], bar, b)
        mbarrier.wait(bar, phase)
        token = hopper.warpgroup_mma(a, b.permute((1, 0)), acc, is_async=True)
        acc = hopper.warpgroup_mma_wait(0, deps=(token,))
        phase ^= 1
    mbarrier.invalidate(bar)
    rows = gl.arange(0, 128, layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, 128, layout=gl.SliceLayout(0, layout))
    gl.store(y_ptr + rows[:, None] * 128 + columns[None, :], acc)


@gluon.jit
def tensor_core(a_desc, b_desc, y_ptr, k, registers: gl.constexpr, tmem: gl.constexpr):
    a = gl.allocate_shared_memory(gl.float16, [128, 64], a_desc.layout)
    b = gl.allocate_shared_memory(gl.float16, [128, 64], b_desc.layout)
    bars = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(bars.index(i), count=1)
    acc = blackwell.allocate_tensor_memory(gl.float32, [128, 128], tmem)
    acc.store(gl.zeros((128, 128), gl.float32, registers))
    phase = 0
    for step in range(0, k, 64):
        mbarrier.expect(bars.index(0), 2 * 128 * 64 * 2, pred=step < k)
        _tma_load(a_desc, [0, step], bars.index(0), a)
        _tma_load(b_desc, [0, step], bars.index(0), b)
        mbarrier.wait(bars.index(0), phase, pred=step < k, deps=(a, b))
        blackwell.tcgen05_mma(a, b.permute((1, 0)), acc, use_acc=True, pred=step < k)
        blackwell.tcgen05_commit(bars.index(1))
        mbarrier.wait(bars.index(1), phase)
        phase ^= 1
    blackwell.tcgen05_mma(
        a, b.permute((1, 0)), acc, mbarriers=[bars.index(0), bars.index(1)], mbarrier_preds=[k > 1, k > 2]
    )
    blackwell.fence_async_shared()
    mbarrier.arrive(bars.index(0), count=1, pred=k > 0)
    gl.store(y_ptr, gl.sum(gl.sum(acc.load(registers), 0), 0) + acc.slice(0, 64).shape[1])


@gluon.jit
def _default(buffer, bar, x_ptr, layout: gl.constexpr):
    mbarrier.wait(bar, 0)
    x = buffer.load(layout)
    gl.store(x_ptr + gl.arange(0, 256, layout=layout), x)
    return x, 1


@gluon.jit
def _worker(buffer, bar, x_ptr, layout: gl.constexpr):
    one: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    for i in range(4):
        buffer.store(gl.load(x_ptr + i + gl.arange(0, 256, layout=one)))
    mbarrier.arrive(bar, count=1)


@gluon.jit
def _idle(buffer, bar, x_ptr, layout: gl.constexpr):
    if gl.program_id(0) > 3:
        mbarrier.arrive(bar, count=1)


@gluon.jit
def specialised(x_ptr, y_ptr, layout: gl.constexpr, shared: gl.constexpr):
    buffer = gl.allocate_shared_memory(gl.float32, [256], shared)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    x, _ = gl.warp_specialize(
        [
            (_default, (buffer, bar, x_ptr, layout)),
            (_worker, (buffer, bar, x_ptr, layout)),
            (_idle, (buffer, bar, x_ptr, layout)),
        ],
        [1, 1],
        [24, 24],
    )
    gl.store(y_ptr + gl.arange(0, 256, layout=layout), x)


@gluon.jit
def stores(desc, x_ptr, layout: gl.constexpr):
    rows = gl.arange(0, 128, layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, 64, layout=gl.SliceLayout(0, layout))
    buffer = gl.allocate_shared_memory(gl.float16, [128, 64], desc.layout)
    buffer.store(gl.load(x_ptr + rows[:, None] * 64 + columns[None, :]))
    hopper.fence_async_shared()
    _tma_store(desc, [0, 0], buffer)
    hopper.tma.store_wait(pendings=0)


@gluon.jit
def gathers(desc, x_ptr, y_ptr, layout: gl.constexpr, rows: gl.constexpr):
    index = gl.load(x_ptr + gl.arange(0, 32, layout=rows))
    buffer = gl.allocate_shared_memory(gl.float16, [32, 64], desc.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, 32 * 64 * 2)
    blackwell.tma.async_gather(desc, index, 0, bar, buffer)
    mbarrier.wait(bar, 0)
    blackwell.tma.async_scatter(desc, index, 0, buffer)
    blackwell.tma.store_wait(0)


_ROW = gl.BlockedLayout([2], [32], [4], [0])
_TILE = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
_FLAT = gl.SwizzledSharedLayout(1, 1, 1, [0])
_WGMMA = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 128, 16])
_TMEM_ROWS = gl.BlockedLayout([1, 128], [32, 1], [4, 1], [0, 1])
_GATHER_ROWS = gl.SliceLayout(0, gl.BlockedLayout([1, 4], [32, 1], [1, 4], [1, 0]))


def _desc(rows, shared=_SMEM):
    return f"tensordesc<fp16[{rows},64],{shared!r}>"


def _tensor_memory():
    try:
        return blackwell.TensorMemoryLayout((128, 128), col_stride=1)
    except TypeError:
        return blackwell.TensorMemoryLayout((128, 128), unpacked=True)


_PAIR = {"a_desc": _desc(128), "b_desc": _desc(128), "y_ptr": "*fp32", "k": "i32"}
CASES = [
    (copy, {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32"}, {"layout": _ROW, "shared": _FLAT}, (80, 90, 100, 120), {}),
    (warpgroup, _PAIR, {"layout": _WGMMA}, (90,), {}),
    (tensor_core, _PAIR, {"registers": _TMEM_ROWS, "tmem": _tensor_memory()}, (100,), {}),
    (specialised, {"x_ptr": "*fp32", "y_ptr": "*fp32"}, {"layout": _ROW, "shared": _FLAT}, (90, 100), {}),
    (stores, {"desc": _desc(128), "x_ptr": "*fp16"}, {"layout": _TILE}, (90, 100, 120), {}),
    (
        gathers,
        {"desc": _desc(1), "x_ptr": "*i32", "y_ptr": "*fp16"},
        {"layout": _TILE, "rows": _GATHER_ROWS},
        (100,),
        {},
    ),
]
