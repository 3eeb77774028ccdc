"""What becomes of one call of a candidate: its results, or why there are none, and what was seen meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no result. ``kind``: ``raised`` (the candidate raised an exception), ``died``, ``hung``,
    ``garbled`` (its process said nonsense) or ``too large``; ``stage``: ``load``, ``call``, ``start``
    or ``backward`` (of a custom autograd function)."""

    kind: str
    message: str
    stage: str
    exception: str = ""
    place: str = ""

    def __str__(self) -> str:
        return f"{self.message} ({self.place})" if self.place else self.message


@dataclass(frozen=True, slots=True)
class Output:
    """One returned tensor, or ``number`` as a tensor without dimensions. ``value`` is a CPU copy, None where there is
    none to read (meta, a subclass, too large); ``alias`` is the argument whose storage it shares; ``held``: an earlier
    result's storage is returned again."""

    value: Any
    dtype: str
    shape: tuple[int, ...]
    device: str
    kind: str
    plain: bool
    storage: int
    alias: int | None
    held: bool
    requires_grad: bool
    number: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one call. ``grads`` holds one list a backward, in the order of arguments that require a gradient
    and then of parameters, ``nodes`` the custom autograd functions they went through; ``changed`` are arguments the
    call wrote to, ``borders`` those overrun, ``beyond`` a tensor of its own that it overran. ``parts`` are the kinds
    of all that was returned (``results.kind``), ``meeting`` pairs of outputs that have an element in common."""

    outputs: tuple[Output, ...] = ()
    grads: tuple[tuple[Output | None, ...], ...] = ()
    failure: Failure | None = None
    parts: tuple[str, ...] = ()
    changed: tuple[int, ...] = ()
    borders: tuple[int, ...] = ()
    beyond: str = ""
    launches: tuple[Mapping[str, Any], ...] = ()
    operations: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = ()
    sizes: tuple[int, ...] = ()
    casts: tuple[tuple[str, str, int], ...] = ()
    twins: tuple[tuple[int, int], ...] = ()
    meeting: tuple[tuple[int, int], ...] = ()
    kernels: tuple[str, ...] = ()
    native: tuple[str, ...] = ()
    own: tuple[int, ...] = ()
    flags: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    deeds: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    stream: int = 0
    inputs: Mapping[int, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def values(self) -> list[Any]:
        """The returned tensors; empty for a failure."""
        return [o.value for o in self.outputs]
