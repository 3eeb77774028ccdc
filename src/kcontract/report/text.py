"""Text for people: a caret under the Python line, found and wanted, why, what to do."""

from __future__ import annotations

from collections.abc import Iterable

from kcontract.model import Finding, Level, Report

_COLOURS = {Level.VIOLATION: "31;1", Level.HAZARD: "33;1", Level.NOTE: "36;1"}


def render(report: Report, *, color: bool = False, at_least: Level = Level.HAZARD) -> str:
    """The report's open findings of that level or above, and its errors; an empty string where there are none."""
    parts = [render_finding(f, report, color=color) for f in report.open_findings(at_least)]
    parts += [f"{_paint('error', '35;1', color)}[kcontract] {error}\n" for error in report.errors]
    return "\n".join(parts)


def render_finding(finding: Finding, report: Report, *, color: bool = False) -> str:
    """One finding, in the manner of a compiler diagnostic."""
    head = _paint(f"{finding.level}[{finding.rule}]", _COLOURS[finding.level], color)
    lines = [f"{head} {finding.gate}: {finding.message}"]
    location = finding.location
    subject = f"in {report.kernel} for {report.target}"
    if location is None:
        lines.append(
            f"  --> {finding.place.ir or 'artifact'}{_line(finding.place.ir_line)} of {report.origin}, {subject}"
        )
    else:
        user = location.user()
        lines.append(f"  --> {user}, {subject}")
        lines += _snippet(user.source_line(), user.line, user.column, color)
        lines += [f"   = called from {caller}" for caller in user_callers(finding)]
    seen = {str(location.user())} if location else set()
    for related in finding.related:
        where = related.place.location
        place = str(where.user()) if where else ""
        if not place or place not in seen:
            lines.append(f"   = {related.message}" + (f": {place}" if place else ""))
        seen.add(place)
    lines += [
        f"   = {name}: {text}"
        for name, text in (("why", finding.why), ("help", finding.remedy), ("to settle it", finding.to_try))
        if text
    ]
    return "\n".join(lines) + "\n"


def user_callers(finding: Finding) -> Iterable[object]:
    """Call sites outside the primary line, innermost first."""
    if (location := finding.location) is None:
        return ()
    chain = location.chain()
    return chain[chain.index(location.user()) + 1 :]


def summary(reports: Iterable[Report]) -> str:
    """One line that counts kernels, findings by level, and waived ones."""
    reports = list(reports)
    counts = {
        level: sum(len([f for f in r.findings if f.level is level and f.waived is None]) for r in reports)
        for level in Level
    }
    waived = sum(f.waived is not None for r in reports for f in r.findings)
    errors = sum(len(r.errors) for r in reports)
    parts = [plural(len(reports), "kernel"), *(plural(counts[level], str(level)) for level in Level)]
    parts += [f"{waived} waived"] * bool(waived) + [plural(errors, "error")] * bool(errors)
    return ", ".join(parts)


def plural(count: int, noun: str) -> str:
    """``1 kernel``, ``2 kernels``."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _snippet(source: str, line: int, column: int, color: bool) -> list[str]:
    if not source.strip():
        return []
    margin = " " * len(str(line))
    lead = "".join(c if c == "\t" else " " for c in source[: max(column - 1, 0)])
    caret = [f" {margin} | {lead}{_paint('^', '31;1', color)}"] if column else []
    return [f" {margin} |", f" {line} | {source}", *caret]


def _line(line: int | None) -> str:
    return "" if line is None else f" line {line}"


def _paint(text: str, code: str, color: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if color else text
