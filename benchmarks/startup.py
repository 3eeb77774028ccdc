"""What kcontract adds to the start of Python: the variable unset, off and set, against a Python without it.

Starts ``python -c pass`` in a venv with the ``.pth`` and in one without, in turn, and prints medians of the paired
differences (ms), then the time that the line itself takes with the variable unset, in a running Python (µs).

    python benchmarks/startup.py [ROUNDS]
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
PTH = SOURCE / "kcontract" / "kcontract.pth"


def venv(folder: Path, *, active: bool) -> Path:
    """A venv that kcontract can be imported in; ``active``: with its start-up line."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "a_paths.pth").write_text(f"{SOURCE}\n")
    if active:
        shutil.copy(PTH, site)
    return folder / "bin" / "python"


def start(python: Path, mode: str | None) -> float:
    """Seconds from start to end of a Python that does nothing."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("TRITON_KCONTRACT")}
    if mode is not None:
        environ["TRITON_KCONTRACT"] = mode
    begin = time.perf_counter()
    subprocess.run([python, "-c", "pass"], env=environ, check=True)
    return time.perf_counter() - begin


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        without, with_line = venv(Path(folder) / "without", active=False), venv(Path(folder) / "with", active=True)
        cases = {"unset": None, "off (0)": "0", "set (1)": "1"}
        added: dict[str, list[float]] = {name: [] for name in cases}
        base = []
        for _ in range(rounds):
            base.append(start(without, None))
            for name, mode in cases.items():
                before = start(without, mode)
                added[name].append(start(with_line, mode) - before)
    plain = statistics.median(base)
    for name, values in added.items():
        value = statistics.median(values)
        print(f"{name:8} {1e3 * value:+7.3f} ms, {(plain + value) / plain:.3f} of {1e3 * plain:.1f} ms")
    os.environ.pop("TRITON_KCONTRACT", None)
    line = PTH.read_text()
    seconds = min(timeit.repeat(lambda: exec(line), number=1000, repeat=7)) / 1000
    print(f"the line {1e6 * seconds:7.1f} µs, unset")


if __name__ == "__main__":
    main()
