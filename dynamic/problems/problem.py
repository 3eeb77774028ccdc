"""The noun every loader makes and every gate reads: one candidate with the reference that judges it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kcontract.dynamic.inputs.spec import Spec
from kcontract.model import Contract


@dataclass(frozen=True, slots=True)
class Entry:
    """Where the candidate is found: a Python file, a name in it, and what the name is.

    ``kind`` is ``module`` (a class, constructed with the problem's ``init`` and then called) or ``function``.
    The file is imported by the worker process only, never by the grader.
    """

    path: str
    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Problem:
    """One candidate, its reference and its inputs.

    ``reference()`` makes a fresh reference on the CPU (a ``torch.nn.Module``, or a function of the same arguments);
    ``inputs()`` draws the problem's own inputs at its native sizes, after the caller has seeded torch; ``init`` are
    the constructor's arguments. ``spec`` is None where roles and sizes are to be inferred by probing the reference.
    ``origin`` is what a witness keeps so that the problem can be loaded again (paths, names, format).
    """

    name: str
    candidate: Entry
    reference: Callable[[], Any]
    inputs: Callable[[], Sequence[Any]]
    init: tuple[Any, ...] = ()
    contract: Contract = field(default_factory=Contract)
    spec: Spec | None = None
    origin: Mapping[str, object] = field(default_factory=dict)
