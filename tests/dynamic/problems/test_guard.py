"""A reference that would end or hold up the process that judges by it is a sentence."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kcontract.dynamic.problems import guard, infer
from kcontract.dynamic.problems.load import load
from kcontract.errors import InputError

PROBLEM = """
import os, sys, time, torch

def helper():
    {helper}
    return 2.0

class Model(torch.nn.Module):
    def forward(self, x):
        {forward}
        return x * 2.0

class ModelNew(Model):
    pass

def get_inputs():
    {inputs}
    return [torch.randn(2, 3)]
"""


def written(tmp_path: Path, **bodies: str) -> Path:
    path = tmp_path / "problem.py"
    path.write_text(PROBLEM.format(**{"helper": "pass", "forward": "pass", "inputs": "pass", **bodies}))
    return path


@pytest.mark.parametrize(("place", "body"), [("forward", "helper()"), ("inputs", "os._exit(0)")])
def test_a_reference_that_ends_the_process_is_an_error(tmp_path: Path, place: str, body: str) -> None:
    path = written(tmp_path, **{place: body, "helper": "os._exit(0)"})
    done = subprocess.run(
        [sys.executable, "-m", "kcontract", "verify", str(path), "--engine", "interpreter", "--gates", "CMP-01"],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 3, done.stdout + done.stderr
    assert "its reference ends the process (os._exit(0))" in done.stderr


def test_a_reference_that_does_not_come_back_is_broken_off_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "SECONDS", 0.2)
    (problem,) = load(str(written(tmp_path, forward="while True: pass")))
    with pytest.raises(InputError, match="the reference has not come back within 0"):
        infer.infer(problem.reference, problem.inputs())
    (problem,) = load(str(written(tmp_path, inputs="time.sleep(5)")))
    with pytest.raises(InputError, match="get_inputs has not come back within 0"):
        problem.inputs()


def test_a_guarded_module_is_copied_and_called_like_any_other(tmp_path: Path) -> None:
    (problem,) = load(str(written(tmp_path)))
    made = problem.reference()
    twin = copy.deepcopy(made).double()
    assert twin.forward.__self__ is twin
    assert torch.equal(twin(torch.ones(2, dtype=torch.float64)), made(torch.ones(2)).double())


def test_the_process_itself_may_end() -> None:
    child = os.fork()
    if not child:
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
