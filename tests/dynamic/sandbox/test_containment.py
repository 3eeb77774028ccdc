"""What becomes of hostile candidates: a sentence each, no process left, and the next candidate unharmed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kcontract.dynamic.problems import kernelbench
from kcontract.dynamic.problems.problem import Entry
from kcontract.dynamic.sandbox import keeper
from kcontract.dynamic.sandbox.candidate import Candidate, Failure, Limits
from kcontract.dynamic.verify import verify
from kcontract.model import Status, Witness

ATTACKS = Path(__file__).with_name("attacks.py")
HONEST = Path(__file__).parents[2] / "corpus" / "exploits" / "honest_workspace.py"
X = torch.arange(6.0)
SMALL = Limits(call=30.0, memory=768 << 20, room=64 << 20, processes=12, output=4 << 20, disk=64 << 20)
HURRIED = replace(SMALL, call=1.5)


def attempt(name: str, limits: Limits = SMALL) -> tuple[Failure | None, bool]:
    """How one attack ends, and whether its result is right."""
    with Candidate(Entry(str(ATTACKS), name, "function"), "interpreter", limits=limits) as candidate:
        assert candidate.load() is None
        answer = candidate.call([X])
        return answer.failure, bool(answer.values) and torch.equal(answer.values[0], X * 2)


def alive(pid: int) -> str:
    """The command line of a process, empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


KILLED = [
    ("segfault", "SIGSEGV"),
    ("hang", "no result after 1.5 s"),
    ("memory", "used more than 768 MiB of memory"),
    ("memory_file", "used more than 768 MiB of memory|File too large"),
    ("fork_bomb", "started more than 12 processes"),
    ("print_without_end", "printed more than 4194304 bytes"),
    ("leave", "SystemExit"),
    ("leave_at_once", "ended itself with exit status 0"),
    ("huge_file", "wrote more than 64 MiB of files|File too large"),
    ("write_elsewhere", "Permission denied"),
    ("pipe_in_cache", "PermissionError"),
    ("close_channel", "ended|Bad file descriptor"),
    ("garbage", "nonsense"),
    ("drip", "no result after 1.5 s|nonsense"),
    ("network", "PermissionError"),
    ("read_grader", "PermissionError"),
    ("many_outputs", "nonsense"),
]


def test_attacks_in_a_row_end_in_a_sentence_and_the_next_candidate_is_unharmed() -> None:
    for name, told in KILLED:
        failure, _ = attempt(name, HURRIED if "no result" in told else SMALL)
        assert failure is not None and re.search(told, str(failure)), f"{name}: {failure}"
        assert "\n" not in str(failure)
    failure, _ = attempt("truncate")  # a race of its own thread with the reader: cut short, or read in time
    assert failure is None or "nonsense" in str(failure)
    for name in ("kill_parent", "native_network", "start_child", "daemon", "honest"):
        assert attempt(name) == (None, True), name
    problem = kernelbench.load(str(HONEST))
    with Candidate(problem.candidate, "interpreter") as candidate:
        result = verify(problem, engine="interpreter", only=("CMP-01",), candidate=candidate)
    assert [v.status for v in result.report.verdicts] == [Status.PASS], result.report.verdicts
    assert not [p for p in keeper.descendants(os.getpid()) if "kcontract-daemon" in alive(p)]


def test_isolation_is_named() -> None:
    with Candidate(Entry(str(ATTACKS), "honest", "function"), "interpreter") as candidate:
        assert candidate.load() is None
        assert {"limits", "seccomp"} <= set(candidate.isolation) or "audit" in candidate.isolation


def test_a_process_is_warm_after_a_death() -> None:
    attempt("honest")
    start = time.monotonic()
    attempt("leave_at_once")
    attempt("honest")
    assert time.monotonic() - start < 4.0


@pytest.mark.gpu
def test_a_gpu_candidate_runs_confined_and_another_after_its_death() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    for name, right in (("honest", True), ("leave_at_once", False), ("network", False), ("honest", True)):
        with Candidate(Entry(str(ATTACKS), name, "function"), "gpu", limits=Limits(call=20.0)) as candidate:
            assert candidate.load() is None
            assert {"limits", "seccomp"} <= set(candidate.isolation)
            answer = candidate.call([X])
            assert (bool(answer.values) and torch.equal(answer.values[0], X * 2)) is right


GRADER = """
import sys, time, torch
from kcontract.dynamic.problems.problem import Entry
from kcontract.dynamic.sandbox.candidate import Candidate
candidate = Candidate(Entry({path!r}, "daemon", "function"), "interpreter")
candidate.load(); candidate.call([torch.arange(6.0)])
print(candidate.folder.name, flush=True)
time.sleep(600)
"""


WRITER = """
from pathlib import Path
from kcontract.model import Status, Witness
witness = Witness("CMP-01", "k", "sm_90", "gpu", 0, {{}}, {{}}, "", (), 0, 0, 0, {{"reason": "x" * 100000}})
witness.dump(Path({path!r}))
print(flush=True)
while True:
    witness.dump(Path({path!r}))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_grader_that_is_killed_leaves_no_process(number: signal.Signals) -> None:
    grader = subprocess.Popen(
        [sys.executable, "-c", GRADER.format(path=str(ATTACKS))], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert grader.stdout is not None and grader.stdout.readline()
    until = time.monotonic() + 10
    while not any("kcontract-daemon" in alive(p) for p in keeper.descendants(grader.pid)):
        assert time.monotonic() < until
    started = keeper.descendants(grader.pid)
    assert len(started) >= 4  # zygote, warden, worker, daemon
    grader.send_signal(number)
    grader.wait(30)
    grader.stdout.close()
    until = time.monotonic() + 10
    while (left := [p for p in started if alive(p)]) and time.monotonic() < until:
        time.sleep(0.05)
    assert not left


def test_a_witness_is_whole_or_absent_when_its_writer_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    writer = subprocess.Popen([sys.executable, "-c", WRITER.format(path=str(path))], stdout=subprocess.PIPE)
    assert writer.stdout is not None and writer.stdout.readline()
    for _ in range(20):
        time.sleep(0.005)
        assert Witness.load(path).gate == "CMP-01"
    writer.kill()
    writer.wait()
    writer.stdout.close()
    assert Witness.load(path).gate == "CMP-01"
