# ruff: noqa: E501  (programs are kept as they read: a line an instruction sequence)
"""Small sm_100a programs of clusters, multicast, two-CTA products, Tensor Memory copies and reductions, with results.

Each runs a cluster of 1 or 2 CTAs of 128 threads. Parameters: 4096 bytes in (word i is i), 4096 bytes out, a tensor
map. ``wanted`` gives the words of out from those of in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from kcontract.dynamic.engines.simulator import tensor_map

_FRAME = """.version 8.8
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 mem[];
.visible .entry k(.param .u64 .ptr .global .align 128 in, .param .u64 .ptr .global .align 128 out, .param .align 64 .b8 map[128])
.reqntid 128
{cluster}
{{
.reg .pred %p<20>;
.reg .b16 %h<20>;
.reg .b32 %r<100>;
.reg .b64 %d<40>;
ld.param.b64 %d1, [in];
ld.param.b64 %d2, [out];
mov.b64 %d9, map;
cvta.param.u64 %d9, %d9;
mov.u32 %r1, %tid.x;
shl.b32 %r2, %r1, 2;
mov.u32 %r10, %cluster_ctarank;
xor.b32 %r12, %r10, 1;
shl.b32 %r3, %r10, 9;
add.s32 %r3, %r3, %r2;
cvt.u64.u32 %d3, %r2;
cvt.u64.u32 %d6, %r3;
add.s64 %d4, %d1, %d3;
add.s64 %d5, %d2, %d6;
mov.b32 %r9, mem;
add.s32 %r4, %r9, %r2;
setp.eq.s32 %p1, %r1, 0;
setp.lt.u32 %p2, %r1, 32;
setp.eq.s32 %p3, %r10, 0;
and.pred %p4, %p1, %p3;
mad.lo.s32 %r11, %r10, 1000, %r1;
{body}
ret;
}}
"""
_MEET = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"
_T = np.arange(128)
Words = np.ndarray


def wait(n: int, parity: int = 0, at: int = 0) -> str:
    return (
        f"{{ .reg .pred done;\nagain_{n}: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [mem+{at}], {parity};\n"
        f"@!done bra.uni again_{n}; }}\n"
    )


@dataclass(frozen=True)
class Program:
    """``map_of`` makes the tensor map's fields from the addresses of in and out."""

    name: str
    body: str
    wanted: Callable[[Words], Words]
    ctas: int = 2
    map_of: Callable[[int, int], bytes] = field(default=lambda i, o: bytes(128))
    fill: Callable[[], Words] = field(default=lambda: np.arange(1024, dtype="u4"))

    def text(self) -> str:
        cluster = f".explicitcluster\n.reqnctapercluster {self.ctas}" if self.ctas > 1 else ""
        return _FRAME.format(body=self.body, cluster=cluster)


def _two(f: Callable[[int], Words]) -> Callable[[Words], Words]:
    """128 words a CTA, zeros after them."""
    return lambda x: np.concatenate([f(0), f(1), np.zeros(768)]).astype("i8").astype("u4")


_INIT = "@%p1 mbarrier.init.shared::cta.b64 [mem], {count};\nfence.mbarrier_init.release.cluster;\n" + _MEET
_EXPECT = "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [mem], {bytes};\n"
_SHOW = "ld.shared.b32 %r20, [%r4+1024];\nst.global.b32 [%d5], %r20;\n"


def _square(i: int, o: int, box: tuple[int, int] = (16, 8), source: bool = True) -> bytes:
    return tensor_map.encode(i if source else o, 2, (32, 32), (128,), box, 0, False)


CLUSTERS = (
    Program("shared memory of the other CTA is loaded",
            "st.shared.b32 [%r4], %r11;\n" + _MEET + "mapa.shared::cluster.u32 %r13, %r4, %r12;\nld.shared::cluster.b32 %r14, [%r13];\ngetctarank.shared::cluster.u32 %r15, %r13;\nmad.lo.s32 %r14, %r15, 100000, %r14;\nst.global.b32 [%d5], %r14;\n" + _MEET,
            _two(lambda c: (1 - c) * 101000 + _T)),
    Program("and stored to through a generic address, and updated",
            "mov.b64 %d7, mem;\ncvta.shared.u64 %d7, %d7;\nadd.s64 %d7, %d7, %d3;\nst.shared.b32 [%r4], 7;\n" + _MEET + "mapa.u64 %d8, %d7, %r12;\natom.add.u32 %r14, [%d8], %r11;\n" + _MEET + "ld.shared.b32 %r15, [%r4];\nst.global.b32 [%d5], %r15;\n" + _MEET,
            _two(lambda c: 7 + (1 - c) * 1000 + _T)),
    Program("the leader of a pair is named by clearing a bit of a shared address",
            "st.shared.b32 [%r4], %r11;\n" + _MEET + "and.b32 %r13, %r4, 0xfeffffff;\nld.shared::cluster.b32 %r14, [%r13];\nst.global.b32 [%d5], %r14;\n" + _MEET,
            _two(lambda c: _T)),
    Program("st.async reports to the other CTA's mbarrier",
            _INIT.format(count=1) + _EXPECT.format(bytes=512) + "add.s32 %r16, %r4, 1024;\nmapa.shared::cluster.u32 %r13, %r16, %r12;\nmapa.shared::cluster.u32 %r14, %r9, %r12;\nst.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r13], %r11, [%r14];\n" + wait(1) + _SHOW + _MEET,
            _two(lambda c: (1 - c) * 1000 + _T)),
    Program("red.async reports to the other CTA's mbarrier",
            "st.shared.b32 [%r4+1024], 5;\n" + _INIT.format(count=1) + _EXPECT.format(bytes=512) + "add.s32 %r16, %r4, 1024;\nmapa.shared::cluster.u32 %r13, %r16, %r12;\nmapa.shared::cluster.u32 %r14, %r9, %r12;\nred.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r13], %r11, [%r14];\n" + wait(1) + _SHOW + _MEET,
            _two(lambda c: (1 - c) * 1000 + _T + 5)),
    Program("all threads arrive on the other CTA's mbarrier",
            _INIT.format(count=128) + "mapa.shared::cluster.u32 %r14, %r9, %r12;\nmbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r14];\n" + wait(1) + "st.global.b32 [%d5], %r11;\n" + _MEET,
            _two(lambda c: c * 1000 + _T)),
    Program("a bulk copy is multicast",
            _INIT.format(count=1) + _EXPECT.format(bytes=512) + _MEET + "mov.b16 %h1, 3;\n@%p4 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [mem+1024], [%d1], 512, [mem], %h1;\n" + wait(1) + _SHOW + _MEET,
            _two(lambda c: _T)),
    Program("a tensor copy is multicast",
            _INIT.format(count=1) + _EXPECT.format(bytes=512) + _MEET + "mov.b16 %h1, 3;\nmov.b32 %r21, 8;\nmov.b32 %r22, 3;\n@%p4 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [mem+1024], [%d9, {%r21, %r22}], [mem], %h1;\n" + wait(1) + _SHOW + _MEET,
            _two(lambda c: (3 + _T // 16) * 32 + 8 + _T % 16), map_of=_square),
    Program("both tensor copies of a pair report to the leader",
            _INIT.format(count=1) + "@%p4 mbarrier.arrive.expect_tx.shared::cta.b64 _, [mem], 1024;\n" + _MEET + "mov.b32 %r21, 8;\nand.b32 %r23, %r9, 0xfeffffff;\n@%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 [mem+1024], [%d9, {%r21, %r10}], [%r23];\n@!%p3 bra.uni follow;\n" + wait(1) + "follow:\n" + _MEET + _SHOW,
            _two(lambda c: (c + _T // 16) * 32 + 8 + _T % 16), map_of=_square),
)  # fmt: skip


def _rows(*rows: int) -> Callable[[Words], Words]:
    return lambda x: np.concatenate([x[:1024].reshape(32, 32)[list(rows)].reshape(-1), np.zeros(896, "u4")])


def _scattered(x: Words) -> Words:
    out = np.zeros((32, 32), "u4")
    out[[5, 0, 31, 7]] = np.arange(128).reshape(4, 32)
    return out.reshape(-1)


_LINE = {"u32": 2, "s32": 3, "f32": 7, "f16": 6, "bf16": 10, "u64": 4}


def _reduction(op: str, kind: str, tensor: bool) -> Program:
    """128 words of out, which hold what in has from word 256 on, are reduced with words 0 - 127 of in."""
    dtype = {"u32": "u4", "s32": "i4", "f32": "f4", "f16": "f2", "u64": "u8"}[kind]
    size = np.dtype(dtype).itemsize
    count = 512 // size

    def fill() -> Words:
        random = np.random.default_rng(3)
        if dtype[0] == "f":
            values = random.integers(-40, 40, 4096 // size).astype(dtype)
        else:
            values = random.integers(0, 1 << 62, 4096 // size, dtype="i8").astype(dtype) % np.array(90, dtype)
        return np.ascontiguousarray(values).view("u4")

    def wanted(x: Words) -> Words:
        given = x.view(dtype)
        a, b = given[2 * count : 3 * count], given[:count]
        if op == "inc":
            new = np.where(a >= b, 0, a + 1).astype(dtype)
        elif op == "dec":
            new = np.where((a == 0) | (a > b), b, a - 1).astype(dtype)
        else:
            new = {
                "add": np.add,
                "min": np.minimum,
                "max": np.maximum,
                "and": np.bitwise_and,
                "or": np.bitwise_or,
                "xor": np.bitwise_xor,
            }[op](a, b)
        return np.concatenate([new.view("u4"), np.zeros(896, "u4")])

    if tensor:
        name = f"cp.reduce.async.bulk.tensor.1d.global.shared::cta.{op}.tile.bulk_group [%d9, {{%r21}}], [mem+1024];"
    else:
        form = f"{op}.noftz.{kind}" if kind == "f16" else f"{op}.{'b32' if op in ('and', 'or', 'xor') else kind}"
        name = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{form} [%d2], [mem+1024], 512;"
    body = (
        "ld.global.b32 %r20, [%d4];\nst.shared.b32 [%r4+1024], %r20;\nld.global.b32 %r20, [%d4+1024];\nst.global.b32 [%d5], %r20;\n"
        f"fence.proxy.async;\nbar.sync 0;\nmov.b32 %r21, 0;\n@%p1 {name}\n@%p1 cp.async.bulk.commit_group;\n@%p1 cp.async.bulk.wait_group 0;\n"
    )
    shape = "tensor" if tensor else "bulk"
    return Program(
        f"{shape} reduction {op}.{kind}", body, wanted, 1,
        lambda i, o: tensor_map.encode(o, _LINE[kind], (count,), (), (min(count, 256),), 0, False), fill,
    )  # fmt: skip


COPIES = (
    Program("four rows are gathered",
            _INIT.format(count=1).replace(_MEET, "bar.sync 0;\n") + _EXPECT.format(bytes=512) + "@%p1 cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [mem+1024], [%d9, {0, 9, 2, 30, 2}], [mem];\n" + wait(1) + _SHOW,
            _rows(9, 2, 30, 2), 1, lambda i, o: _square(i, o, (32, 1))),
    Program("four rows are scattered",
            "st.shared.b32 [%r4+1024], %r1;\nfence.proxy.async.shared::cta;\nbar.sync 0;\n@%p1 cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%d9, {0, 5, 0, 31, 7}], [mem+1024];\n@%p1 cp.async.bulk.commit_group;\n@%p1 cp.async.bulk.wait_group 0;\n",
            _scattered, 1, lambda i, o: _square(i, o, (32, 1), source=False)),
    *(_reduction(op, kind, tensor) for tensor in (True, False) for op, kind in (
        ("add", "u32"), ("add", "f32"), ("add", "f16"), ("min", "s32"), ("max", "u32"), ("and", "u32"), ("or", "u32"),
        ("xor", "u32"), ("inc", "u32"), ("dec", "u32"), ("add", "u64")) if (op, kind, tensor) != ("add", "u64", True)),
)  # fmt: skip

# ---- Tensor Memory: 32 columns; words of in stand at 2048 + 4 i of shared memory

_TENSOR = """
@%p1 mbarrier.init.shared::cta.b64 [mem], 1;
@%p2 tcgen05.alloc.cta_group::GROUP.sync.aligned.shared::cta.b32 [mem+16], 32;
add.s32 %r4, %r9, %r2;
ld.global.b32 %r20, [%d4];
ld.global.b32 %r21, [%d4+512];
ld.global.b32 %r22, [%d4+1024];
ld.global.b32 %r23, [%d4+1536];
ld.global.b32 %r24, [%d4+2048];
ld.global.b32 %r25, [%d4+2560];
ld.global.b32 %r26, [%d4+3072];
ld.global.b32 %r27, [%d4+3584];
st.shared.b32 [%r4+2048], %r20;
st.shared.b32 [%r4+2560], %r21;
st.shared.b32 [%r4+3072], %r22;
st.shared.b32 [%r4+3584], %r23;
st.shared.b32 [%r4+4096], %r24;
st.shared.b32 [%r4+4608], %r25;
st.shared.b32 [%r4+5120], %r26;
st.shared.b32 [%r4+5632], %r27;
fence.proxy.async.shared::cta;
bar.sync 0;
ld.shared.b32 %r13, [mem+16];
shr.u32 %r15, %r1, 5;
shl.b32 %r15, %r15, 21;
add.s32 %r16, %r13, %r15;
mov.b32 %r30, -1;
tcgen05.st.sync.aligned.32x32b.x8.b32 [%r16], {%r30, %r30, %r30, %r30, %r30, %r30, %r30, %r30};
tcgen05.wait::st.sync.aligned;
bar.sync 0;
shr.u32 %r31, %r9, 4;
and.b32 %r31, %r31, 0x3fff;
cvt.u64.u32 %d10, %r31;
or.b64 %d11, %d10, DESC;
"""
_READ = """@%p1 tcgen05.commit.cta_group::GROUP.mbarrier::arrive::one.shared::cluster.b64 [mem];
WAIT
tcgen05.ld.sync.aligned.32x32b.x8.b32 {%r40, %r41, %r42, %r43, %r44, %r45, %r46, %r47}, [%r16];
tcgen05.wait::ld.sync.aligned;
mad.lo.s32 %r50, %r1, 32, 0;
cvt.u64.u32 %d12, %r50;
add.s64 %d12, %d2, %d12;
st.global.v4.b32 [%d12], {%r40, %r41, %r42, %r43};
st.global.v4.b32 [%d12+16], {%r44, %r45, %r46, %r47};
bar.sync 0;
@%p2 tcgen05.dealloc.cta_group::GROUP.sync.aligned.b32 %r13, 32;
"""


def _in_tensor_memory(issue: str, descriptor: int) -> str:
    text = _TENSOR.replace("DESC", f"{descriptor:#x}") + issue + _READ.replace("WAIT", wait(1))
    return text.replace("GROUP", "1")


def _copied(rows: int, bits: int, lanes: Callable[[int], list[int]]) -> Callable[[Words], Words]:
    """out: 8 columns of each lane. Row r, piece p of the source is 16 bytes at 256 (r div 8) + 16 (r mod 8) + 128 p."""

    def wanted(x: Words) -> Words:
        out = np.full((128, 8), 0xFFFFFFFF, "u4")
        for r in range(rows):
            for p in range(bits // 128):
                start = (256 * (r // 8) + 16 * (r % 8) + 128 * p) // 4
                for lane in lanes(r):
                    out[lane, 4 * p : 4 * p + 4] = x[start : start + 4]
        return out.reshape(-1)

    return wanted


# Start 2048, leading 128, stride 256 bytes, no swizzle, and the constant that tcgen05 asks for.
_PLAIN = 2048 >> 4 | (128 >> 4) << 16 | (256 >> 4) << 32 | 1 << 46
TENSOR_MEMORY = tuple(
    Program(f"tcgen05.cp.{shape}", _in_tensor_memory(f"@%p1 tcgen05.cp.cta_group::1.{shape} [%r13], %d11;\n", _PLAIN), _copied(rows, bits, lanes), 1)
    for shape, rows, bits, lanes in (
        ("128x256b", 128, 256, lambda r: [r]), ("4x256b", 4, 256, lambda r: [32 * r]), ("128x128b", 128, 128, lambda r: [r]),
        ("64x128b.warpx2::02_13", 64, 128, lambda r: [r, r + 64]),
        ("64x128b.warpx2::01_23", 64, 128, lambda r: [r % 32 + 64 * (r // 32), r % 32 + 64 * (r // 32) + 32]),
        ("32x128b.warpx4", 32, 128, lambda r: [r, r + 32, r + 64, r + 96]))
)  # fmt: skip


def _shifted(x: Words) -> Words:
    rows = _copied(128, 256, lambda r: [r])(x).reshape(128, 8).copy()
    for start in range(0, 128, 32):
        rows[start : start + 31] = rows[start + 1 : start + 32]
    return rows.reshape(-1)


SHIFT = Program(
    "tcgen05.shift.down",
    _in_tensor_memory("@%p1 tcgen05.cp.cta_group::1.128x256b [%r13], %d11;\n@%p1 tcgen05.shift.cta_group::1.down [%r13];\n", _PLAIN),
    _shifted, 1,
)  # fmt: skip

# ---- a product of two CTAs: M = 128, N = 32, K = 16, f16; each holds 64 rows of A and 16 of B

_PAIR = """
@%p1 mbarrier.init.shared::cta.b64 [mem], 1;
fence.mbarrier_init.release.cluster;
@%p2 tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [mem+16], 32;
shl.b32 %r5, %r10, 11;
add.s32 %r5, %r5, %r2;
cvt.u64.u32 %d13, %r5;
add.s64 %d13, %d1, %d13;
ld.global.b32 %r20, [%d13];
ld.global.b32 %r21, [%d13+512];
ld.global.b32 %r22, [%d13+1024];
ld.global.b32 %r23, [%d13+1536];
st.shared.b32 [%r4+2048], %r20;
st.shared.b32 [%r4+2560], %r21;
st.shared.b32 [%r4+3072], %r22;
st.shared.b32 [%r4+3584], %r23;
ld.global.b32 %r24, [%d5+2048];
st.shared.b32 [%r4+8192], %r24;
fence.proxy.async.shared::cta;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
ld.shared.b32 %r13, [mem+16];
shr.u32 %r31, %r9, 4;
and.b32 %r31, %r31, 0x3fff;
cvt.u64.u32 %d10, %r31;
or.b64 %d11, %d10, A_DESC;
add.s64 %d12, %d11, 384;
mov.b32 %r14, I_DESC;
setp.ne.s32 %p5, %r1, %r1;
@%p4 tcgen05.mma.cta_group::2.kind::f16 [%r13], %d11, %d12, %r14, %p5;
mov.b16 %h1, 3;
@%p4 tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [mem], %h1;
WAIT
shr.u32 %r15, %r1, 5;
shl.b32 %r15, %r15, 21;
add.s32 %r16, %r13, %r15;
tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r40, %r41}, [%r16];
tcgen05.wait::ld.sync.aligned;
shl.b32 %r5, %r10, 10;
shl.b32 %r6, %r1, 3;
add.s32 %r5, %r5, %r6;
cvt.u64.u32 %d13, %r5;
add.s64 %d13, %d2, %d13;
st.global.v2.b32 [%d13], {%r40, %r41};
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
@%p2 tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r13, 32;
"""


def _pair_operands() -> tuple[Words, Words]:
    random = np.random.default_rng(5)
    return random.integers(-8, 8, (128, 16)).astype("f2"), random.integers(-8, 8, (32, 16)).astype("f2")


def _core(rows: Words) -> Words:
    """K-major rows of 16 halves as core matrices: 8 rows of 16 bytes, leading offset 128, stride 256."""
    return np.ascontiguousarray(rows.reshape(-1, 8, 2, 8).transpose(0, 2, 1, 3)).reshape(-1).view("u4")


def _pair_input() -> Words:
    a, b = _pair_operands()
    return np.concatenate([_core(a[:64]), _core(a[64:]), _core(b[:16]), _core(b[16:])])


def _pair_wanted(x: Words) -> Words:
    """Columns 0, 1 (lanes 0 - 63) and 16, 17 (lanes 64 - 127) of each CTA's 64 rows."""
    a, b = _pair_operands()
    d = a.astype("f4") @ b.astype("f4").T
    out = [np.concatenate([d[64 * c : 64 * c + 64, :2], d[64 * c : 64 * c + 64, 16:18]]) for c in (0, 1)]
    return np.concatenate([np.stack(out).reshape(-1).view("u4"), np.zeros(512, "u4")])


# The loads of B go through "out - in", hence the offsets below; see the loads of %d5.
PAIR = Program(
    "a product of two CTAs",
    _PAIR.replace("A_DESC", f"{_PLAIN:#x}").replace("I_DESC", f"{1 << 4 | 32 >> 3 << 17 | 128 >> 4 << 24:#x}").replace("WAIT", wait(1))
    .replace("ld.global.b32 %r24, [%d5+2048];", "sub.s64 %d14, %d5, %d2;\nadd.s64 %d14, %d14, %d1;\nld.global.b32 %r24, [%d14+4096];"),
    _pair_wanted, 2, fill=_pair_input,
)  # fmt: skip

PROGRAMS = (*CLUSTERS, *COPIES, *TENSOR_MEMORY, SHIFT, PAIR)
