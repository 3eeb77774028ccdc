"""Baselines: findings known and accepted as of today, kept in a file, so that only new ones count.

A finding is recognised by rule, level, kernel and the text of its source line (not its number): it survives edits
elsewhere, and a hazard that becomes a violation is new.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from kcontract.errors import InputError
from kcontract.model import Finding, Level, Report

SCHEMA = 2
ACCEPTED = "in the baseline"
Key = tuple[str, str, str, str]


class Baseline:
    """Accepted findings; what is never met again is stale."""

    def __init__(self, accepted: Iterable[Key] = ()) -> None:
        self.accepted = set(accepted)
        self.met: Counter[Key] = Counter()

    @staticmethod
    def load(path: Path) -> Baseline:
        """Read a baseline file. Raises ``InputError``."""
        try:
            if not path.is_file():
                raise OSError("it is no ordinary file")
            data = json.loads(path.read_text(encoding="utf-8"))
            if data["schema"] is True or data["schema"] != SCHEMA:
                raise InputError(f"not a baseline of schema {SCHEMA}; write it again", path=str(path))
            entries = data["findings"]
            names = ("rule", "level", "kernel", "source")
            if not all(isinstance(entry[name], str) for entry in entries for name in names):
                raise ValueError("an entry holds something else than text")
            return Baseline((entry["rule"], entry["level"], entry["kernel"], entry["source"]) for entry in entries)
        except (OSError, ValueError, TypeError, KeyError, RecursionError, MemoryError) as error:
            form = "write one with 'kcontract check --write-baseline FILE PATH'"
            raise InputError(f"not a baseline ({error}); {form}", path=str(path)) from None

    def apply(self, report: Report) -> Report:
        """The report with accepted findings marked as waived."""
        return replace(report, findings=tuple(self._accept(report, finding) for finding in report.findings))

    def stale(self) -> list[Key]:
        """Accepted findings that no report had."""
        return sorted(self.accepted - self.met.keys())

    def _accept(self, report: Report, finding: Finding) -> Finding:
        key = key_of(report, finding)
        if key not in self.accepted or finding.waived is not None:
            return finding
        self.met[key] += 1
        return replace(finding, waived=ACCEPTED)


def key_of(report: Report, finding: Finding) -> Key:
    """What a finding is recognised by."""
    place = finding.location.user() if finding.location else None
    source = place.source_line().strip() if place else ""
    return finding.rule, finding.level.value, report.kernel, source


def write(path: Path, reports: Iterable[Report]) -> int:
    """Write the violations and hazards of the reports as a baseline; returns how many there are."""
    found = [
        key_of(report, finding)
        for report in reports
        for finding in report.findings
        if finding.level is not Level.NOTE and finding.waived in (None, ACCEPTED)
    ]
    names = ("rule", "level", "kernel", "source")
    entries = [dict(zip(names, key, strict=True)) for key in sorted(set(found))]
    if not path.name or path.is_dir():
        raise InputError("cannot be written: it is a folder", path=str(path))
    partial = path.with_name(path.name + ".partial")
    try:
        content = json.dumps({"schema": SCHEMA, "findings": entries}, indent=1, ensure_ascii=False) + "\n"
        partial.write_text(content, encoding="utf-8", errors="surrogateescape")
        partial.replace(path)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=str(path)) from None
    finally:
        partial.unlink(missing_ok=True)
    return len(entries)
