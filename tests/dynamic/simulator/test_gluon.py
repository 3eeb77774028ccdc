"""Gluon kernels run in the simulator like Triton's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

triton = pytest.importorskip("triton", reason="the simulator runs what Triton compiles")
HERE = Path(__file__).resolve().parent


@pytest.mark.skipif(triton.__version__ < "3.7", reason="Gluon of Triton 3.6 wants register layouts written by hand")
def test_a_product_in_tensor_memory() -> None:
    env = {**os.environ, "PYTHONPATH": str(HERE.parents[2] / "src"), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(HERE / "gluon_program.py")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 and "right" in done.stdout, done.stderr
