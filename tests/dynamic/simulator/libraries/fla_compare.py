"""Comparing operators of fla-core with what its public tests compare them with (see ``fla_published_*.py``).

fla-core is distributed without its tests. The cases here are the small ones of flash-linear-attention's repository,
written anew: the test functions of ``tests/ops`` for gated linear attention, simple gated linear attention, linear
attention, retention, the delta rules (plain, gated, KDA, Comba, IPLR), HGRN, gated slot attention, forgetting
attention, log-linear attention and cumulative sums, and of ``tests/modules`` for norms; of each its two shortest
sequence lengths and its narrowest head, in every other variation. Sizes, element types, how inputs are drawn, initial
states, what is compared with what (another operator of the library, or its naive function) and the errors allowed are
those of the published tests; the comparison is the library's own ``assert_close``. The published files are of several
dates, and a few names and defaults have changed since: the operators are those of fla-core 0.6.0.

    kcontract run --engine sim:sm_90 --max-configs 1 -- python -m pytest -q -p public_tests --record OUT.jsonl \\
        --most 99 tests/dynamic/simulator/libraries/fla_published_*.py
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from fla.utils import assert_close, device

Tensors = dict[str, torch.Tensor]
F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32


def rand(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.rand(*shape, dtype=dtype, device=device)


def randn(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, device=device)


def unit(x: torch.Tensor) -> torch.Tensor:
    return F.normalize(x, p=2, dim=-1)


def compare(
    operator: Callable[..., Any], reference: Callable[..., Any], inputs: Tensors, *, o: float = 0.005,
    gradients: float | None = 0.005, err_atol: float = 1e-6, **each: float,
) -> None:  # fmt: skip
    """Outputs within ``o`` and gradients of all inputs within ``gradients`` (None: no backward), some by name."""
    results: list[tuple[list[torch.Tensor], Tensors]] = []
    upstream: list[torch.Tensor] = []
    for function in (reference, operator):
        leaves = {name: x.detach().clone().requires_grad_(gradients is not None) for name, x in inputs.items()}
        found = function(**leaves)
        outputs = [x for x in (found if isinstance(found, tuple) else (found,)) if x is not None]
        upstream = upstream or [torch.randn_like(x) for x in outputs]
        if gradients is not None:
            sum((x * u.to(x)).sum() for x, u in zip(outputs, upstream, strict=True)).backward()  # type: ignore[union-attr]
        results.append((outputs, {n: x.grad for n, x in leaves.items() if x.grad is not None}))
    (wanted, wanted_gradients), (given, given_gradients) = results
    for k, (a, b) in enumerate(zip(wanted, given, strict=True)):
        assert a.shape == b.shape
        assert_close(f"output {k}", a, b, o)
    for name, a in wanted_gradients.items():
        assert_close(f"d{name}", a, given_gradients[name], each.get(name, gradients), err_atol=err_atol)


def pieces(naive: Callable[..., Any], offsets: list[int]) -> Callable[..., Any]:
    """A reference run on each sequence of a packed batch by itself."""

    def call(h0: torch.Tensor, **xs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = [
            naive(h0=h0[i : i + 1], **{n: x[:, a:b] for n, x in xs.items()})
            for i, (a, b) in enumerate(itertools.pairwise(offsets))
        ]
        return torch.cat([o for o, _ in found], 1), torch.cat([h for _, h in found], 0)

    return call


def state(f: Callable[..., Any], **more: Any) -> Callable[..., Any]:
    """``f`` from an initial state ``h0`` to a final state."""
    return lambda h0, **xs: f(**xs, initial_state=h0, output_final_state=True, **more)


def packed(offsets: list[int]) -> torch.Tensor:
    return torch.tensor(offsets, dtype=torch.int32, device=device)


def split(n: int, t: int) -> list[int]:
    """``t`` steps in ``n`` sequences of random lengths."""
    return [0, *sorted((torch.randperm(t - 16)[: n - 1] + 16).tolist()), t]
