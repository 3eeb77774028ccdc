"""Which findings stop a compile in error mode, as which exception, and how a tuner's refused candidate is worded."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kcontract.errors import KContractViolation
from kcontract.model import Confidence, Finding, Level, Report

if TYPE_CHECKING:
    from types import FrameType

_TUNERS = {
    ("triton.runtime.autotuner", "_bench"),
    ("torch._inductor.runtime.triton_heuristics", "_precompile_worker"),
    ("torch._inductor.runtime.triton_heuristics", "_make_launchers"),
}


def refusal_of(report: Report) -> Exception | None:
    """The exception that stops this kernel: its violations that are proved or read off the IR, not inferred ones.

    Where it only does not fit the hardware, that is a subclass of Triton's ``OutOfResources`` too, at which a tuner
    drops the candidate and goes on.
    """
    findings = [f for f in report.open_findings(Level.VIOLATION) if f.confidence is not Confidence.INFERRED]
    if not findings:
        return None
    message = _message(report, findings)
    if all(f.gate == "RES-02" for f in findings):
        from kcontract.hook.resources import DoesNotFit

        evidence = findings[0].evidence
        return DoesNotFit(message, *(evidence.get(name) for name in ("found", "limit", "resource")))
    return KContractViolation(message)


def candidate_refused(report: Report) -> tuple[Report, str]:
    """The report without what only makes a tuner drop this candidate, and a line that says so (else empty).

    A tuner that tries several configurations expects some not to fit: those are no defects of the kernel.
    """
    misfits = [f for f in report.open_findings(Level.VIOLATION) if f.gate == "RES-02"]
    if not misfits or not _in_tuner(sys._getframe(1)):
        return report, ""
    rest = replace(report, findings=tuple(f for f in report.findings if f not in misfits))
    reasons = "; ".join(f.message for f in misfits)
    return rest, f"kcontract: candidate refused: {report.kernel} for {report.target}: {reasons}\n"


def _in_tuner(frame: FrameType | None) -> bool:
    while frame is not None:
        if (frame.f_globals.get("__name__"), frame.f_code.co_name) in _TUNERS:
            tuner = frame.f_locals.get("self")
            candidates = getattr(tuner, "configs", None) or getattr(tuner, "compile_results", None) or ()
            return len(candidates) > 1
        frame = frame.f_back
    return False


def _message(report: Report, findings: Sequence[Finding]) -> str:
    lines = [f"{report.kernel} for {report.target} breaks its promise"]
    for finding in findings:
        place = f"{finding.location.user()}: " if finding.location else ""
        lines.append(f"  {place}{finding.rule} ({finding.gate}): {finding.message}")
    names = ", ".join(dict.fromkeys(f.rule for f in findings))
    lines.append(f"  to waive: '# kcontract: allow {names} (reason)' at that line; TRITON_KCONTRACT=1 only warns")
    return "\n".join(lines)
