"""REF-01: is the reference able to judge? It must be deterministic, move when its inputs move, and be right in
float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kcontract.dynamic.oracle.compare import compare
from kcontract.dynamic.oracle.dtypes import Tensor
from kcontract.dynamic.oracle.model import Accumulation
from kcontract.dynamic.oracle.run import Expected, double, outputs_of, run

ILL_CONDITIONED = 0.1
MOSTLY = 0.5


@dataclass(frozen=True, slots=True)
class Defect:
    """One reason why a reference cannot judge: ``kind`` is one of nondeterministic, degenerate, insensitive,
    ill-conditioned, overflowing, estimated, off-bound; ``fatal`` ones make every verdict worthless."""

    kind: str
    message: str
    fatal: bool


def judge_reference(
    reference: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    other: Sequence[Any] | None = None,
    model: Accumulation | None = None,
    seed: int = 0,
) -> tuple[Defect, ...]:
    """What is wrong with a reference on these inputs; empty where it can judge.

    ``other`` is a second draw of the same inputs (default: the first with its values permuted and halved), put in for
    one input at a time to see whether the output moves. float32 eager must lie inside the reference's own bound.
    """
    first = run(reference, inputs, model=model, seed=seed)
    found = [*_nondeterministic(reference, inputs, first, model, seed), *_degenerate(first)]
    found += _insensitive(reference, inputs, other, first)
    found += _conditioning(first)
    if first.estimated:
        names = ", ".join(first.estimated)
        found.append(Defect("estimated", f"the bound of {names} is only an estimate; verdicts rest on it", False))
    if not any(d.fatal for d in found):
        found += _eager(reference, inputs, seed)
    return tuple(found)


def _nondeterministic(reference: Any, inputs: Sequence[Any], first: Expected, model: Any, seed: int) -> list[Defect]:
    second = run(reference, inputs, model=model, seed=seed + 1)
    for a, b in zip(first.outputs, second.outputs, strict=True):
        if not torch.equal(a.value.nan_to_num(0.5), b.value.nan_to_num(0.5)):
            return [
                Defect(
                    "nondeterministic", f"two runs of the reference differ in {a.name}; fix its seed or its mode", True
                )
            ]
    return []


def _degenerate(first: Expected) -> list[Defect]:
    found = []
    for out in first.outputs:
        if out.value.numel() and float(out.undetermined.double().mean()) > MOSTLY:
            continue
        value = out.value[~out.undetermined].double()
        if value.numel() and not bool(torch.isfinite(value).any()):
            found.append(Defect("degenerate", f"{out.name} is nowhere finite: it judges no value", True))
        elif value.numel() > 1 and bool((value == 0).all()):
            found.append(
                Defect("degenerate", f"{out.name} is zero everywhere: a kernel that does nothing would pass", True)
            )
        elif value.numel() > 1 and bool((value == value.reshape(-1)[0]).all()):
            found.append(Defect("degenerate", f"{out.name} is the constant {float(value.reshape(-1)[0]):g}", True))
    return found


def _insensitive(reference: Any, inputs: Sequence[Any], other: Sequence[Any] | None, first: Expected) -> list[Defect]:
    found = []
    for at, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor) or value.numel() == 0:
            continue
        changed = other[at] if other is not None else _changed(value)
        if torch.equal(changed, value):
            continue
        moved = run(reference, [*inputs[:at], changed, *inputs[at + 1 :]])
        if all(
            a.value.shape == b.value.shape and bool(((a.value.double() - b.value.double()).abs() <= a.bound).all())
            for a, b in zip(first.outputs, moved.outputs, strict=True)
        ):
            found.append(Defect("insensitive", f"no output moves when input {at} does, beyond its error bound", True))
    return found


def _changed(value: Tensor) -> Tensor:
    if not value.is_floating_point():
        return value.flip(0) if value.dim() else value
    flat = value.detach().reshape(-1)
    return (flat.roll(1) * 0.5 + 0.25).reshape(value.shape).to(value.dtype).requires_grad_(value.requires_grad)


def _conditioning(first: Expected) -> list[Defect]:
    found = []
    for out in first.outputs:
        if not out.value.is_floating_point() or out.value.numel() == 0:
            continue
        share = float(out.undetermined.double().mean())
        if share > MOSTLY:
            why = "intermediate overflow, a pole, or a choice that rounding decides"
            found.append(Defect("overflowing", f"{100 * share:.0f} % of {out.name} is undetermined by {why}", True))
            continue
        certain = ~out.undetermined & torch.isfinite(out.value) & (out.value != 0)
        if bool(certain.any()):
            relative = float((out.bound[certain] / out.value[certain].abs()).median())
            if relative > ILL_CONDITIONED:
                found.append(
                    Defect(
                        "ill-conditioned",
                        f"an honest kernel may be off by {relative:.0%} of the median element of {out.name}",
                        False,
                    )
                )
    return found


def _eager(reference: Any, inputs: Sequence[Any], seed: int) -> list[Defect]:
    """Float32 eager on the same values must lie inside the float32 bound."""
    wide = [v.detach().float() if isinstance(v, torch.Tensor) and v.is_floating_point() else double(v) for v in inputs]
    call = reference
    if isinstance(reference, torch.nn.Module):
        import copy

        call = copy.deepcopy(reference).float()
    told = run(call, wide, seed=seed)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(seed)
        results = outputs_of(call(*[v.clone() if isinstance(v, torch.Tensor) else v for v in wide]))
    for found, expected in zip(results, told.outputs, strict=True):
        got = compare(found.to(expected.dtype), expected)
        if not got.ok:
            where = f"{got.found} at {got.index} where {got.wanted} ± {got.allowed} is allowed"
            return [Defect("off-bound", f"float32 eager lies outside the reference's own bound: {where}", True)]
    return []
