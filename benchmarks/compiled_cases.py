"""Kernels the benchmarks compile: what people write every day, from tiny to large."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


class Case(NamedTuple):
    """One specialisation: ``signature`` maps arguments to Triton types, ``constants`` holds the constexprs."""

    name: str
    function: Any
    signature: dict[str, str]
    constants: dict[str, Any]
    options: dict[str, Any] = {}  # noqa: RUF012 (never changed)

    def compile(self, capability: int) -> Any:
        """The compiled kernel, for a GPU that need not be here."""
        full = {name: self.signature.get(name, "constexpr") for name in self.function.arg_names}
        attributes = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(full.values()) if kind.startswith("*")}
        source = ASTSource(self.function, full, self.constants, attributes)
        return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=self.options)


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask) + tl.load(y_ptr + at, mask), mask)


@triton.jit
def softmax(x_ptr, out_ptr, stride, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * stride + at, mask=at < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + tl.program_id(0) * stride + at, e / tl.sum(e, axis=0), mask=at < n)


@triton.jit
def layernorm(x_ptr, w_ptr, b_ptr, out_ptr, n, eps, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + tl.program_id(0) * n + at, mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / n
    d = tl.where(mask, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(d * d, axis=0) / n + eps)
    y = d * rstd * tl.load(w_ptr + at, mask) + tl.load(b_ptr + at, mask)
    tl.store(out_ptr + tl.program_id(0) * n + at, y, mask)


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, cols = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + depth
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :], (rows < M)[:, None] & (k < K)[None, :], other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + cols[None, :], (k < K)[:, None] & (cols < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc)
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc.to(c_ptr.dtype.element_ty), mask)


@triton.jit
def attention(q_ptr, k_ptr, v_ptr, out_ptr, n, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    rows, d, j = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D), tl.arange(0, BN)
    q = tl.load(q_ptr + rows[:, None] * D + d[None, :], (rows < n)[:, None], other=0.0)
    acc = tl.zeros((BM, D), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    high = tl.full((BM,), -float("inf"), tl.float32)
    for start in range(0, n, BN):
        k = tl.load(k_ptr + (start + j)[None, :] * D + d[:, None], (start + j < n)[None, :], other=0.0)
        s = tl.where((start + j < n)[None, :], tl.dot(q, k) * scale, -float("inf"))
        new = tl.maximum(high, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        keep = tl.exp(high - new)
        total = total * keep + tl.sum(p, 1)
        v = tl.load(v_ptr + (start + j)[:, None] * D + d[None, :], (start + j < n)[:, None], other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * keep[:, None])
        high = new
    tl.store(out_ptr + rows[:, None] * D + d[None, :], acc / total[:, None], (rows < n)[:, None])


def cases() -> Iterator[Case]:
    """Every specialisation the benchmarks use."""
    for t in ("fp32", "fp16", "bf16"):
        p = f"*{t}"
        for block in (256, 1024):
            yield Case(f"add {t} {block}", add, {"x_ptr": p, "y_ptr": p, "out_ptr": p, "n": "i32"}, {"BLOCK": block})
        for block in (1024, 4096):
            signature = {"x_ptr": p, "out_ptr": p, "stride": "i32", "n": "i32"}
            yield Case(f"softmax {t} {block}", softmax, signature, {"BLOCK": block})
        signature = {"x_ptr": p, "w_ptr": p, "b_ptr": p, "out_ptr": p, "n": "i32", "eps": "fp32"}
        yield Case(f"layernorm {t} 1024", layernorm, signature, {"BLOCK": 1024})
    for t in ("fp16", "bf16"):
        p = f"*{t}"
        signature = {"a_ptr": p, "b_ptr": p, "c_ptr": p, "M": "i32", "N": "i32", "K": "i32"}
        yield Case(f"matmul {t} 128", matmul, signature, {"BM": 128, "BN": 128, "BK": 64})
        yield Case(f"matmul {t} 64", matmul, signature, {"BM": 64, "BN": 64, "BK": 32}, {"num_stages": 4})
        signature = {"q_ptr": p, "k_ptr": p, "v_ptr": p, "out_ptr": "*fp32", "n": "i32", "scale": "fp32"}
        yield Case(f"attention {t} 64", attention, signature, {"BM": 128, "BN": 64, "D": 64})
