"""Waivers: ``# kcontract: allow RULE-OR-GATE (reason)`` in the user's source, or the same in a contract.

A waiver stands on the line of the finding, or in the comment lines directly above it (above the decorators
where the finding is about the whole kernel). It may stand at any line of the inlined call chain that is the
user's own. Without a reason it does not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from kcontract.ir.location import Location, source_line
from kcontract.ir.ttgir import Module
from kcontract.model import Contract, Finding

_WAIVER = re.compile(r"#\s*kcontract:\s*allow\s+(?P<names>[\w-]+(?:\s*,\s*[\w-]+)*)\s*(?:\((?P<reason>.*)\))?")


@dataclass(frozen=True, slots=True)
class Waiver:
    """One waiver comment: the rules and gates it names, its reason (empty: none given), file and line."""

    names: frozenset[str]
    reason: str
    file: str
    line: int

    def covers(self, finding: Finding) -> bool:
        """Whether it names the finding's rule or gate."""
        return bool(self.names & {finding.rule, finding.gate.lower()})


def waive(findings: Iterable[Finding], contract: Contract) -> list[Finding]:
    """The findings, those that a waiver covers marked with its reason."""
    return [_waive(finding, contract) for finding in findings]


def _waive(finding: Finding, contract: Contract) -> Finding:
    for name, reason in contract.waivers.items():
        if name.lower() in (finding.rule, finding.gate.lower()):
            return replace(finding, waived=reason)
    for waiver in waivers_at(finding.location):
        if waiver.covers(finding):
            if waiver.reason:
                return replace(finding, waived=waiver.reason)
            form = f"# kcontract: allow {finding.rule} (reason)"
            hint = f"the waiver at {waiver.file}:{waiver.line} gives no reason and does not count: write '{form}'"
            return replace(finding, remedy=f"{finding.remedy}; {hint}" if finding.remedy else hint)
    return finding


def waivers_at(location: Location | None) -> Iterator[Waiver]:
    """Waivers that cover a place, innermost frame first."""
    for place in location.chain() if location else ():
        for line in _covering_lines(place):
            if waiver := parse(source_line(place.file, line), place.file, line):
                yield waiver


def declared(module: Module) -> set[Waiver]:
    """Every waiver with a reason that stands where code of this module came from."""
    places = {operation.location for operation in module.walk()}
    return {waiver for place in places for waiver in waivers_at(place) if waiver.reason}


def used(findings: Iterable[Finding]) -> set[Waiver]:
    """The waivers in the source that cover a finding."""
    return {
        waiver
        for finding in findings
        if finding.waived is not None
        for waiver in waivers_at(finding.location)
        if waiver.covers(finding)
    }


def parse(text: str, file: str, line: int) -> Waiver | None:
    """The waiver in one line of source, if it holds one."""
    if "kcontract" not in text or not (match := _WAIVER.search(text)):
        return None
    names = frozenset(name.strip().lower() for name in match["names"].split(","))
    return Waiver(names, (match["reason"] or "").strip(), file, line)


def _covering_lines(place: Location) -> Iterator[int]:
    yield place.line
    for line in range(place.line - 1, 0, -1):
        text = source_line(place.file, line).strip()
        if not text.startswith(("#", "@")):
            return
        yield line
