"""What stops a compile in error mode, and as what."""

from __future__ import annotations

import pickle

import pytest

from kcontract.errors import KContractViolation
from kcontract.hook.refusal import candidate_refused, refusal_of
from kcontract.ir.location import Location
from kcontract.model import Confidence, Finding, Level, Place, Report

triton = pytest.importorskip("triton")


def finding(gate: str = "PRC-02", level: Level = Level.VIOLATION, **more: object) -> Finding:
    place = Place(Location("/home/u/prog.py", 12, 8), "ttgir", 40)
    return Finding(f"rule-of-{gate.lower()}", gate, level, "found one, wanted none", place, **more)  # type: ignore[arg-type]


def report(*findings: Finding) -> Report:
    return Report("matmul", "sm_100", "0", "r", findings)


@pytest.mark.parametrize(
    "harmless",
    [
        finding(level=Level.HAZARD),
        finding(level=Level.NOTE),
        finding(confidence=Confidence.INFERRED),
        finding(waived="known"),
    ],
)
def test_what_does_not_stop(harmless: Finding) -> None:
    assert refusal_of(report(harmless)) is None


@pytest.mark.parametrize("confidence", [Confidence.PROVED, Confidence.READ])
def test_a_violation_stops_and_its_message_reads_to_the_end(confidence: Confidence) -> None:
    refusal = refusal_of(report(finding(confidence=confidence), finding(level=Level.HAZARD)))
    assert type(refusal) is KContractViolation
    assert str(refusal).splitlines() == [
        "matmul for sm_100 breaks its promise",
        "  /home/u/prog.py:12:8: rule-of-prc-02 (PRC-02): found one, wanted none",
        "  to waive: '# kcontract: allow rule-of-prc-02 (reason)' at that line; TRITON_KCONTRACT=1 only warns",
    ]


def test_a_misfit_is_tritons_out_of_resources_and_survives_a_process_border() -> None:
    evidence = {"resource": "shared memory", "found": 262144, "limit": 232448}
    refusal = pickle.loads(pickle.dumps(refusal_of(report(finding("RES-02", evidence=evidence)))))
    assert isinstance(refusal, triton.OutOfResources)
    assert isinstance(refusal, KContractViolation)
    assert (refusal.required, refusal.limit, refusal.name) == (262144, 232448, "shared memory")
    assert str(refusal).startswith("matmul for sm_100 breaks its promise\n")


def test_a_misfit_beside_another_violation_is_not_dropped_quietly() -> None:
    refusal = refusal_of(report(finding("RES-02"), finding()))
    assert type(refusal) is KContractViolation
    assert len(str(refusal).splitlines()) == 4


def test_outside_a_tuner_nothing_is_a_candidate() -> None:
    given = report(finding("RES-02"))
    assert candidate_refused(given) == (given, "")
