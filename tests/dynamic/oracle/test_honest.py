"""A small sample of the benchmark: honest runs raise no alarm, faults do, the probe tells accumulators apart."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import bounds
import bounds_eager
import bounds_modules
import bounds_ops

SEED = 9000


@pytest.mark.parametrize("held_out", [False, True])
def test_honest_operations_in_every_order(held_out: bool) -> None:
    tally = bounds.Tally()
    bounds.honest_ops(tally, range(SEED, SEED + 2), (17, 64, 512), held_out, bounds.DTYPES)
    assert tally.runs > 450 and tally.alarms["oracle"] == 0, tally.worst
    assert max(tally.required) < 8


def test_honest_modules_forward_and_backward() -> None:
    tally = bounds.Tally()
    for held_out in (False, True):
        bounds_eager.runs(tally, range(SEED, SEED + 1), held_out, {"fp32": torch.float32})
    assert tally.runs >= 2 * len(bounds_modules.ALL) - 4 and tally.alarms["oracle"] == 0, tally.worst
    assert float(np.median(tally.ratios)) >= 0.02, "a bound that is merely huge fails"


@pytest.mark.parametrize("name", ["sum", "layer_norm", "softmax", "matmul", "rms_norm"])
def test_faults_are_found(name: str) -> None:
    what = next(o for o in bounds_ops.ALL if o.name == name)
    for way in bounds_ops.faults(what, torch.float32):
        caught = []
        for kind in bounds.SUITE:
            tensors = bounds_ops.make(what, 512, torch.float32, kind, SEED)
            expected, upstream, _ = bounds.expect(what, tensors, SEED)
            found = bounds_ops.run(what, way, tensors, upstream)
            caught.append(not all(r.ok for r in bounds.check(found, expected)))
        assert any(caught), way.fault


def test_the_probe_has_no_false_alarm_and_misses_nothing() -> None:
    count = bounds.probes((32, 64, 512), range(4))
    assert count["honest alarms"] == 0 and count["honest checks"] > 500
    assert count["found"] == count["faults"] > 50


@pytest.mark.slow
def test_the_full_sweep() -> None:
    tally = bounds.Tally()
    for held_out in (False, True):
        bounds.honest_ops(tally, range(SEED, SEED + 17), (17, 64, 512, 4096), held_out, bounds.DTYPES)
        bounds_eager.runs(tally, range(SEED, SEED + 8), held_out, bounds.DTYPES)
    assert tally.runs >= 20000 and tally.alarms["oracle"] == 0, tally.worst
