"""What a kernel takes, in the least detail that inputs can be drawn from."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kcontract.errors import InputError

Tensor = Any


class Role(str, enum.Enum):
    """``data`` is varied; a ``parameter`` too, and kept off its identity (1 for a scale, 0 for a shift); an ``index``
    holds whole numbers below ``high``; ``given`` (a mask) keeps the values of ``value``, cut or repeated to its shape
    and turned along its axes; ``fixed`` is passed as it is."""

    DATA = "data"
    PARAMETER = "parameter"
    INDEX = "index"
    GIVEN = "given"
    FIXED = "fixed"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: its shape as names of dimensions or numbers, its dtype, and the axis a kernel sums over.

    ``positive`` takes absolute values (variances, scales); ``center`` is what a parameter is drawn around, e.g. 1.0
    for a scale; ``high`` (exclusive) bounds an index; ``value`` is what a FIXED or GIVEN argument holds.
    """

    name: str
    shape: tuple[str | int, ...] = ()
    dtype: str = "float32"
    role: Role = Role.DATA
    axis: int = -1
    positive: bool = False
    center: float = 0.0
    high: str | int = 2
    requires_grad: bool = False
    value: object = None


@dataclass(frozen=True, slots=True)
class Spec:
    """All arguments in order, and the nominal size of every named dimension. ``block`` is a tile size to straddle."""

    arguments: tuple[Argument, ...]
    dims: Mapping[str, int]
    block: int = 128

    def with_dims(self, dims: Mapping[str, int]) -> Spec:
        """The same arguments at other sizes."""
        return replace(self, dims={**self.dims, **dims})

    def with_dtype(self, dtype: str) -> Spec:
        """The same spec with every floating data and parameter argument in ``dtype``."""
        changed = tuple(replace(a, dtype=dtype) if a.role in (Role.DATA, Role.PARAMETER) else a for a in self.arguments)
        return replace(self, arguments=changed)

    def size(self, dim: str | int) -> int:
        """The size of a dimension given by name or number. Raises ``InputError`` for an unknown name."""
        if isinstance(dim, int):
            return dim
        if dim not in self.dims:
            raise InputError(f"dimension {dim!r} has no size; the spec knows {', '.join(self.dims) or 'none'}")
        return self.dims[dim]

    def shape(self, argument: Argument) -> tuple[int, ...]:
        """The shape of an argument in numbers."""
        return tuple(self.size(d) for d in argument.shape)


@dataclass(frozen=True, slots=True)
class Sample:
    """One set of inputs: ``label`` says what is special, ``seed`` draws the same tensors again; ``exact`` marks a
    lattice probe whose result is right only bit for bit; ``dims`` are the sizes it was drawn at."""

    gate: str
    label: str
    seed: int
    inputs: tuple[Any, ...]
    dims: Mapping[str, int]
    exact: bool = False
