"""Verdicts: a gate's one answer, and how findings and settled obligations add up to it."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from kcontract.model.finding import Finding, Level
from kcontract.model.gate import GATES


class Status(str, enum.Enum):
    """A gate's answer. UNDECIDED never counts as a pass, ERROR never as a failure of the kernel."""

    PASS = "PASS"
    FAIL = "FAIL"
    UNDECIDED = "UNDECIDED"
    NOT_APPLICABLE = "NOT_APPLICABLE"
    ERROR = "ERROR"

    def __str__(self) -> str:
        return self.value


class Basis(str, enum.Enum):
    """What an answer rests on: a proof, a run, or nothing."""

    PROVED = "proved"
    OBSERVED = "observed"
    NONE = "none"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Settled:
    """A rule's word that one static obligation of a gate holds for this artifact.

    ``level_of_ir`` is the text it was read from (``ttgir``, ``ptx``, ``cubin``, ``metadata``).
    ``applicable`` is False where the property has no subject here (no accumulation at all, say).
    """

    gate: str
    obligation: str
    level_of_ir: str
    reason: str = ""
    applicable: bool = True

    def __post_init__(self) -> None:
        if self.obligation not in GATES[self.gate].static:
            raise ValueError(f"{self.gate} has no static obligation {self.obligation!r}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """One gate's answer about one kernel for one target, at one level of IR, by one engine."""

    gate: str
    status: Status
    basis: Basis
    reason: str
    level_of_ir: str = ""
    engine: str = "static"


def aggregate(gate_id: str, findings: Iterable[Finding], settled: Iterable[Settled], error: str = "") -> Verdict:
    """Fold what the rules said about one gate into its verdict.

    A violation that is not waived fails the gate. An ``error`` makes it ERROR unless a violation was
    found anyway. It passes only where each static obligation is settled and no hazard is open;
    everything else is UNDECIDED and names what is missing.
    """
    mine = [f for f in findings if f.gate == gate_id and f.waived is None]
    facts = [s for s in settled if s.gate == gate_id]
    levels = "+".join(sorted({s.level_of_ir for s in facts} | {f.place.ir for f in mine if f.place.ir}))
    violations = [f for f in mine if f.level is Level.VIOLATION]
    if violations:
        more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
        return Verdict(gate_id, Status.FAIL, Basis.PROVED, violations[0].message + more, levels)
    if error:
        return Verdict(gate_id, Status.ERROR, Basis.NONE, error, levels)
    hazards = [f for f in mine if f.level is Level.HAZARD]
    if hazards:
        return Verdict(gate_id, Status.UNDECIDED, Basis.NONE, hazards[0].to_try or hazards[0].message, levels)
    done = {s.obligation for s in facts}
    missing = [name for name in GATES[gate_id].static if name not in done]
    if missing:
        reason = "needs a run" if missing == ["run"] else "not settled: " + ", ".join(missing)
        return Verdict(gate_id, Status.UNDECIDED, Basis.NONE, reason, levels)
    reason = "; ".join(dict.fromkeys(s.reason for s in facts if s.reason))
    if not any(s.applicable for s in facts):
        return Verdict(gate_id, Status.NOT_APPLICABLE, Basis.PROVED, reason, levels)
    return Verdict(gate_id, Status.PASS, Basis.PROVED, reason, levels)
