"""SYN-01: fences, waits and Tensor Memory lifecycle, by running once under the simulator's diagnoses.

The simulator in checked mode lets asynchronous work take effect as late as the program allows and follows who has
written what. Other engines show a missing wait by luck alone, so they decide nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kcontract.dynamic.gates.answers import unfit
from kcontract.dynamic.gates.bench import Bench, Found, Trial
from kcontract.dynamic.inputs import Sample
from kcontract.model import Status

GATE = "SYN-01"

#: Diagnoses that are of other gates.
_OTHERS = ("out-of-bounds", "misaligned-access", "assertion", "trap", "bad-launch", "endless-loop")
_KIND = re.compile(r"Fault: ([a-z-]+): ")


def check(bench: Bench) -> Found:
    """One call at the working sizes; two with ``thorough``."""
    if bench.candidate.kind != "sim":
        reason = "nothing that this engine shows; run it with --engine sim:sm_90 (or the target it is for)"
        return Found(bench.said(GATE, Status.UNDECIDED, reason))
    trials = [_judge(bench, sample) for sample in draws(bench)]
    if not any(t.judged for t in trials):
        return Found(bench.said(GATE, Status.UNDECIDED, f"it fails for another reason: {trials[0].reason}"))
    return bench.verdict(GATE, trials, "nothing to report")


def draws(bench: Bench) -> Iterator[Sample]:
    """The gate's inputs."""
    for seed in range(2 if bench.thorough else 1):
        yield bench.nominal(f"normal {seed}", seed, gate=GATE)


def _judge(bench: Bench, sample: Sample) -> Trial:
    answer = bench.answer(sample, checked=True)
    reason = unfit(answer)
    kind = _KIND.match(reason)
    if kind is not None and kind[1] not in _OTHERS:
        return Trial(sample, reason.removeprefix("Fault: "))
    return Trial(sample, reason, judged=not reason)
