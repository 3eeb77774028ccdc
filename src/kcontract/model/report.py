"""What kcontract says about one artifact: its findings and one verdict a gate."""

from __future__ import annotations

from dataclasses import dataclass

from kcontract.model.finding import Finding, Level
from kcontract.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Report:
    """Findings and verdicts of one kernel, compiled for one target (``sm_100``).

    ``key`` identifies the specialisation (a hash of what was read), ``ruleset`` the rules that read it, so
    that results of two rule sets are never mistaken for each other. ``seconds`` is the time spent reading
    and checking. ``errors`` are defects of kcontract met on the way, a sentence each.
    """

    kernel: str
    target: str
    key: str
    ruleset: str
    findings: tuple[Finding, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    errors: tuple[str, ...] = ()
    origin: str = ""
    seconds: float = 0.0

    def open_findings(self, at_least: Level = Level.HAZARD) -> tuple[Finding, ...]:
        """Findings that no waiver covers, at that level or above."""
        return tuple(f for f in self.findings if f.waived is None and f.level.rank >= at_least.rank)
