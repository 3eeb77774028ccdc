"""Honest kernels fail no gate at all: the alarm nobody may raise."""

from __future__ import annotations

import pytest
from order_bench import bench, found

from kcontract.dynamic.gates import gates
from kcontract.model import Contract, Determinism, Status

HONEST = [("softmax", "ModelNew"), ("elementwise", "ModelNew"), ("rowsum", "ModelNew"), ("product32", "Float32Atomics")]
#: These take longer and show less that is new.
MORE = [("layernorm", "ModelNew"), ("product32", "ModelNew"), ("logsumexp", "ModelNew")]


@pytest.mark.parametrize(("file", "name"), [*HONEST, *(pytest.param(*m, marks=pytest.mark.slow) for m in MORE)])
def test_no_gate_fails(file: str, name: str) -> None:
    bounded = Contract(determinism=Determinism.BOUNDED) if name == "Float32Atomics" else None
    said = {gate: found(gate, file, name, bounded).verdict for gate in gates()}
    wrong = {gate: v.reason for gate, v in said.items() if v.status in (Status.FAIL, Status.ERROR)}
    assert not wrong and not bench(file, name).ordinary().reason
