"""``--verify-diagnostics``: a file of IR declares the findings it must give, and no others.

``// expected-violation @+1 {{text}}`` (or ``hazard``, ``note``) wants a finding of that level whose message, after the
rule's name in brackets, contains the text, on the line that far below the comment (default: its own line).
``// -----`` splits a file into cases, each an artifact of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kcontract.errors import InputError
from kcontract.model import Report

SPLIT = re.compile(r"^// -----\s*$")
_EXPECTED = re.compile(r"//\s*expected-(?P<level>\w+)\s*(?:@(?P<offset>[+-]\d+))?\s*\{\{(?P<text>.*?)\}\}")
_LEVELS = ("violation", "hazard", "note")


@dataclass(frozen=True, slots=True)
class Expectation:
    """One declared finding: its 1-based line in the file."""

    level: str
    line: int
    text: str


def cases(text: str) -> Iterator[tuple[int, str]]:
    """The cases of a file, each with the number of lines before it."""
    lines = text.split("\n")
    start = 0
    for number, line in enumerate([*lines, "// -----"]):
        if SPLIT.match(line):
            yield start, "\n".join(lines[start:number])
            start = number + 1


def expectations(text: str, first: int, path: str) -> list[Expectation]:
    """The findings a case declares; ``first`` lines of the file stand before it. Raises ``InputError``."""
    found = []
    for number, line in enumerate(text.split("\n"), first + 1):
        if "expected-" not in line:
            continue
        matches = list(_EXPECTED.finditer(line))
        bad = next((m for m in matches if m["level"] not in _LEVELS), None)
        if not matches or bad:
            form = "// expected-violation|hazard|note [@+N] {{text}}"
            raise InputError(f"not a declaration of the form '{form}'", path=path, line=number)
        found += [Expectation(m["level"], number + int(m["offset"] or 0), m["text"]) for m in matches]
    return found


def verify(path: str, text: str, check: Callable[[str], Report]) -> list[str]:
    """Differences between what the file declares and what ``check`` finds, a line each; empty when none."""
    problems: list[str] = []
    for first, case in cases(text):
        wanted = expectations(case, first, path)
        report = check(case)
        problems += [f"{path}: error: {error}" for error in report.errors]
        for finding in report.findings:
            line = first + (finding.place.ir_line or 1)
            message = f"[{finding.rule}] {finding.message}"
            match = next(
                (e for e in wanted if (e.level, e.line) == (finding.level.value, line) and e.text in message), None
            )
            if match:
                wanted.remove(match)
            else:
                problems.append(f"{path}:{line}: unexpected {finding.level}: {message}")
        problems += [f"{path}:{e.line}: expected {e.level} was not found: {e.text}" for e in wanted]
    return problems
