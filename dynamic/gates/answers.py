"""What can be said of an answer, a comparison or a sample without a bench: fit to be compared, and in words."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kcontract.dynamic.inputs import Sample
from kcontract.dynamic.oracle import Comparison
from kcontract.dynamic.sandbox import flow
from kcontract.dynamic.sandbox.candidate import Answer


def out_of_bounds(answer: Answer) -> bool:
    """Whether the simulator stopped the call at an access outside all buffers."""
    f = answer.failure
    return f is not None and f.exception == "Fault" and f.message.startswith("Fault: out-of-bounds")


def others(parts: Sequence[str]) -> list[str]:
    """Kinds of what a result holds beside tensors, numbers and None."""
    return [part for part in parts if part not in ("tensor", "number", "None")]


def unlike(answer: Answer, parts: Sequence[str]) -> str:
    """Where a result of as many parts as the reference's has another kind of part; empty where it has none."""
    for k, (own, wanted) in enumerate(zip(answer.parts, parts, strict=False)):
        if own != wanted and len(answer.parts) == len(parts):
            return f"part {k} of the result is a {own}, the reference gives a {wanted}".replace("a None", "None")
    return ""


def unfit(answer: Answer) -> str:
    """Why a result cannot be compared at all; empty where it can."""
    if answer.failure is not None:
        return str(answer.failure)
    if odd := others(answer.parts):
        return f"it returns a {odd[0]}, which is no tensor"
    for k, out in enumerate(answer.outputs):
        if not out.plain:
            return f"output {k} is a {out.kind}, not a plain tensor"
        if out.value is None:
            return f"output {k} is on the {out.device} device" if out.device == "meta" else f"output {k} is too large"
    return ""


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one shape and dtype hold the same bytes."""
    one, two = (t.contiguous().unsqueeze(-1).view(torch.uint8) for t in (a, b))
    return bool(torch.equal(one, two))


def sentence(c: Comparison) -> str:
    """A failed comparison in words."""
    if c.reason in ("shape", "dtype"):
        return f"{c.output} has {c.reason} {c.found}, wanted {c.wanted}"
    at = f"{c.output}{list(c.index)}"
    allowed = f" ± {c.allowed:.3g}" if isinstance(c.allowed, float) and c.reason == "value" else ""
    return f"{at} is {_number(c.found)}, wanted {_number(c.wanted)}{allowed}"


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.9g}"


def described(sample: Sample) -> str:
    """A sample in words."""
    floating = (v.dtype for v in sample.inputs if isinstance(v, torch.Tensor) and v.is_floating_point())
    dtype = str(next(floating, "no floats")).removeprefix("torch.")
    sizes = ", ".join(f"{name} {size}" for name, size in sample.dims.items())
    return f"'{sample.label}' inputs ({sizes + ', ' if sizes else ''}{dtype}, seed {sample.seed})"


def count_kernels(answer: Answer) -> int:
    """Device kernels of a call that compute: Triton launches and torch operations."""
    return len(answer.launches) + sum(flow.computes(name) for name, _, _ in answer.operations)
