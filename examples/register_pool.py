"""Every warp group raises its registers and none gives any back: the request waits for ever. The twin lowers them."""

import triton
import triton.language as tl
from compiling import compile_for


@triton.jit
def greedy(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    y = tl.inline_asm_elementwise(
        "setmaxnreg.inc.sync.aligned.u32 232; mov.b32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=False, pack=1
    )
    tl.store(out_ptr + at, y)


@triton.jit
def modest(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    y = tl.inline_asm_elementwise(
        "setmaxnreg.dec.sync.aligned.u32 96; mov.b32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=False, pack=1
    )
    tl.store(out_ptr + at, y)


if __name__ == "__main__":
    for kernel in (greedy, modest):
        pointers = {"x_ptr": "*fp32", "out_ptr": "*fp32"}
        compile_for("sm_90", kernel, pointers, {"BLOCK": 256}, num_warps=8, maxnreg=128)
