"""``kcontract run``: what is compiled, recorded and said, with real programs and the real compiler."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = Path(__file__).parent / "programs"


def start(*arguments: object, program: str = "", **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kcontract", "run", *map(str, arguments)]
    if program:
        command += ["--", "python", str(PROGRAMS / program)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "ignore", **environment}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def run(*arguments: object, program: str = "", **environment: str) -> tuple[int, str, str]:
    process = start(*arguments, program=program, **environment)
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def records(*arguments: object, program: str, **environment: str) -> tuple[int, list[dict], str]:
    status, out, err = run("--json", *arguments, program=program, **environment)
    return status, [json.loads(line) for line in out.splitlines()], err


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, list[dict], str, Path]:
    kept = tmp_path_factory.mktemp("kept")
    return *records("--target", "sm_90,sm_100", "--keep", kept, program="launches.py"), kept


def summary(found: list[dict], target: str) -> dict:
    (only,) = [record for record in found if record["type"] == "run" and record["target"] == target]
    return only


@pytest.mark.parametrize("target", ["sm_90", "sm_100"])
def test_every_launch_and_configuration_is_compiled_for_each_target(launches, target):
    status, found, err, _ = launches
    result = summary(found, target)
    assert status == 0
    assert result["status"] == 0 and result["sentences"] == []
    assert err.count("to the end 0.0") == 2  # one run a target, memory zero-filled, nothing executed
    # add: n = 1000 and n = 992 (divisible by 16), the latter with two block sizes; scale: 4; picky: 1 of 3
    assert result["specialisations"] == 3 + 4 + 1
    assert result["kernels"] == 3
    assert result["autotuners"] == {
        "scale": {"offered": 4, "compiled": 4},
        "picky": {"offered": 3, "compiled": 3},
    }


def test_each_compile_failure_has_a_sentence_and_the_program_goes_on(launches):
    _, found, err, _ = launches
    failures = {(f["kernel"], f["candidate"]): f["reason"] for f in summary(found, "sm_90")["failures"]}
    assert set(failures) == {("picky", True), ("kills_the_compiler", False), ("does_not_compile", False)}
    assert failures["kills_the_compiler", False].startswith("the compiler died of SIGABRT: ")
    assert failures["does_not_compile", False] == "CompilationError: NameError('not_defined is not defined')"
    reasons = [f["reason"] for f in summary(found, "sm_90")["failures"] if f["kernel"] == "picky"]
    assert len(reasons) == 2
    assert "caught, as on a GPU" in err


def test_launches_are_recorded_with_grid_and_integer_arguments(launches):
    *_, kept = launches
    from kcontract.dynamic.engines.session import _collect
    from kcontract.ir.launch import Fact

    collected = _collect("sm_90", kept / "sm_90", kept / "sm_90.jsonl", 0, False)
    seen = {
        (collected.compiled[entry][0], launch.grid, tuple(launch.arguments.items()))
        for entry, distinct in collected.launches.items()
        for launch in distinct
    }
    n = {value: (("n", Fact(value, value, value)),) for value in (1000, 992)}
    assert {(name, grid, facts) for name, grid, facts in seen if name == "add"} == {
        ("add", (4, 1, 1), n[1000]),
        ("add", (4, 1, 1), n[992]),
        ("add", (8, 1, 1), n[992]),
    }
    assert {grid for name, grid, _ in seen if name == "scale"} == {(16, 1, 1), (8, 1, 1)}


def test_what_was_kept_is_a_cache_that_check_reads(launches):
    _, found, _, kept = launches
    command = [sys.executable, "-m", "kcontract", "check", "--json", str(kept / "sm_100")]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    checked = {json.loads(line)["key"] for line in done.stdout.splitlines()}
    assert checked >= {record["key"] for record in found if record.get("target") == "sm_100" and "key" in record}


def test_what_gpu_programs_do_beside_launching_works():
    status, out, err = run("--target", "sm_100", program="gpu_program.py")
    assert status == 0, err
    assert "capability (10, 0)" in out


def test_a_program_that_needs_a_result_gets_a_sentence_and_configurations_are_capped_and_sharded():
    status, found, _ = records("--max-configs", 3, "--shard", "2/2", program="needs_a_result.py")
    assert status == 4
    result = summary(found, "sm_90")
    assert result["autotuners"] == {"scale": {"offered": 4, "compiled": 1}}
    assert result["specialisations"] == 1
    assert result["sentences"] == [
        "the program failed with exit status 1: AssertionError: wrong sum (needs_a_result.py:9)",
        "it failed after a launch: nothing is run here, so a program that needs the value of a kernel's result "
        "finds zeros",
    ]


def test_a_test_suite_with_cache_folders_of_its_own_is_seen():
    status, out, err = run("--", "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", PROGRAMS / "suite.py")
    assert status == 0, out + err
    assert "2 passed" in out
    assert "sm_90: 1 kernel, 2 specialisations" in out


def test_children_are_seen_and_the_program_s_status_is_told():
    status, found, _ = records(program="processes.py")
    assert status == 4
    assert summary(found, "sm_90")["specialisations"] == 2
    assert summary(found, "sm_90")["sentences"][0] == "the program ended with exit status 5"


def test_a_kernel_over_a_limit_is_refused_and_as_a_candidate_no_violation():
    status, found, _ = records(program="over_budget.py")
    refused = summary(found, "sm_90")["failures"]
    assert {(f["kernel"], f["kind"], f["candidate"]) for f in refused} == {
        ("tuned", "refused", True),
        ("direct", "refused", False),
    }
    assert all("shared memory, Required: 262144, Hardware limit: 232448" in f["reason"] for f in refused)
    assert status == 1
    over = [r for r in found if r["type"] == "finding" and r["gate"] == "RES-02" and r["level"] == "violation"]
    assert [r["kernel"] for r in over] == ["direct"]


def test_interrupt_keeps_what_was_compiled(tmp_path):
    program = tmp_path / "waits.py"
    program.write_text(
        f"import sys, time; sys.path.insert(0, {str(PROGRAMS)!r})\nimport launched, torch\n"
        "x = torch.ones(32, device='cuda'); launched.add[(1,)](x, x, x, 32, BLOCK=32)\n"
        f"open({str(tmp_path / 'ready')!r}, 'w'); time.sleep(60)\n"
    )
    process = start("--", "python", program)
    for _ in range(600):
        if (tmp_path / "ready").exists():
            break
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to both
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted: what was compiled until then follows" in out
    assert "sm_90: 1 kernel, 1 specialisation compiled" in out


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("import sys; sys.modules.pop('triton', None); sys.path = []\nimport triton", "has no Triton"),
        ("pass", "no process of the program imported Triton"),
        ("import os; os.environ['TRITON_INTERPRET'] = '1'\nimport triton", "TRITON_INTERPRET"),
    ],
)
def test_a_program_that_compiles_nothing_gets_a_sentence(code, sentence):
    _, out, _ = run("--", sys.executable, "-c", code)
    assert sentence in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--", "python", "missing.py"], "missing.py: no such file"),
        (["--", "no-such-command"], "no-such-command: no such program"),
        ([], "no program given"),
        (["--target", "gfx942", "--", "python", "-c", ""], "'gfx942' is no NVIDIA target"),
        (["--target", "nonsense", "--", "python", "-c", ""], "'nonsense' names no GPU"),
        (["--shard", "3/2", "--", "python", "-c", ""], "--shard is '3/2'"),
        (["--max-configs", "0", "--", "python", "-c", ""], "--max-configs is 0"),
    ],
)
def test_wrong_use_is_a_sentence_and_status_2(arguments, sentence):
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("kcontract: ") and sentence in err and err.count("\n") == 1


def test_the_interpreter_is_refused():
    status, _, err = run(program="launches.py", TRITON_INTERPRET="1")
    assert status == 2
    assert "TRITON_INTERPRET is set" in err


def test_another_sitecustomize_still_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('the other one')\n")
    _, out, _ = run("--", "python", "-c", "pass", PYTHONPATH=f"{ROOT / 'src'}{os.pathsep}{tmp_path}")
    assert out.count("the other one") == 2  # kcontract's own process and the program
