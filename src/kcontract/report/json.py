"""JSON records: one object a finding, one a verdict, one an error. The report file holds the same, a line each.

Every record has ``type``, ``schema``, ``kernel``, ``target``, ``key`` (the specialisation) and ``ruleset``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from kcontract.model import Finding, Place, Report

SCHEMA = 1


def records(report: Report) -> Iterator[dict[str, object]]:
    """The report as JSON-able objects: findings, then verdicts, then errors."""
    common = {
        "schema": SCHEMA,
        "kernel": report.kernel,
        "target": report.target,
        "key": report.key,
        "ruleset": report.ruleset,
    }
    for finding in report.findings:
        yield {"type": "finding", **common, **_finding(finding)}
    for verdict in report.verdicts:
        yield {
            "type": "verdict",
            **common,
            "gate": verdict.gate,
            "status": verdict.status.value,
            "basis": verdict.basis.value,
            "engine": verdict.engine,
            "level_of_ir": verdict.level_of_ir,
            "reason": verdict.reason,
        }
    for error in report.errors:
        yield {"type": "error", **common, "message": error}


def lines(report: Report) -> str:
    """The records as JSON lines, each ended by a newline."""
    return "".join(json.dumps(record, ensure_ascii=False, default=str) + "\n" for record in records(report))


def _finding(finding: Finding) -> dict[str, object]:
    return {
        "gate": finding.gate,
        "rule": finding.rule,
        "level": finding.level.value,
        "confidence": finding.confidence.value,
        "message": finding.message,
        **place(finding.place),
        "why": finding.why,
        "remedy": finding.remedy,
        "to_try": finding.to_try,
        "related": [{"message": related.message, **place(related.place)} for related in finding.related],
        "evidence": dict(finding.evidence),
        "waived": finding.waived,
    }


def place(where: Place) -> dict[str, object]:
    """``file``, ``line``, ``column`` and ``source`` of the user's own line (null where unknown), and where in the IR.

    ``frames`` is the whole inlined chain, innermost first.
    """
    location = where.location
    user = location.user() if location else None
    return {
        "file": user.file if user else None,
        "line": user.line if user else None,
        "column": user.column if user else None,
        "source": user.source_line().strip() if user else "",
        "ir": where.ir,
        "ir_line": where.ir_line,
        "frames": [{"file": f.file, "line": f.line, "column": f.column} for f in location.chain()] if location else [],
    }
