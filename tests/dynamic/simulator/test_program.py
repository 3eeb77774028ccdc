"""``kcontract run --engine sim:SM``: an unmodified CUDA program finds the right results, and faults end it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

pytest.importorskip("torch", reason="the simulator runs programs on torch tensors")
pytest.importorskip("triton", reason="the simulator runs what Triton compiles")

ROOT = Path(__file__).resolve().parents[3]

PROGRAM = """
import torch, triton, triton.language as tl

@triton.autotune([triton.Config({"BLOCK": 128}, num_warps=2), triton.Config({"BLOCK": 256})], key=["n"])
@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.device_assert(n < 4000, "too long")
    if tl.program_id(0) == 1:
        tl.device_print("block", n)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

x = torch.randn(1000, device="cuda")
out = torch.empty_like(x)
n = 1000 EXTRA
scale[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
assert out.device.type == "cuda" and torch.equal(out, x * 2), out
print("right", torch.cuda.get_device_capability())
"""


def run(tmp_path: Path, extra: str = "") -> tuple[int, str]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("EXTRA", extra))
    command = [sys.executable, "-m", "kcontract", "run", "--engine", "sim:sm_100", "--", sys.executable, str(program)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "ignore", "TRITON_DEBUG": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_cuda_program_finds_its_results(tmp_path: Path) -> None:
    status, output = run(tmp_path)
    assert status == 0, output
    assert "right (10, 0)" in output
    assert "block" in output and "1000" in output


@pytest.mark.parametrize(
    ("extra", "kind"),
    [pytest.param("+ 500", "out-of-bounds", marks=pytest.mark.slow), ("+ 4000", "assertion")],
)
def test_a_fault_ends_the_program_with_a_sentence(tmp_path: Path, extra: str, kind: str) -> None:
    status, output = run(tmp_path, extra)
    assert status == 4
    assert f"Fault: {kind}" in output and "program.py" in output


def test_a_cuda_graph_is_captured_and_replayed() -> None:
    program = Path(__file__).parents[1] / "engines" / "programs" / "graphs.py"
    command = [sys.executable, "-m", "kcontract", "run", "--engine", "sim:sm_90", "--", sys.executable, str(program)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 and "replayed twice" in done.stdout, done.stdout + done.stderr


def test_a_fault_shows_the_program_and_what_it_printed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("EXTRA", "+ 4000").replace("n < 4000", "n < 9000"))
    command = [sys.executable, "-m", "kcontract", "run", "--engine", "sim:sm_90", "--", sys.executable, str(program)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 4
    printed = done.stdout.splitlines()
    assert any("block" in line and "5000" in line for line in printed), "device prints are lost with the fault"
    assert "" not in printed, "a blank line behind each device print"
    frames = [line for line in done.stderr.splitlines() if line.startswith("  File ")]
    assert len(frames) == 1 and "program.py" in frames[0], done.stderr
    assert "Fault: out-of-bounds: " in done.stderr and re.search(r"PTX line \d+; .*program.py:\d+", done.stderr)


def test_triton_s_switch_shows_all_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    import simulated_kernels
    import torch
    import triton

    from kcontract.dynamic.engines.simulator.driver import simulate
    from kcontract.dynamic.engines.simulator.faults import Fault

    x = torch.zeros(64)
    for debugging in (False, True):
        monkeypatch.setattr(triton.knobs.compilation, "front_end_debugging", debugging)
        with simulate("sm_90"), pytest.raises(Fault, match="out-of-bounds") as fault:
            simulated_kernels.add[(1,)](x, x, x, 5000, BLOCK=1024)
        assert ("machine.py" in "".join(map(str, fault.traceback))) == debugging


@pytest.mark.parametrize(
    ("arguments", "environment", "sentence"),
    [
        (["--engine", "sim:sm_90"], {"TRITON_KCONTRACT_SIM": "cheked"}, "write fast, checked, patience=SECONDS"),
        (["--engine", "sim:sm_90", "--target", "sm_100"], {}, "--engine sim:sm_90 and --target sm_100 disagree"),
        (["--engine", "sim:sm_90", "--target", "sm_90,sm_100"], {}, "disagree; give the target once"),
        (["--engine", "sim:sm_91"], {}, "write one of sm_75, sm_80, "),
        (["--engine", "simulator"], {}, "write compile, sim, or sim:"),
    ],
)
def test_wrong_use_is_refused(
    arguments: list[str], environment: dict[str, str], sentence: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from kcontract.cli import main

    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main(["run", *arguments, "--", "python", __file__]) == 2
    assert sentence in capsys.readouterr().err
