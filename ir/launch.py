"""One launch of a kernel, as far as a run has shown or somebody has stated it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class Trust(str, enum.Enum):
    """Where a fact comes from: stated by the user, proved from the IR, or seen in a run."""

    TRUSTED = "trusted"
    PROVED = "proved"
    OBSERVED = "observed"


@dataclass(frozen=True, slots=True)
class Fact:
    """Inclusive range and divisor of one integer argument, size or stride."""

    low: int
    high: int
    divisor: int = 1
    trust: Trust = Trust.OBSERVED


@dataclass(frozen=True, slots=True)
class Launch:
    """Grid extents (programs along x, y, z) and what is known of the arguments, by their name."""

    grid: tuple[int, int, int]
    arguments: Mapping[str, Fact] = field(default_factory=dict)
    device: str = ""
