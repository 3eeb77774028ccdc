"""``--suggest``: for what does not fit, options that were compiled and do."""

from __future__ import annotations

from dataclasses import replace

from kcontract.dynamic.engines.recompile import alternatives, recompile
from kcontract.ir.artifact import Artifact
from kcontract.model import Finding, Level, Report
from kcontract.passes.base import check


def improve(report: Report, artifact: Artifact) -> Report:
    """The report, each over-budget finding with a remedy that was compiled and fits, or told that none did."""
    findings = tuple(
        _improve(finding, artifact) if finding.rule == "over-budget" and finding.level is not Level.NOTE else finding
        for finding in report.findings
    )
    return replace(report, findings=findings)


def _improve(finding: Finding, artifact: Artifact) -> Finding:
    resource = str(finding.evidence["resource"])
    tried = []
    for phrase, options in alternatives(artifact, resource):
        made = recompile(artifact, artifact.target, options)
        if not isinstance(made, Artifact):
            continue
        report = check(made, select=["over-budget"])
        if not report.open_findings(Level.VIOLATION):
            reason = next(verdict.reason for verdict in report.verdicts if verdict.gate == finding.gate)
            return replace(finding, remedy=f"{phrase} fits (compiled and checked: {reason})")
        tried.append(phrase)
    none = f"; compiled and too large as well: {', '.join(tried)}" if tried else "; no compiler option changes it"
    return replace(finding, remedy=finding.remedy + none)
