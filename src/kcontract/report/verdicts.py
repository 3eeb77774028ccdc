"""Verdicts for people: a line a gate, with the place of the witness below a FAIL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kcontract.model import Report, Status

_COLOURS = {Status.PASS: "32", Status.FAIL: "31;1", Status.UNDECIDED: "33", Status.ERROR: "35;1"}
_WORDS = {
    Status.FAIL: "failed",
    Status.ERROR: "in error",
    Status.UNDECIDED: "undecided",
    Status.PASS: "passed",
    Status.NOT_APPLICABLE: "not applicable",
}


def render(report: Report, replays: Mapping[str, str], *, color: bool = False) -> str:
    """All verdicts of a report; ``replays`` maps a gate to the command that shows its failure again."""
    width = max((len(v.status.value) for v in report.verdicts), default=0)
    lines = []
    for verdict in sorted(report.verdicts, key=lambda v: v.gate):
        word = verdict.status.value.ljust(width)
        if color and verdict.status in _COLOURS:
            word = f"\x1b[{_COLOURS[verdict.status]}m{word}\x1b[0m"
        lines.append(f"  {verdict.gate}  {word}  {verdict.reason}{_basis(verdict.basis.value, verdict.engine)}")
        if verdict.gate in replays:
            lines.append(f"          {' ' * width}  replay: {replays[verdict.gate]}")
    return "\n".join(lines) + "\n"


def _basis(basis: str, engine: str) -> str:
    if basis == "none":
        return ""
    return f" [{basis}, {engine}]" if engine != "static" else f" [{basis}]"


def summary(report: Report) -> str:
    """``1 gate failed, 10 passed, 2 undecided``."""
    counts = Counter(v.status for v in report.verdicts)
    parts = [f"{counts[status]} {word}" for status, word in _WORDS.items() if counts[status]]
    return ", ".join(parts) or "no gate was asked for"
