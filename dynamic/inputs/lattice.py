"""Probes on a lattice: inputs whose float32 sum is exact in any order, so that a 16-bit accumulator shows bit for bit.

Large pairs ±B and residuals on a 2^-3 grid, shuffled: every partial sum of any subset, in any order, is a multiple of
2^-3 below 2^21, hence exact in float32 (24 bits), and not in float16 or bfloat16. No tolerance takes part. At N = 16 a
16-term chunk of a sum is truly indistinguishable: the probe asks for N >= 32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kcontract.errors import InputError

Tensor = Any
GRID = 0.125
SMALLEST = 32
MOST_PAIRS = 384


@dataclass(frozen=True, slots=True)
class Probe:
    """Inputs of one exact probe, and the only right output, bit for bit, in the output dtype."""

    op: str
    inputs: tuple[Tensor, ...]
    wanted: Tensor

    def wrong(self, found: Tensor) -> Tensor:
        """Where ``found`` is not the right value (any deviation shows another accumulator, or another fault)."""
        return found.to(self.wanted.device, torch.float64) != self.wanted.double()


def lattice_rows(rows: int, n: int, dtype: Any, generator: Any) -> Tensor:
    """``rows`` × ``n`` float64 terms, exact in ``dtype``: pairs ±B over 3/4 of the row (768 terms at most), then
    residuals.

    B is 2 to 7 times 2^9 in float16 (11 bits) and 2^6 in bfloat16 (8 bits), residuals are odd multiples of 1/8 up to
    15/8: beside B they are lost in the 16-bit type. float32 stays
    exact: all terms of one sign add up to 384·3584 + 15N/8 < 2^21 for N up to 300,000.
    """
    if n < SMALLEST:
        raise InputError(f"a lattice probe needs at least {SMALLEST} terms to tell the accumulators apart; got {n}")
    bits = 11 if dtype is torch.float16 else 8
    pairs = min(3 * n // 8, MOST_PAIRS)
    unit = 2.0 ** (bits - 2)
    size = torch.randint(2, 8, (rows, pairs), generator=generator).double() * unit
    sign = torch.randint(0, 2, (rows, pairs), generator=generator).double() * 2 - 1
    rest = torch.randint(0, 8, (rows, n - 2 * pairs), generator=generator).double() * 2 + 1
    side = torch.randint(0, 2, rest.shape, generator=generator).double() * 2 - 1
    values = torch.cat([size * sign, -size * sign, rest * side * GRID], 1)
    order = torch.rand(values.shape, generator=generator, dtype=torch.float64).argsort(1)
    return values.gather(1, order)


def probe(op: str, n: int, dtype: Any, seed: int, rows: int = 32, out_dtype: Any = None) -> Probe:
    """An exact probe of ``sum``, ``mean``, ``matmul``, ``cumsum`` (last axis, float32 out unless said) or ``tf32``.

    sum, mean, cumsum: inputs (rows, n). matmul: A (rows, n) on the lattice, B (n, 16) of ±1 in the same dtype.
    tf32: A (rows, 16) float32 of 13 bits, B (16, 16) of ±1: float32, 3xTF32 and a two-way bfloat16 split are exact.
    ``mean`` is exact only for n a power of two. Raises ``InputError`` for another op or too few terms.
    """
    generator = torch.Generator().manual_seed(seed)
    out = out_dtype or dtype
    if op == "tf32":
        a = torch.randint(4096, 8192, (rows, 16), generator=generator).double()
        a *= 1 - 2 * torch.randint(0, 2, (rows, 16), generator=generator)
        b = torch.randint(0, 2, (16, 16), generator=generator).double() * 2 - 1
        return Probe(op, (a.float(), b.float()), (a @ b).float())
    x = lattice_rows(rows, n, dtype, generator)
    if op == "matmul":
        b = torch.randint(0, 2, (n, 16), generator=generator).double() * 2 - 1
        return Probe(op, (x.to(dtype), b.to(dtype)), (x @ b).to(out))
    if op == "mean":
        if n & (n - 1):
            raise InputError(f"the mean of a lattice probe is exact only for a power of two; got {n} terms")
        return Probe(op, (x.to(dtype),), x.mean(1).to(out))
    if op == "sum":
        return Probe(op, (x.to(dtype),), x.sum(1).to(out))
    if op == "cumsum":
        return Probe(op, (x.to(dtype),), x.cumsum(1).to(out))
    raise InputError(f"no lattice probe of {op!r}; there are sum, mean, matmul, cumsum and tf32")
