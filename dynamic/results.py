"""What a reference or a candidate returned, taken apart: tensors and numbers in order, None and the rest by their kind.

Both sides are taken apart alike, so that a number beside a tensor, a None, a dict or a dataclass is compared and not
refused. Numbers become tensors without dimensions. Imported by the candidate's process too: it knows nothing of a gate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch

#: Containers inside containers that are looked into.
_DEEPEST = 16
_NUMBERS = (bool, int, float, complex)


def leaves(result: Any, depth: int = 0) -> Iterator[Any]:
    """The parts of a result in order: items of lists and tuples, values of a mapping by the order of its keys' names,
    fields of a dataclass or a plain object."""
    if isinstance(result, torch.Tensor) or result is None or isinstance(result, (*_NUMBERS, str, bytes)):
        yield result
        return
    if depth > _DEEPEST:
        parts: Any = ()
    elif isinstance(result, (list, tuple)):
        parts = result
    elif isinstance(result, Mapping):
        parts = [result[key] for key in sorted(result, key=str)]
    elif dataclasses.is_dataclass(result) and not isinstance(result, type):
        parts = [getattr(result, field.name) for field in dataclasses.fields(result)]
    elif type(result).__module__ == "types" and hasattr(result, "__dict__"):  # SimpleNamespace
        parts = [value for _, value in sorted(vars(result).items())]
    else:
        yield result
        return
    for part in parts:
        yield from leaves(part, depth + 1)


def kind(leaf: Any) -> str:
    """``tensor``, ``number``, ``None``, or the name of what else it is."""
    if isinstance(leaf, torch.Tensor):
        return "tensor"
    return "None" if leaf is None else "number" if isinstance(leaf, _NUMBERS) else type(leaf).__name__


def compared(leaf: Any) -> bool:
    """Whether a part has a value that can be compared."""
    return kind(leaf) in ("tensor", "number")


def tensors(result: Any) -> list[Any]:
    """What can be compared of a result: its tensors and numbers, in order."""
    return [tensor_of(leaf) for leaf in leaves(result) if compared(leaf)]


def tensor_of(leaf: Any) -> Any:
    """A tensor as it is, a number as a tensor without dimensions: int64, or float64 where that cannot hold it."""
    if isinstance(leaf, torch.Tensor):
        return leaf
    if isinstance(leaf, int) and not -(2**63) <= leaf < 2**63:
        leaf = float(leaf) if abs(leaf) < 2**1000 else float("inf")
    dtype = torch.float64 if isinstance(leaf, float) else None
    return torch.tensor(leaf, dtype=dtype, device="cpu")
