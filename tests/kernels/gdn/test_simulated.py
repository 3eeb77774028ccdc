"""The PTX made for each GPU kind, run in bfloat16 in kcontract's simulator, against float64 and `test_gpu`'s
tolerances.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

ALLOWED = {"o": 2.5e-3, "final state": 2.5e-3, "g": 1e-2, "beta": 1e-2}


# On sm_90 with a scalar gate, K = V = 128 in 16 bit takes the Hopper kernels.
CASES = [
    ("90", "scalar", "128", "128", "bfloat16"),
    ("90", "channelwise", "64", "64", "bfloat16"),
    *((target, gate, "64", "64", "bfloat16") for target in ("100", "120") for gate in ("scalar", "channelwise")),
    *((target, "scalar", "256", "64", "bfloat16") for target in ("100", "120")),
    ("100", "channelwise", "256", "64", "bfloat16"),
    *((target, gate, "64", "64", "float32") for target in ("100", "120") for gate in ("scalar", "channelwise")),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_outputs_and_gradients_are_those_of_float64(case, tmp_path):
    script = Path(__file__).with_name("simulated.py")
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path)}
    run = subprocess.run([sys.executable, script, *case], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    errors = json.loads(next(line for line in run.stdout.splitlines() if line.startswith("{")))
    for name, error in errors.items():
        allowed = 2e-6 if case[-1] == "float32" else ALLOWED.get(name, 4e-3)
        assert error <= allowed, (name, error)
