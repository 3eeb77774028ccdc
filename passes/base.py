"""What a rule is, how rules are found, and the pass that runs them over one artifact."""

from __future__ import annotations

import abc
import functools
import hashlib
import importlib
import pkgutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from kcontract.ir.artifact import Artifact
from kcontract.ir.launch import Launch
from kcontract.model import Contract, Finding, Report, Settled, aggregate


@dataclass(frozen=True)
class Facts:
    """What rules may know besides the artifact: the contract, launches seen, and shared analyses.

    ``deep`` lifts the solver's time limits. Analyses are computed at the first request through ``get`` and
    shared by all rules of one pass.
    """

    artifact: Artifact
    contract: Contract = field(default_factory=Contract)
    launches: tuple[Launch, ...] = ()
    deep: bool = False
    _cache: dict[object, object] = field(default_factory=dict, repr=False)

    def get(self, analysis):  # type: ignore[no-untyped-def]
        """``analysis(self)``, computed once."""
        if analysis not in self._cache:
            self._cache[analysis] = analysis(self)
        return self._cache[analysis]


class Rule(abc.ABC):
    """One static check. Its class docstring is the source of its page, of ``kcontract rules CODE`` and of
    the SARIF help text, under the headings Contract, Why it matters, Fires on, Silent on, Limits, Source.

    ``slug`` names the fault and equals the file's stem with ``_`` for ``-``; it is never reused.
    ``needs`` names the parts of an artifact it reads (``ttgir``, ``ptx``, ``resources``).
    """

    slug: ClassVar[str]
    gate: ClassVar[str]
    since: ClassVar[str]
    status: ClassVar[str] = "stable"

    @abc.abstractmethod
    def check(self, artifact: Artifact, facts: Facts) -> Iterator[Finding | Settled]:
        """Yield findings, and each static obligation of ``gate`` that holds for this artifact."""
