# ruff: noqa: E501  (programs are kept as they read: a line an instruction sequence)
"""Small PTX programs with one seeded fault each, beside the same program without it.

A program is text with places ``<good|bad>``: the twin takes the left side, the faulty one the right. Each runs one CTA
(or as many as given) of 128 threads; parameter 0 is 4096 bytes of input, parameter 1 as much output.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_FRAME = """.version 8.8
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 mem[];
.visible .entry k(.param .u64 .ptr .global .align 16 in, .param .u64 .ptr .global .align 16 out)
.reqntid 128
{{
.reg .pred %p<20>;
.reg .b16 %h<20>;
.reg .b32 %r<100>;
.reg .b64 %d<40>;
ld.param.b64 %d1, [in];
ld.param.b64 %d2, [out];
mov.u32 %r1, %tid.x;
shl.b32 %r2, %r1, 2;
cvt.u64.u32 %d3, %r2;
add.s64 %d4, %d1, %d3;
add.s64 %d5, %d2, %d3;
setp.eq.s32 %p1, %r1, 0;
setp.lt.u32 %p2, %r1, 32;
{body}
ret;
}}
"""


@dataclass(frozen=True)
class Seeded:
    """``kind`` is the diagnosis the faulty program must get."""

    name: str
    kind: str
    body: str
    ctas: int = 1

    def text(self, faulty: bool) -> str:
        body = re.sub(r"<([^<>|]*)\|([^<>|]*)>", r"\2" if faulty else r"\1", self.body)
        return _FRAME.format(body=body)


_OTHER_WARP = "xor.b32 %r3, %r2, 128;\n"  # the word of a thread of a neighbouring warp
_WAIT = """{{ .reg .pred done;
again_{n}: mbarrier.try_wait.parity.shared::cta.b64 done, [mem+{at}], {parity};
@!done bra.uni again_{n}; }}
"""


def wait(n: int, parity: str, at: int = 0) -> str:
    return _WAIT.format(n=n, parity=parity, at=at).replace("{{", "{").replace("}}", "}")


_COPY = (
    "@%p1 mbarrier.init.shared::cta.b64 [mem], 1;\nbar.sync 0;\n"
    "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [mem], <512|{bytes}>;\n"
    "@%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [mem+1024], [%d1], 512, [mem];\n"
)

# A 128x16x16 product of ones: operands at 2048 and 8192, no swizzle, K-major; results in 16 columns of Tensor Memory.
_MMA = """
@%p1 mbarrier.init.shared::cta.b64 [mem], 1;
@%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [mem+16], <COLUMNS>;
<PERMIT>
mov.b32 %r10, 0x3c003c00;
shl.b32 %r11, %r1, 4;
mov.b32 %r12, mem;
add.s32 %r11, %r11, %r12;
st.shared.v4.b32 [%r11+2048], {%r10, %r10, %r10, %r10};
st.shared.v4.b32 [%r11+4096], {%r10, %r10, %r10, %r10};
st.shared.v4.b32 [%r11+8192], {%r10, %r10, %r10, %r10};
<FENCE>
bar.sync 0;
ld.shared.b32 %r13, [mem+16];
mov.b64 %d10, <ADESC>;
mov.b64 %d11, 0x0000400800080200;
mov.b32 %r14, <IDESC>;
setp.ne.s32 %p3, %r1, %r1;
@%p1 tcgen05.mma.cta_group::1.kind::f16 [%r13+<DCOL>], %d10, %d11, %r14, %p3;
<AGAIN>@%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [mem];
<WAIT>
shr.u32 %r15, %r1, 5;
shl.b32 %r15, %r15, 21;
add.s32 %r16, %r13, %r15;
tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r17, %r18}, [%r16+<LDCOL>];
tcgen05.wait::ld.sync.aligned;
st.global.b32 [%d5], %r17;
bar.sync 0;
<FREE>
"""


def mma(**changes: str) -> str:
    """The product with some of its lines replaced by ``<good|bad>``."""
    plain = {
        "COLUMNS": "32", "PERMIT": "", "FENCE": "fence.proxy.async.shared::cta;", "ADESC": "0x0000400800080080",
        "IDESC": "0x08040010", "DCOL": "0", "AGAIN": "", "WAIT": wait(1, "0"), "LDCOL": "0",
        "FREE": "@%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r13, 32;",
    }  # fmt: skip
    text = _MMA
    for name, value in {**plain, **changes}.items():
        text = text.replace(f"<{name}>", value)
    return text


# A 64x8x16 product of ones by a warpgroup, operands at 2048 and 4096.
_WGMMA = """
mov.b32 %r10, 0x3c003c00;
shl.b32 %r11, %r1, 4;
mov.b32 %r12, mem;
add.s32 %r11, %r11, %r12;
st.shared.v4.b32 [%r11+2048], {%r10, %r10, %r10, %r10};
st.shared.v4.b32 [%r11+4096], {%r10, %r10, %r10, %r10};
fence.proxy.async.shared::cta;
bar.sync 0;
mov.b64 %d10, 0x0000001000080080;
mov.b64 %d11, 0x0000001000080100;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r20, %r21, %r22, %r23}, %d10, %d11, 0, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
WAIT
mov.b32 %r24, %r21;
st.global.b32 [%d5], %r24;
wgmma.wait_group.sync.aligned 0;
"""

_SHARED = "st.shared.b32 [%r4], %r1;\n"
_BASE = "mov.b32 %r9, mem;\nadd.s32 %r4, %r2, %r9;\nadd.s32 %r5, %r3, %r9;\n"

# Two lanes each sum the squares of both, the own one fused into the addition, and store the sum to one word.
_PAIRS = """
cvt.rn.f32.u32 %r6, %r1;
add.rn.f32 %r6, %r6, 0f3DCCCCCD;
mul.rn.f32 %r7, %r6, %r6;
shfl.sync.bfly.b32 %r8, %r7, 1, 31, -1;
fma.rn.f32 %r9, %r6, %r6, SUM;
and.b32 %r10, %r2, 504;
cvt.u64.u32 %d7, %r10;
add.s64 %d2, %d2, %d7;
st.global.b32 [%d2], %r9;
"""

CASES = (
    Seeded("missing barrier before a read", "race", _OTHER_WARP + _BASE + _SHARED + "<bar.sync 0;|>\nld.shared.b32 %r6, [%r5];\nst.global.b32 [%d5], %r6;"),
    Seeded("missing barrier before a write", "race",
           _OTHER_WARP + _BASE + _SHARED + "bar.sync 0;\nld.shared.b32 %r6, [%r5];\n<bar.sync 0;|>\nst.shared.b32 [%r4], %r6;"),
    Seeded("threads of one store collide", "race", "<|and.b32 %r2, %r2, 124;>\n" + _OTHER_WARP + _BASE + _SHARED),
    Seeded("lanes of one sum differ by more than rounding", "race", _PAIRS.replace("SUM", "<%r8|%r7>")),
    Seeded("lanes store integers that differ in the last bit", "race", _PAIRS.replace("SUM", "%r8") + "<|add.s32 %r9, %r9, 0;>\nst.global.b32 [%d2], %r9;"),
    Seeded("two barriers of half the threads each", "race",
           "xor.b32 %r3, %r2, 256;\n" + _BASE + _SHARED + "setp.lt.u32 %p4, %r1, 64;\nselp.b32 %r7, 1, 2, %p4;\n<bar.sync 0;|bar.sync %r7, 64;>\nld.shared.b32 %r6, [%r5];\nst.global.b32 [%d5], %r6;"),
    Seeded("copies not waited for", "missing-wait",
           _OTHER_WARP + _BASE + "cp.async.ca.shared.global [%r4], [%d4], 4;\ncp.async.commit_group;\n<cp.async.wait_group 0;|>\nbar.sync 0;\nld.shared.b32 %r6, [%r4];\nst.global.b32 [%d5], %r6;"),
    Seeded("one copy group too few waited for", "missing-wait",
           _OTHER_WARP + _BASE + "cp.async.ca.shared.global [%r4], [%d4], 4;\ncp.async.commit_group;\ncp.async.ca.shared.global [%r4+512], [%d4], 4;\ncp.async.commit_group;\ncp.async.wait_group <0|1>;\nbar.sync 0;\nld.shared.b32 %r6, [%r4+512];\nst.global.b32 [%d5], %r6;"),
    Seeded("copies waited for but no barrier", "missing-wait",
           _OTHER_WARP + _BASE + "cp.async.ca.shared.global [%r4], [%d4], 4;\ncp.async.commit_group;\ncp.async.wait_group 0;\n<bar.sync 0;|>\nld.shared.b32 %r6, [%r5];\nst.global.b32 [%d5], %r6;"),
    Seeded("wrong phase of an mbarrier", "missing-wait",
           _COPY.format(bytes=512) + wait(1, "<0|1>") + _OTHER_WARP + _BASE + "ld.shared.b32 %r6, [%r4+1024];\nst.global.b32 [%d5], %r6;"),
    Seeded("bytes expected that never come", "deadlock", _COPY.format(bytes=528) + wait(1, "0")),
    Seeded("arrivals expected that never come", "deadlock",
           "@%p1 mbarrier.init.shared::cta.b64 [mem], <128|129>;\nbar.sync 0;\nmbarrier.arrive.shared::cta.b64 _, [mem];\n" + wait(1, "0")),
    Seeded("more arrivals than expected", "mbarrier-overrun",
           "@%p1 mbarrier.init.shared::cta.b64 [mem], <128|127>;\nbar.sync 0;\nmbarrier.arrive.shared::cta.b64 _, [mem];\n" + wait(1, "0")),
    Seeded("mbarrier never initialised", "mbarrier-invalid",
           "@%p1 <mbarrier.init.shared::cta.b64 [mem], 128;|st.shared.b64 [mem], %d1;>\nbar.sync 0;\nmbarrier.arrive.shared::cta.b64 _, [mem];"),
    Seeded("half of the threads skip a barrier", "deadlock", "setp.lt.u32 %p4, %r1, 64;\n<|@%p4 bra wait_here;>\nbar.sync 0;\n<|bra.uni done_here;\nwait_here: bar.sync 1;\ndone_here:>\nbar.sync 2;"),
    Seeded("store by the copy engine without a proxy fence", "missing-proxy-fence",
           _OTHER_WARP + _BASE + _SHARED + "<fence.proxy.async.shared::cta;|>\nbar.sync 0;\n@%p1 cp.async.bulk.global.shared::cta.bulk_group [%d2], [mem], 512;\ncp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;"),
    Seeded("source of a bulk store overwritten too early", "missing-wait",
           _OTHER_WARP + _BASE + _SHARED + "fence.proxy.async.shared::cta;\nbar.sync 0;\n@%p1 cp.async.bulk.global.shared::cta.bulk_group [%d2], [mem], 512;\ncp.async.bulk.commit_group;\n<cp.async.bulk.wait_group.read 0;|>\nbar.sync 0;\nst.shared.b32 [%r4], 0;"),
    Seeded("load past the end of a buffer", "out-of-bounds", "ld.global.b32 %r6, [%d4+<3584|3588>];\nst.global.b32 [%d5], %r6;"),
    Seeded("shared memory past its end", "out-of-bounds", _OTHER_WARP + _BASE + "st.shared.b32 [%r4+<15872|16384>], 1;"),
    Seeded("misaligned vector load", "misaligned-access", "mul.wide.u32 %d6, %r1, 8;\nadd.s64 %d6, %d6, %d1;\nld.global.v2.b32 {%r6, %r7}, [%d6+<8|4>];\nst.global.b32 [%d5], %r6;"),
    Seeded("uninitialised shared memory", "uninitialised-read", _OTHER_WARP + _BASE + "<st.shared.b32 [%r4+512], 1;|>\nbar.sync 0;\nld.shared.b32 %r6, [%r4+512];\nst.global.b32 [%d5], %r6;"),
    Seeded("two CTAs store to one place", "race", "mov.u32 %r20, %ctaid.x;\nshl.b32 %r20, %r20, 9;\ncvt.u64.u32 %d7, %r20;\n<add.s64 %d5, %d5, %d7;|>\nst.global.b32 [%d5], %r20;", ctas=2),
    Seeded("a CTA reads what another writes", "race",
           "mov.u32 %r20, %ctaid.x;\nshl.b32 %r20, %r20, 9;\ncvt.u64.u32 %d7, %r20;\nadd.s64 %d8, %d5, %d7;\nst.global.b32 [%d8], 1;\nbar.sync 0;\nld.global.b32 %r6, [<%d8|%d5>];", ctas=2),
    Seeded("operand written without a proxy fence", "missing-proxy-fence", mma(FENCE="<fence.proxy.async.shared::cta;|>")),
    Seeded("result read before the product is done", "missing-wait", mma(WAIT="<" + wait(1, "0").strip() + "|>")),
    Seeded("wrong phase for the product", "missing-wait", mma(WAIT=wait(1, "<0|1>"))),
    Seeded("descriptor without its constant bits", "bad-descriptor", mma(ADESC="<0x0000400800080080|0x0000000800080080>")),
    Seeded("descriptor that leaves shared memory", "out-of-bounds", mma(ADESC="<0x0000400800080080|0x0000400800083f00>")),
    Seeded("descriptor with a stride that reads elsewhere", "uninitialised-read", mma(ADESC="<0x0000400800080080|0x0000402000080080>")),
    Seeded("instruction descriptor with a wrong type", "bad-descriptor", mma(IDESC="<0x08040010|0x08040090>".replace("090", "190"))),
    Seeded("instruction descriptor with a wrong shape", "bad-descriptor", mma(IDESC="<0x08040010|0x0a040010>")),
    Seeded("pipelined products of unlike descriptors", "bad-descriptor",
           mma(AGAIN="setp.eq.s32 %p3, %r1, 0;\n@%p1 tcgen05.mma.cta_group::1.kind::f16 [%r13], %d10, %d11, <%r14|0x08040090>, %p3;\n".replace("090|", "090").replace("0x08040090", "0x08040190"))),
    Seeded("Tensor Memory leaked", "tmem-leak", mma(FREE="<@%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r13, 32;|>")),
    Seeded("Tensor Memory freed in part", "tmem-lifecycle", mma(COLUMNS="<32|64>")),
    Seeded("Tensor Memory columns no power of two", "tmem-count", mma(COLUMNS="<32|48>")),
    Seeded("product past the allocation", "tmem-unallocated", mma(DCOL="<0|24>")),
    Seeded("load past the allocation", "tmem-unallocated", mma(LDCOL="<0|31>")),
    Seeded("lanes of another warp", "tmem-lanes", mma().replace("shl.b32 %r15, %r15, 21;", "shl.b32 %r15, %r15, <21|20>;")),
    Seeded("allocation after the permit was given up", "tmem-lifecycle",
           mma(PERMIT="@%p2 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n<|@%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [mem+20], 32;>")),
    Seeded("more columns than there are", "tmem-exhausted",
           mma(PERMIT="<|@%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [mem+20], 512;>")),
    Seeded("columns read that nobody wrote", "uninitialised-read", mma(LDCOL="<0|16>")),
    Seeded("results of a load from Tensor Memory never waited for", "missing-wait",
           mma().replace("tcgen05.wait::ld.sync.aligned;", "<tcgen05.wait::ld.sync.aligned;|>")),
    Seeded("results of wgmma used before its group is done", "missing-wait", _WGMMA.replace("WAIT", "<wgmma.wait_group.sync.aligned 0;|>")),
    Seeded("results of wgmma used while one group is left", "missing-wait", _WGMMA.replace("WAIT", "wgmma.wait_group.sync.aligned <0|1>;")),
    Seeded("stores to Tensor Memory not waited for", "missing-wait",
           mma(WAIT=wait(1, "0") + "shr.u32 %r15, %r1, 5;\nshl.b32 %r15, %r15, 21;\nadd.s32 %r16, %r13, %r15;\ntcgen05.st.sync.aligned.32x32b.x2.b32 [%r16], {%r1, %r1};\n<tcgen05.wait::st.sync.aligned;|>")),
    Seeded("swizzle of the copy and of the descriptor differ", "swizzle-mismatch",
           mma(FENCE="fence.proxy.async.shared::cta;\nbar.sync 0;\n@%p1 mbarrier.init.shared::cta.b64 [mem+8], 1;\nbar.sync 0;\n@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [mem+8], 512;\n@%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [mem+2048], [%d1], 512, [mem+8];\n" + wait(2, "0", 8),
               ADESC="<0x0000400800080080|0xc000400800080080>")),
)  # fmt: skip
