"""Split-K that rounds each partial sum to bfloat16 before they are added; the repaired twin keeps float32 partials."""

import triton
import triton.language as tl
from compiling import compile_for


@triton.jit
def split_matmul(
    a_ptr, b_ptr, partial_ptr, N, K, SPLIT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    split = tl.program_id(1)
    rows, cols, depth = tl.arange(0, BM), tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(split * BK, K, SPLIT * BK):
        a = tl.load(a_ptr + rows[:, None] * K + start + depth[None, :])
        b = tl.load(b_ptr + (start + depth)[:, None] * N + cols[None, :])
        acc = tl.dot(a, b, acc)
    place = (split * BM + rows[:, None]) * N + cols[None, :]
    tl.store(partial_ptr + place, acc.to(partial_ptr.dtype.element_ty))


if __name__ == "__main__":
    for partial in ("bf16", "fp32"):
        signature = {"a_ptr": "*bf16", "b_ptr": "*bf16", "partial_ptr": f"*{partial}", "N": "i32", "K": "i32"}
        compile_for("sm_100", split_matmul, signature, {"SPLIT": 8, "BM": 128, "BN": 128, "BK": 64})
