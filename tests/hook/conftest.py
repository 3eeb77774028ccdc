"""A venv that kcontract is active in, as after ``pip install``: its site folder holds the real ``kcontract.pth``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"


@dataclass(frozen=True)
class World:
    """A Python with kcontract in its site folder; for one test, a folder to work in and one for temporary files."""

    python: Path
    folder: Path
    temporary: Path

    @property
    def report(self) -> Path:
        return self.folder / "report.jsonl"

    def environment(self, mode: str | None, **more: str) -> dict[str, str]:
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("TRITON_", "PYTHON", "TORCH")) and k != "NO_COLOR"
        }
        named = {} if mode is None else {"TRITON_KCONTRACT": mode}
        return {
            **kept,
            "TRITON_CACHE_DIR": str(self.folder / "cache"),
            "TRITON_DEFAULT_FP_FUSION": "1",
            "TMPDIR": str(self.temporary),
            "TRITON_KCONTRACT_REPORT": str(self.report),
            **named,
            **more,
        }

    def run(self, code: str, mode: str | None = "1", *, flags: tuple[str, ...] = (), **more: str) -> str:
        """Run code; returns its stderr, with stdout before it. It must end well."""
        done = self.start(code, mode, flags=flags, **more)
        output = "".join(done.communicate(timeout=120))
        assert done.returncode == 0, output
        return output

    def start(
        self, code: str, mode: str | None = "1", *, flags: tuple[str, ...] = (), **more: str
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.python, *flags, "-c", code],
            env=self.environment(mode, **more),
            cwd=self.folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def records(self, kind: str = "verdict") -> list[dict[str, object]]:
        """Records of that type in the report; each line must be whole."""
        if not self.report.exists():
            return []
        return [r for line in self.report.read_text().splitlines() if (r := json.loads(line))["type"] == kind]

    def checked(self) -> list[str]:
        """The kernel of each report, in order: one a specialisation and process."""
        return [str(r["kernel"]) for r in self.records() if r["gate"] == "PRC-02"]


@pytest.fixture(scope="session")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of the Python of a venv that sees this Python's packages, and kcontract by its ``.pth`` alone."""
    root = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root], check=True)
    python = root / "bin" / "python"
    query = [python, "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"]
    site = Path(subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip())
    shutil.copy(SOURCE / "kcontract" / "kcontract.pth", site / "kcontract.pth")
    (site / "a_paths.pth").write_text(f"{SOURCE}\n{sysconfig.get_path('platlib')}\n")
    (site / "b_fake_rules.pth").write_text("import os; os.environ.get('FAKE_RULES') and __import__('fake_rules')\n")
    shutil.copy(HERE / "fake_rules.py", site)
    shutil.copy(HERE / "kernels_used.py", site)
    return python


@pytest.fixture
def world(venv: Path, tmp_path: Path) -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="kc") as temporary:  # short: multiprocessing puts sockets there
        yield World(venv, tmp_path, Path(temporary))
