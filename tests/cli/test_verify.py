"""``kcontract verify`` and ``replay``: what is printed, written and returned; the service; verdicts kept."""

import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from kcontract.cli import main

PROBLEM = Path(__file__).with_name("softmax_problem.py")
ENGINE = "interpreter"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def kcontract(*arguments):
    """The command, in this process: torch is imported once."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        status = main([str(a) for a in arguments])
    return Done(status, out.getvalue(), err.getvalue())


def verify(*arguments):
    return kcontract("verify", PROBLEM, "--engine", ENGINE, *arguments)


def test_an_honest_candidate_passes_and_is_recognised_again():
    done = verify("--gates", "CMP-01")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[0].startswith(f"ModelNew ({PROBLEM}) on interpreter: float32, batch 8, width 64")
    assert "CMP-01  PASS  right on" in done.stdout
    assert not Path(".kcontract").exists()
    again = verify("--gates", "CMP-01")
    assert "was verified before" in again.stdout
    assert again.stdout.splitlines()[1] == done.stdout.splitlines()[1]
    assert "was verified before" not in verify("--gates", "CMP-01", "--no-cache").stdout


def test_a_fault_fails_with_a_witness_that_replays_on_this_engine_and_another():
    done = verify("--candidate", "CountsPadding", "--gates", "cmp-03,CMP-01", "--json")
    assert done.returncode == 1, done.stdout + done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines()]
    statuses = {r["gate"]: r["status"] for r in records if r["type"] == "verdict"}
    assert statuses == {"CMP-01": "PASS", "CMP-03": "FAIL"}
    (witness,) = [r for r in records if r["type"] == "witness"]
    assert witness["gate"] == "CMP-03"
    again = kcontract("replay", witness["path"], "--json")
    assert again.returncode == 1
    assert json.loads(again.stdout)["identical"] is True
    elsewhere = kcontract("replay", witness["path"], "--engine", "sim:sm_90")
    assert elsewhere.returncode == 1
    assert "the failure shows again" in elsewhere.stdout


@pytest.mark.parametrize(
    "arguments, status, sentence",
    [
        ((), 2, "no candidate given; write its file"),
        (("missing.py",), 3, "missing.py: there is no such file"),
        ((PROBLEM, "--engine", "tpu"), 2, "--engine is 'tpu'; write gpu, sim:sm_90"),
        ((PROBLEM, "--engine", "sim:sm_1"), 2, "sm_1"),
        ((PROBLEM, "--gates", "CMP-99", "--engine", ENGINE), 2, "no gate 'CMP-99'; the gates are CMP-01"),
        ((PROBLEM, "--candidate", "Nobody"), 3, "defines no Nobody; name the class with --candidate"),
        ((PROBLEM, "--dtype", "float31", "--engine", ENGINE), 2, "--dtype"),
        ((PROBLEM, "--timeout", "-1", "--engine", ENGINE), 2, "--timeout is -1; give a number above 0"),
        ((PROBLEM, "--connect", "nowhere.sock"), 2, "nowhere.sock: no service answers"),
    ],
)
def test_wrong_use_is_one_sentence(arguments, status, sentence):
    done = kcontract("verify", *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "text, sentence",
    [("{}", "not a witness of schema"), ("nonsense", "cannot read a witness"), (None, "cannot read a witness")],
)
def test_replay_of_no_witness_is_one_sentence(text, sentence):
    if text is not None:
        Path("w.json").write_text(text)
    done = kcontract("replay", "w.json")
    assert done.returncode == 3
    assert sentence in done.stderr


@contextlib.contextmanager
def service(path):
    process = subprocess.Popen(
        [sys.executable, "-m", "kcontract", "verify", "--serve", path], stderr=subprocess.PIPE, text=True
    )
    try:
        assert "serving on" in process.stderr.readline()
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert not os.path.exists(path)


def test_the_service_answers_like_the_command_and_survives_nonsense():
    with service("k.sock"):
        assert os.stat("k.sock").st_mode & 0o077 == 0
        with socket.socket(socket.AF_UNIX) as client:
            client.connect("k.sock")
            client.sendall(b"nonsense\n")
            assert b"one JSON object" in client.recv(1 << 16)
        asked = ("verify", "--connect", "k.sock", PROBLEM, "--engine", ENGINE, "--gates", "CMP-03", "--json")
        good = kcontract(*asked)
        assert good.returncode == 0, good.stdout + good.stderr
        bad = kcontract(*asked, "--candidate", "CountsPadding")
        assert bad.returncode == 1
        assert {json.loads(line)["type"] for line in bad.stdout.splitlines()} >= {"verdict", "witness"}
        lost = kcontract("verify", "--connect", "k.sock", "missing.py")
        assert (lost.returncode, "there is no such file" in lost.stderr) == (3, True)
        second = kcontract("verify", "--serve", "k.sock")
        assert (second.returncode, "a service is already there" in second.stderr) == (2, True)


def test_a_service_killed_without_warning_leaves_no_process_and_its_socket_can_be_had_again():
    process = subprocess.Popen(
        [sys.executable, "-m", "kcontract", "verify", "--serve", "k.sock"], stderr=subprocess.PIPE
    )
    process.stderr.readline()
    kcontract("verify", "--connect", "k.sock", PROBLEM, "--engine", ENGINE, "--gates", "CMP-03")
    process.kill()
    process.wait()
    deadline = time.monotonic() + 20
    while (left := _descended(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
    with service("k.sock"):
        pass


def _descended(ancestor):
    """Processes whose environment says they were started under a service's working directory."""
    here = os.getcwd().encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                environment = (entry / "environ").read_bytes()
                command = (entry / "cmdline").read_bytes()
                if here in environment and b"kcontract" in command:
                    found.append(int(entry.name))
    return found
