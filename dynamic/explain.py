"""Joins a failed run with what the static pass says of the kernel that wrote the wrong output.

Why: "output 0[3, 17] is 2048, wanted 4096" sends a reader searching; "the sum kept in float16 at softmax.py:31" does
not. The kernels that had the failing output's storage among their pointers are known from the observed call; of their
findings those are told whose gate can cause a failure of this one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kcontract.dynamic.sandbox.candidate import Answer
from kcontract.model import Finding, Report, Witness

#: Gates whose findings may explain a failure of a gate, the likeliest first.
_CAUSES = {
    "CMP-01": ("CMP-01", "PRC-02", "MEM-01", "CMP-03", "EXC-01", "ORD-03"),
    "CMP-02": ("CMP-02", "PRC-02", "CMP-01"),
    "CMP-03": ("CMP-03", "MEM-01", "RES-02"),
    "ORD-01": ("ORD-01", "PRC-02", "ORD-03"),
    "ORD-03": ("ORD-03", "PRC-02", "ORD-01"),
    "PRC-01": ("PRC-01", "PRC-02"),
    "MEM-01": ("MEM-01", "CMP-03"),
}


def writers(sight: Answer | None, output: str) -> set[str]:
    """Names of the kernels that were given the storage of an output (``output 2``) in the observed call."""
    if sight is None or sight.failure is not None:
        return set()
    number = output.removeprefix("output ")
    chosen = sight.outputs[int(number) : int(number) + 1] if number.isdecimal() else sight.outputs
    storages = {o.storage for o in chosen} - {0}
    return {str(launch["kernel"]) for launch in sight.launches if storages & set(launch["pointers"].values())}


def cause(gate: str, witness: Witness | None, sight: Answer | None, reports: Sequence[Report]) -> Finding | None:
    """The finding that explains a failure of ``gate`` best, None where none does."""
    kernels = writers(sight, witness.output if witness is not None else "")
    if not kernels and sight is not None:
        kernels = {str(launch["kernel"]) for launch in sight.launches}
    order = _CAUSES.get(gate, (gate,))
    found = [
        f
        for report in reports
        if report.kernel in kernels
        for f in report.findings
        if f.gate in order and f.waived is None
    ]
    dtypes = "|".join(set(witness.dtypes.values())) if witness is not None else ""
    same = re.compile(rf"\b({dtypes})\b")

    def rank(finding: Finding) -> tuple[bool, int, int]:
        """The specialisation for the dtype that failed first, then the gravest, then the likeliest gate."""
        return not (dtypes and same.search(finding.message)), -finding.level.rank, order.index(finding.gate)

    return min(found, key=rank, default=None)


def said(finding: Finding) -> str:
    """The finding in a clause: ``sum of 4096 terms kept in float16, wanted float32 at softmax.py:31``."""
    user = finding.location.user() if finding.location is not None else None
    place = f" at {user.file.rsplit('/', 1)[-1]}:{user.line}" if user is not None else ""
    return f"{finding.message}{place} ({finding.rule})"
