"""What compiled products round their factors to is read from the IR, and the oracle's bound allows that and no more."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kcontract.dynamic.accumulators import rounds_operands
from kcontract.dynamic.oracle import Accumulation, compare, form_of, run

sys.path.insert(0, str(Path(__file__).parents[1] / "corpus" / "honest"))


@triton.jit
def product(a, b, out, K, N: tl.constexpr):
    at = tl.arange(0, N)
    total = tl.zeros((N, N), tl.float32)
    for start in range(0, K, N):
        left = tl.load(a + at[:, None] * K + start + at[None, :])
        total = tl.dot(left, tl.load(b + (start + at)[:, None] * N + at[None, :]), total)
    tl.store(out + at[:, None] * N + at[None, :], total.to(tl.bfloat16))


@pytest.mark.parametrize("capability", [90, 100])
def test_a_factor_that_the_kernel_computed_is_told_from_one_that_it_loaded(
    tmp_path: Path, monkeypatch: Any, capability: int
) -> None:
    from flash_attention import attend

    pointer = "*bf16"
    shared = {"T": "i32", "S": "i32", "D": "i32", "scale": "fp32", "ROWS": 64, "KEYS": 64, "WIDE": 64}
    kernels = {
        "attend": (attend, {"q": pointer, "k": pointer, "v": pointer, "out": pointer, **shared}),
        "product": (product, {"a": pointer, "b": pointer, "out": pointer, "K": "i32", "N": 64}),
    }
    for name, (kernel, given) in kernels.items():
        monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / name))
        signature = {n: t if isinstance(t, str) else "constexpr" for n, t in given.items()}
        constants = {(kernel.arg_names.index(n),): v for n, v in given.items() if isinstance(v, int)}
        triton.compile(ASTSource(kernel, signature, constants), target=GPUTarget("cuda", capability, 32))
    assert rounds_operands(tmp_path / "attend", "bfloat16")
    assert not rounds_operands(tmp_path / "attend", "float16")
    assert not rounds_operands(tmp_path / "product", "bfloat16")


@pytest.mark.parametrize("n", [64, 512])
def test_the_bound_allows_the_rounding_of_computed_factors_only(n: int) -> None:
    torch.manual_seed(n)
    x, y, z = (torch.randn(n, n).bfloat16() for _ in range(3))
    model = Accumulation.fp32().rounding_operands(form_of("bfloat16"))
    found = (x.float() @ y.float()).bfloat16().float() @ z.float()
    models = (model, Accumulation.fp32())
    both = lambda a, b, c: (a.float() @ b.float()) @ c.float()  # noqa: E731
    right = {m: run(both, [x, y, z], model=m, out_dtype=torch.float32).outputs[0] for m in models}
    assert compare(found, right[model]).ok
    assert not compare(found, right[Accumulation.fp32()]).ok
    off = found * (1 + 2.0**-4)
    assert not compare(off, right[model]).ok
    plain = {
        m: run(lambda a, b: a.float() @ b.float(), [x, y], model=m, out_dtype=torch.float32).outputs[0].bound
        for m in right
    }
    assert torch.equal(*plain.values())
