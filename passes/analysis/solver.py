"""The time z3 may take: 0.1 s a query and 0.2 s a kernel together, unless a deep check lifts it.

Why: importing z3 takes as long as compiling a small kernel, and a query may take forever. Rules ask here before they
import it; no time left is an undecided answer, never a pass.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from kcontract.passes.base import Facts

_QUERY = 0.1
_TOGETHER = 0.2
_DEEP = 10.0


class SolverTime:
    """What is left for one module. ``facts.get(SolverTime)`` shares it among rules."""

    def __init__(self, facts: Facts) -> None:
        self._deep = facts.deep
        self._spent = 0.0

    def query(self) -> float:
        """Seconds the next query may take; 0 where none is left."""
        return _DEEP if self._deep else max(min(_QUERY, _TOGETHER - self._spent), 0.0)

    @contextmanager
    def spent(self) -> Iterator[None]:
        """Count the time of one query."""
        start = time.perf_counter()
        yield
        self._spent += time.perf_counter() - start
