"""Kernels whose PTX no one here wrote: the committed manifests, and NVIDIA's CuTe DSL where it is installed."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / name).read_text())
    return found


def test_at_least_ten_foreign_kernels_of_sm_100_are_right() -> None:
    cute = read("simulator_cute_dsl.json")
    assert all(case["passed"] for case in cute.values())
    assert sum(bool(case["tcgen05"]) for case in cute.values()) >= 3
    libraries = read("simulator_libraries.json")["cases"]
    kernels = {k for case in libraries.values() for k in case.get("sm_100", {}).get("launches", {})}
    assert len(cute) + len(kernels) >= 10


@pytest.mark.parametrize("target", ["sm_90", "sm_100"])
def test_the_libraries_pass_their_own_references(target: str) -> None:
    public = read("simulator_public_tests.json")
    assert {"liger-kernel", "fla-core"} <= public["totals"].keys()
    for library in public["totals"].values():
        count = library[target]
        assert count["launches passed"] >= 0.97 * (count["launches passed"] + count.get("launches failed", 0)) > 0
    launches = sum(t[target]["launches"] for t in public["tests"].values() if target in t and t[target]["passed"])
    assert launches == public["totals"]["all"][target]["launches passed"]
    cases = [case[target] for case in read("simulator_libraries.json")["cases"].values() if target in case]
    assert sum(case["passed"] for case in cases) >= 0.97 * len(cases)


def test_a_sample_of_the_libraries(tmp_path: Path) -> None:
    for name in ("liger_kernel", "fla", "einops", "torch", "triton"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed: pip install liger-kernel fla-core einops torch triton")
    out = tmp_path / "out.jsonl"
    program = [sys.executable, str(HERE / "libraries" / "references.py"), str(out), "liger/rms_norm", "fla/hgrn_chunk"]
    command = [sys.executable, "-m", "kcontract", "run", "--engine", "sim:sm_100", "--max-configs", "1", "--", *program]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(line["case"], line["passed"]) for line in lines] == [("liger/rms_norm", True), ("fla/hgrn_chunk", True)]


@pytest.mark.slow
def test_products_of_cute_dsl(tmp_path: Path) -> None:
    for name in ("cutlass", "liger_kernel", "torch"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed: pip install nvidia-cutlass-dsl liger-kernel torch")
    if shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("there is no C compiler to build the runtime that CuTe DSL calls")
    out = tmp_path / "out.json"
    command = [sys.executable, str(HERE / "cute" / "kernels.py"), str(out)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(out.read_text()).keys() == read("simulator_cute_dsl.json").keys()
