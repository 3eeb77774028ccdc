"""GitHub workflow commands: an annotation at the Python line of each finding.

Format: GitHub Actions, "Workflow commands for GitHub Actions", setting an error, warning or notice message.
"""

from __future__ import annotations

from pathlib import Path

from kcontract.model import Level, Report

_COMMANDS = {Level.VIOLATION: "error", Level.HAZARD: "warning", Level.NOTE: "notice"}


def render(report: Report, *, at_least: Level = Level.HAZARD) -> str:
    """One line a finding, each ended by a newline."""
    lines = []
    for finding in report.open_findings(at_least):
        location = finding.location.user() if finding.location else None
        fields = {"title": f"{finding.gate} {finding.rule}"}
        if location:
            fields |= {"file": _relative(location.file), "line": str(max(location.line, 1))}
            if location.column:
                fields["col"] = str(location.column)
        parts = [f"{finding.message} ({report.kernel}, {report.target})", finding.why, finding.remedy]
        message = "\n".join(part for part in parts if part)
        properties = ",".join(f"{name}={_escape(value, property=True)}" for name, value in fields.items())
        lines.append(f"::{_COMMANDS[finding.level]} {properties}::{_escape(message)}\n")
    return "".join(lines)


def _escape(text: str, *, property: bool = False) -> str:
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if property else text


def _relative(file: str) -> str:
    try:
        return Path(file).resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return file
