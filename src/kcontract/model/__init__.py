"""The nouns every other folder speaks in: Gate, Contract, Finding, Verdict, Witness, Report."""

from __future__ import annotations

from kcontract.model.contract import Accumulator, Contract, Determinism, NanPolicy, Subnormals
from kcontract.model.finding import Confidence, Finding, Level, Place, Related
from kcontract.model.gate import FLOOR, GATES, Gate, gate
from kcontract.model.report import Report
from kcontract.model.verdict import Basis, Settled, Status, Verdict, aggregate
from kcontract.model.witness import Witness

__all__ = [
    "FLOOR",
    "GATES",
    "Accumulator",
    "Basis",
    "Confidence",
    "Contract",
    "Determinism",
    "Finding",
    "Gate",
    "Level",
    "NanPolicy",
    "Place",
    "Related",
    "Report",
    "Settled",
    "Status",
    "Subnormals",
    "Verdict",
    "Witness",
    "aggregate",
    "gate",
]
