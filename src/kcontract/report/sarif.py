"""SARIF 2.1.0, from the JSON records. Format: OASIS SARIF 2.1.0 (sarif-schema-2.1.0.json)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"violation": "error", "hazard": "warning", "note": "note"}

Record = Mapping[str, Any]


def document(records: Iterable[Record], *, version: str, help_texts: Mapping[str, str]) -> dict[str, Any]:
    """One SARIF log of the finding and error records; ``help_texts`` maps a rule's slug to its page (Markdown)."""
    records = list(records)
    findings = [record for record in records if record["type"] == "finding"]
    names = sorted({finding["rule"] for finding in findings})
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "kcontract",
                        "version": version,
                        "rules": [_rule(name, findings, help_texts.get(name, "")) for name in names],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [result(finding, names.index(finding["rule"])) for finding in findings],
                "invocations": [
                    {
                        "executionSuccessful": not any(record["type"] == "error" for record in records),
                        "toolExecutionNotifications": [
                            {"level": "error", "message": {"text": record["message"]}}
                            for record in records
                            if record["type"] == "error"
                        ],
                    }
                ],
            }
        ],
    }


def result(finding: Record, rule_index: int) -> dict[str, Any]:
    """One finding as a SARIF result: primary place, then the callers and related places."""
    text = finding["message"] + "".join(f". {finding[part]}" for part in ("why", "remedy") if finding[part])
    frames = [
        frame for frame in finding["frames"] if (frame["file"], frame["line"]) != (finding["file"], finding["line"])
    ]
    related = [_location(frame, "inlined here") for frame in frames]
    related += [_location(other, other["message"]) for other in finding["related"] if other["file"]]
    entry: dict[str, Any] = {
        "ruleId": finding["rule"],
        "ruleIndex": rule_index,
        "level": _LEVELS[finding["level"]],
        "message": {"text": f"{finding['gate']}: {text} [{finding['kernel']}, {finding['target']}]"},
        "partialFingerprints": {"kcontract/v1": _fingerprint(finding)},
        "properties": {"kernel": finding["kernel"], "target": finding["target"], "gate": finding["gate"]},
    }
    if finding["file"]:
        entry["locations"] = [_location(finding)]
    if related:
        entry["relatedLocations"] = [{"id": number, **place} for number, place in enumerate(related, 1)]
    if finding["waived"] is not None:
        entry["suppressions"] = [{"kind": "inSource", "justification": finding["waived"]}]
    return entry


def _fingerprint(finding: Record) -> str:
    """Stable under edits elsewhere: the statement's text and column, not its line."""
    parts = (finding["rule"], finding["kernel"], finding["target"], finding.get("source", ""), str(finding["column"]))
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _rule(name: str, findings: Iterable[Record], help_text: str) -> dict[str, Any]:
    gate = next(finding["gate"] for finding in findings if finding["rule"] == name)
    rule: dict[str, Any] = {"id": name, "properties": {"tags": [gate]}}
    if help_text:
        summary = next(line for line in help_text.splitlines() if line and not line.startswith("#"))
        rule["shortDescription"] = {"text": summary}
        rule["help"] = {"text": help_text, "markdown": help_text}
    return rule


def _location(place: Record, message: str = "") -> dict[str, Any]:
    region = {"startLine": max(place["line"], 1)}
    if place.get("column"):
        region["startColumn"] = place["column"]
    location: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": {"uri": _uri(place["file"])}, "region": region}
    }
    return {**location, "message": {"text": message}} if message else location


def _uri(file: str) -> str:
    path = Path(file)
    if not path.is_absolute():
        return quote(path.as_posix())
    try:
        return quote(path.relative_to(Path.cwd()).as_posix())
    except ValueError:
        return path.as_uri()
