"""Split-K that rounds each partial sum to bfloat16 before they are added; the repaired twin keeps float32 partials."""

import triton
import triton.language as tl
from compiling import compile_for


@triton.jit
def split_matmul(a_ptr, b_ptr, part_ptr, N, K, stride, SPLIT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    BK: tl.constexpr = 64
    split = tl.program_id(1)
    rows, cols, depth = tl.arange(0, BM), tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(split * BK, K, SPLIT * BK):
        a = tl.load(a_ptr + rows[:, None] * K + start + depth[None, :])
        b = tl.load(b_ptr + (start + depth)[:, None] * N + cols[None, :])
        acc = tl.dot(a, b, acc)
    place = split * stride + rows[:, None] * N + cols[None, :]
    tl.store(part_ptr + place, acc.to(part_ptr.dtype.element_ty))


if __name__ == "__main__":
    for part in ("bf16", "fp32"):
        signature = {"a_ptr": "*bf16", "b_ptr": "*bf16", "part_ptr": f"*{part}"}
        sizes = dict.fromkeys(("N", "K", "stride"), "i32")
        compile_for("sm_100", split_matmul, {**signature, **sizes}, {"SPLIT": 8, "BM": 64, "BN": 64})
