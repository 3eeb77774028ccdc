"""RES-02: the kernel fits the hardware. Here: the load itself, which the device, or its figures, may refuse.

What needs no run (registers, shared memory, Tensor Memory of every target) is read by the static side.
"""

from __future__ import annotations

from kcontract.dynamic.gates.bench import Bench, Found, Trial
from kcontract.model import Status

GATE = "RES-02"


def check(bench: Bench) -> Found:
    """FAIL where a launch was refused for want of resources; PASS where a device loaded every kernel."""
    for what, answer in bench.log:
        own = what.startswith("CMP-01 ")  # other gates try sizes and configurations that may well be too large
        if own and answer.failure is not None and answer.failure.exception == "OutOfResources":
            trial = Trial(bench.nominal(), str(answer.failure))
            return Found(bench.said(GATE, Status.FAIL, trial.reason), bench.witness(GATE, trial), 1)
    launches = bench.sight.launches if bench.sight is not None else ()
    if bench.candidate.kind != "gpu":
        return Found(bench.said(GATE, Status.UNDECIDED, f"{bench.engine} loads nothing, and no figures were found"))
    if not launches:
        return Found(bench.said(GATE, Status.UNDECIDED, "no launch was seen, so nothing tells what it needs"))
    names = sorted({str(launch["kernel"]) for launch in launches})
    return Found(bench.said(GATE, Status.PASS, f"the device loaded {', '.join(names)}"), tried=len(launches))
