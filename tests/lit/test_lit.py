"""Runs the lit tests as part of the suite."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_lit_tests_pass(tmp_path):
    command = [
        sys.executable,
        "-c",
        "from lit.main import main; main()",
        "-q",
        "-j2",
        "--order=lexical",
        str(ROOT / "lit_tests"),
    ]
    env = {**os.environ, "KCONTRACT_LIT_OUTPUT": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
