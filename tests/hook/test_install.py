"""``pip install`` makes kcontract active by the variable alone, and ``pip uninstall`` takes that away."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from .conftest import SOURCE

COMPILE = "import kernels_used as k; k.compile(k.clean)"


def pip(python: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(python), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_install_and_uninstall(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    site = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    (site / "packages.pth").write_text(f"{sysconfig.get_path('platlib')}\n")  # triton and what kcontract needs
    (site / "tests.pth").write_text(f"{Path(__file__).parent}\n")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TRITON_", "PYTHON"))}
    environment = {**kept, "TRITON_CACHE_DIR": str(tmp_path / "cache"), "TRITON_DEFAULT_FP_FUSION": "1"}

    def verdicts() -> int:
        report = tmp_path / "report.jsonl"
        report.unlink(missing_ok=True)
        more = {"TRITON_KCONTRACT": "1", "TRITON_KCONTRACT_REPORT": str(report)}
        done = subprocess.run(
            [python, "-I", "-c", COMPILE], env={**environment, **more}, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
        return len(report.read_text().splitlines()) if report.exists() else 0

    pip(python, "install", "-q", "--no-deps", str(SOURCE.parent))
    assert (site / "kcontract.pth").is_file()
    assert verdicts() > 10
    pip(python, "uninstall", "-q", "-y", "kcontract")
    assert not (site / "kcontract.pth").exists()
    assert not (site / "kcontract").exists()
    assert verdicts() == 0
