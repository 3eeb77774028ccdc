"""A finding: one located fact about one kernel, and what a rule says of it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kcontract.ir.location import Location


class Level(str, enum.Enum):
    """What a finding does: only a violation may stop a compile or fail a check."""

    VIOLATION = "violation"
    HAZARD = "hazard"
    NOTE = "note"

    def __str__(self) -> str:
        return self.value

    @property
    def rank(self) -> int:
        """0 for note, 1 for hazard, 2 for violation."""
        return {"note": 0, "hazard": 1, "violation": 2}[self.value]


class Confidence(str, enum.Enum):
    """How the rule knows: proved for all admitted inputs, read off the IR, or inferred from a pattern."""

    PROVED = "proved"
    READ = "read"
    INFERRED = "inferred"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Place:
    """Where a finding stands: the user's Python if the compiler kept it, and the line of IR text.

    ``ir`` names the text (``ttgir``, ``ptx``, ``metadata``, ``cubin``), ``ir_line`` its 1-based line.
    """

    location: Location | None = None
    ir: str = ""
    ir_line: int | None = None


@dataclass(frozen=True, slots=True)
class Related:
    """A second place that explains the first, e.g. the mask that should have covered a load."""

    message: str
    place: Place


@dataclass(frozen=True, slots=True)
class Finding:
    """One located fact.

    ``message`` starts in lower case, has no final period, and says what was found and what was wanted.
    ``why`` is the arithmetic or rule behind the level; ``remedy`` what to change; ``to_try`` what a run
    should try where the fact leaves its gate undecided; ``evidence`` JSON-able figures behind the message.
    """

    rule: str
    gate: str
    level: Level
    message: str
    place: Place
    confidence: Confidence = Confidence.READ
    why: str = ""
    remedy: str = ""
    to_try: str = ""
    related: tuple[Related, ...] = ()
    evidence: Mapping[str, object] = field(default_factory=dict)
    waived: str | None = None

    @property
    def location(self) -> Location | None:
        """The primary place in the user's Python, if the compiler kept one."""
        return self.place.location
