"""Misses and hits give verdicts, the cache stays as it is without us, and nothing of ours breaks a compile."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from .conftest import World

FAKE = {"FAKE_RULES": "1"}


def compile_all(*names: str, n: int = 128) -> str:
    return "import kernels_used as k\n" + "\n".join(f"k.compile(k.{name}, {n})" for name in names)


def test_miss_disk_hit_and_repeated_hit(world: World) -> None:
    world.run(compile_all("clean", "clean"))
    assert world.checked() == ["clean"]
    world.run(compile_all("clean", "clean"))
    assert world.checked() == ["clean"] * 2
    assert {r["status"] for r in world.records()} <= {"PASS", "UNDECIDED", "NOT_APPLICABLE"}
    assert {r["target"] for r in world.records()} == {"sm_80"}


def test_a_hit_reads_what_a_miss_reads(world: World) -> None:
    world.run(compile_all("clean"))
    world.run(compile_all("clean"))
    miss, hit = (r["key"] for r in world.records() if r["gate"] == "PRC-02")
    assert miss == hit


def test_many_processes_and_one_fresh_cache(world: World) -> None:
    started = [world.start(compile_all("clean", "hazard", "clean"), **FAKE) for _ in range(4)]
    outputs = [s.communicate(timeout=120)[1] for s in started]
    assert [s.returncode for s in started] == [0] * 4
    assert [output.count("found a hazard") for output in outputs] == [1] * 4
    assert sorted(world.checked()) == ["clean"] * 4 + ["hazard"] * 4
    assert "ERROR" not in {r["status"] for r in world.records()}


def test_levels(world: World) -> None:
    output = world.run(compile_all("violation", "hazard", "note", "clean"), **FAKE)
    assert [kernel in output for kernel in ("found a violation", "found a hazard", "found a note")] == [
        True,
        True,
        False,
    ]
    assert [r["level"] for r in world.records("finding")] == ["violation", "hazard", "note"]
    assert "\x1b" not in output


@pytest.mark.parametrize(
    ("more", "coloured"),
    [({}, False), ({"TRITON_KCONTRACT_COLOR": "always"}, True), ({"TRITON_KCONTRACT_COLOR": "never"}, False)],
)
def test_color(world: World, more: dict[str, str], coloured: bool) -> None:
    assert ("\x1b[" in world.run(compile_all("hazard"), **FAKE, **more)) is coloured


@pytest.mark.parametrize(("more", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_color_on_a_terminal(world: World, more: dict[str, str], coloured: bool) -> None:
    main, child = os.openpty()
    environment = world.environment("1", **FAKE, **more)
    done = subprocess.run([world.python, "-c", compile_all("hazard")], env=environment, cwd=world.folder, stderr=child)
    assert done.returncode == 0
    os.close(child)
    seen = os.read(main, 1 << 16).decode()
    os.close(main)
    assert ("\x1b[" in seen) is coloured
    assert "found a hazard" in seen


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("mode", ["1", "error"])
def test_the_cache_is_byte_identical(world: World, mode: str) -> None:
    code = compile_all("clean", "note", "defect")
    world.run(code, None)
    before = files(world.folder / "cache")
    (world.folder / "cache").rename(world.folder / "cache_before")
    world.run(code, mode, **FAKE)
    assert files(world.folder / "cache") == before


REFUSED = """
import kernels_used as k
from kcontract.errors import KContractViolation
for _ in range(2):
    try:
        k.compile(k.violation)
    except KContractViolation as error:
        print(str(error).splitlines()[-2:])
    else:
        raise SystemExit("not refused")
k.compile(k.hazard); k.compile(k.guess); k.compile(k.clean)
"""


def test_error_mode_refuses_leaves_a_whole_entry_and_refuses_the_hit(world: World) -> None:
    world.run(compile_all("violation", "hazard", "guess", "clean"), None)
    without = files(world.folder / "cache")
    (world.folder / "cache").rename(world.folder / "cache_before")
    for _ in range(2):  # a miss and its repetition, then hits of a second process
        output = world.run(REFUSED, "error", **FAKE)
        assert output.count("allow by-name (reason)") == 2
        assert output.count("violation[by-name] PRC-02: found a violation") == 1
        assert files(world.folder / "cache") == without
    assert world.checked() == ["violation", "hazard", "guess", "clean"] * 2
    done = world.start(compile_all("violation"), "error", **FAKE)
    last = done.communicate()[1].splitlines()[-3:]
    assert done.returncode == 1
    assert last[0] == "kcontract.errors.KContractViolation: violation for sm_80 breaks its promise"
    assert last[1] == "  by-name (PRC-02): found a violation, wanted none"
    assert last[2].startswith("  to waive: ")
    world.run(compile_all("violation"), "1", **FAKE)


def test_a_defect_of_ours_is_an_error_verdict_and_one_line(world: World) -> None:
    output = world.run(compile_all("defect", "clean"), **FAKE)
    assert len(output.splitlines()) == 1
    assert "RecursionError: a defect of the rule" in output
    assert [r["status"] for r in world.records() if r["gate"] == "PRC-02"] == ["ERROR", "PASS"]
    assert [r["type"] for r in world.records("error")] == ["error"]


@pytest.mark.parametrize("module", ["kcontract.passes.base", "kcontract.ir.artifact"])
def test_a_failing_import_of_ours_is_an_error_verdict_and_one_line(world: World, module: str) -> None:
    output = world.run(f"import sys; sys.modules[{module!r}] = None\n" + compile_all("clean"))
    assert len(output.splitlines()) == 1
    assert "kcontract failed on clean, which compiles unchecked: ModuleNotFoundError" in output
    assert {r["status"] for r in world.records()} == {"ERROR"}


def test_an_interrupt_passes_through(world: World) -> None:
    code = "import kernels_used as k\ntry: k.compile(k.interrupt)\nexcept KeyboardInterrupt: print('passed')"
    assert world.run(code, **FAKE) == "passed\n"


def test_hip_is_left_alone_in_one_sentence(world: World) -> None:
    code = "import kernels_used as k\nfor n in (128, 256): k.compile(k.clean, n, ('hip', 'gfx942', 64))"
    assert world.run(code) == "kcontract: kernels for amd GPUs are left alone: the rules know NVIDIA's only\n"
    assert world.checked() == []


def test_binary_only_caches_are_undecided_not_passed(world: World) -> None:
    world.run(compile_all("clean"), TRITON_STORE_BINARY_ONLY="1")
    assert {r["status"] for r in world.records() if r["gate"] == "PRC-02"} == {"UNDECIDED"}


def test_select_and_ignore(world: World) -> None:
    world.run(compile_all("violation"), TRITON_KCONTRACT_IGNORE="PRC-02", **FAKE)
    assert world.records("finding") == []
    world.run(compile_all("violation"), TRITON_KCONTRACT_SELECT="by-name", **FAKE)
    assert len(world.records("finding")) == 1
    output = world.run(compile_all("violation"), TRITON_KCONTRACT_SELECT="by-nam", **FAKE)
    assert "no rule or gate is named 'by-nam'" in output
    assert "found a violation" in output


def test_problems_of_the_settings_are_said_once(world: World) -> None:
    output = world.run(compile_all("clean", "hazard"), "loud", **FAKE)
    assert output.count("TRITON_KCONTRACT is 'loud'; valid values are 0, 1 or warn, and error; taken as warn") == 1
    assert "found a hazard" in output


def test_an_unwritable_report_is_one_sentence(world: World) -> None:
    output = world.run(compile_all("clean", "note"), TRITON_KCONTRACT_REPORT="/proc/nowhere/r.jsonl")
    assert output.count("kcontract: ") == 1
    assert "the report cannot be written" in output


def test_a_sarif_report(world: World) -> None:
    target = str(world.folder / "r.sarif")
    for _ in range(2):
        world.run(compile_all("violation", "clean"), TRITON_KCONTRACT_REPORT=target, **FAKE)
    results = json.loads(Path(target).read_text())["runs"][0]["results"]
    assert [r["ruleId"] for r in results] == ["by-name"]


TUNED = """
import triton, kernels_used as k
from triton.runtime.autotuner import Autotuner
from kcontract.errors import KContractViolation
timed = []
def bench(call, quantiles):
    call()
    timed.append(1)
    return [1.0, 1.0, 1.0]
class Function:
    arg_names = ["x"]
    __name__ = "misfit"
    def run(self, *args, num_warps=4, **options):
        k.compile(k.misfit, num_warps=num_warps)
configs = [triton.Config({}, num_warps=w) for w in (4, 8, 2)]
fn = Function(); fn.fn = lambda x: None
tuner = Autotuner(fn, ["x"], configs, [], None, None, do_bench=bench)
tuner.nargs = {}
results = [tuner._bench(1, config=c)[0] for c in configs]
print(results)
try:
    k.compile(k.misfit, num_warps=8)
except triton.OutOfResources as error:
    assert isinstance(error, KContractViolation)
    print("stopped:", error)
"""


def test_a_tuner_drops_what_does_not_fit_and_goes_on(world: World) -> None:
    output = world.run(TUNED, "error", **FAKE)
    assert "[1.0, inf, 1.0]" in output
    assert output.count("kcontract: candidate refused: misfit for sm_80: found 8 warps, at most 4 fit") == 1
    assert "stopped: misfit for sm_80 breaks its promise" in output
    world.run("import kernels_used as k; k.compile(k.misfit, num_warps=8)", "1", **FAKE)


def test_a_warned_tuner_is_told_of_a_candidate(world: World) -> None:
    output = world.run(TUNED, "1", **FAKE)
    assert "candidate refused" in output
    assert "violation[misfit]" not in output
    assert [r["rule"] for r in world.records("finding")] == ["misfit"]
