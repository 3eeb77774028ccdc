"""REF-01: the reference can judge. It is deterministic, moves when its inputs move, and is right in float32."""

from __future__ import annotations

import torch

from kcontract.dynamic import oracle
from kcontract.dynamic.gates.bench import Bench, Found, Trial
from kcontract.dynamic.inputs import Sample, Spec, build
from kcontract.dynamic.oracle import Defect
from kcontract.errors import InputError
from kcontract.model import Status

GATE = "REF-01"
#: Sizes are cut to this where the reference takes it, since it is run once an input and three times more.
_SMALL = 64


def check(bench: Bench) -> Found:
    """FAIL for a defect that makes every verdict worthless, found at small sizes and at the working ones."""
    small = bench.spec.with_dims({name: min(size, _SMALL) for name, size in bench.spec.dims.items()})
    notes: list[str] = []
    for spec in (small, bench.spec) if small != bench.spec else (small,):
        sample = Sample(GATE, "normal", bench.seed, build(spec, bench.seed), spec.dims)
        try:
            worthless, notes = _judged(bench, spec, sample)
        except Exception as error:
            said = error if isinstance(error, InputError) else f"{type(error).__name__}: {str(error).splitlines()[0]}"
            failed = Found(bench.said(GATE, Status.UNDECIDED, f"the reference cannot be followed: {said}"))
            continue
        if bench.random and not bench.defect:
            notes.append(bench.random)
        if not worthless:
            rest = "".join(f"; but {note}" for note in notes)
            return Found(bench.said(GATE, Status.PASS, f"deterministic, moved by its inputs, right in float32{rest}"))
        trial = Trial(sample, worthless)
        failed = Found(bench.said(GATE, Status.FAIL, worthless), bench.witness(GATE, trial), 1)
    return failed


def _judged(bench: Bench, spec: Spec, sample: Sample) -> tuple[str, list[str]]:
    """Why the reference cannot judge (empty: it can), and what else was seen.

    One output that is constant, or one input that moves nothing, does not spoil the others.
    """
    reference = bench.reference(bench.dtype)
    inputs, other = (
        [v.to(bench.device) if isinstance(v, torch.Tensor) else v for v in values]
        for values in (sample.inputs, build(spec, bench.seed + 7919))
    )
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False), torch.no_grad():
        outputs = len(oracle.outputs_of(reference(*inputs)))
        defects = oracle.judge_reference(reference, inputs, other=other, seed=bench.seed)
    if not outputs:
        return "it returns no tensor", []
    varied = sum(
        isinstance(a, torch.Tensor) and a.numel() > 0 and not torch.equal(a, b)
        for a, b in zip(inputs, other, strict=True)
    )
    fatal = [d for d in defects if d.fatal and not _partial(d, defects, {"degenerate": outputs, "insensitive": varied})]
    return (fatal[0].message if fatal else ""), [d.message for d in defects if d not in fatal]


def _partial(defect: Defect, defects: tuple[Defect, ...], of: dict[str, int]) -> bool:
    return defect.kind in of and sum(d.kind == defect.kind for d in defects) < of[defect.kind]
