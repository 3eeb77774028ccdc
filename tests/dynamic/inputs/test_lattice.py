"""The lattice probe: float32 sums of it are exact in any order, 16-bit sums are not."""

from __future__ import annotations

import itertools

import pytest
import torch

from kcontract.dynamic import inputs
from kcontract.errors import InputError


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("n", [32, 64, 513, 4096])
def test_every_order_is_exact_in_float32(dtype: torch.dtype, n: int) -> None:
    p = inputs.probe("sum", n, dtype, n)
    x = p.inputs[0].float()
    assert float(x.double().abs().sum(-1).max()) < 2**21
    for order in (torch.arange(n), torch.arange(n).flip(0), torch.randperm(n), x[0].argsort()):
        total = torch.zeros(len(x))
        for k in order:
            total = total + x[:, k]
        assert not bool(p.wrong(total.to(dtype)).any())


@pytest.mark.parametrize("op", ["sum", "mean", "matmul", "cumsum"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_16_bit_accumulator_shows_and_float32_does_not(op: str, dtype: torch.dtype) -> None:
    p = inputs.probe(op, 64, dtype, 1, out_dtype=torch.float32)
    a = p.inputs[0].float()
    b = p.inputs[1].float() if op == "matmul" else torch.ones(64, 1)

    def sums(narrow: bool) -> torch.Tensor:
        total, steps = torch.zeros(len(a), b.shape[1]), []
        for k in range(64):
            total = total + a[:, k : k + 1] * b[k]
            total = total.to(dtype).float() if narrow else total
            steps.append(total)
        if op == "cumsum":
            return torch.cat(steps, 1)
        return total if op == "matmul" else total[:, 0] / (64 if op == "mean" else 1)

    assert not bool(p.wrong(sums(False)).any()) and bool(p.wrong(sums(True)).any())


def test_tf32_shows_and_a_two_way_bf16_split_does_not() -> None:
    p = inputs.probe("tf32", 16, torch.float32, 0)
    a, b = p.inputs
    cut = (a.view(torch.int32) & -8192).view(torch.float32)
    high = a.bfloat16().float()
    low = (a - high).bfloat16().float()
    assert float(p.wrong(cut @ b).double().mean()) > 0.9
    assert not bool(p.wrong(a @ b).any()) and not bool(p.wrong(high @ b + low @ b).any())


def test_too_few_terms_and_unknown_probes_are_refused() -> None:
    with pytest.raises(InputError, match="at least 32 terms"):
        inputs.probe("sum", 16, torch.float16, 0)
    with pytest.raises(InputError, match="power of two"):
        inputs.probe("mean", 100, torch.float16, 0)
    with pytest.raises(InputError, match="no lattice probe"):
        inputs.probe("softmax", 64, torch.float16, 0)


def test_seeds_differ() -> None:
    seen = [inputs.probe("sum", 64, torch.float16, s).inputs[0] for s in range(4)]
    assert all(not torch.equal(a, b) for a, b in itertools.combinations(seen, 2))
