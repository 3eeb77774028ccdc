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


@pytest.mark.slow
@pytest.mark.parametrize("target", ["90", "100", "120"])
@pytest.mark.parametrize("gate", ["scalar", "channelwise"])
def test_outputs_and_gradients_are_those_of_float64(target, gate, tmp_path):
    script = Path(__file__).with_name("simulated.py")
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path)}
    run = subprocess.run([sys.executable, script, target, gate], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    errors = json.loads(next(line for line in run.stdout.splitlines() if line.startswith("{")))
    for name, error in errors.items():
        assert error <= ALLOWED.get(name, 4e-3), (name, error)
