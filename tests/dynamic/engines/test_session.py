"""What is made of the events a program leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcontract.dynamic.engines import records, session
from kcontract.ir.launch import Fact, Launch


def collect(path: Path, *events: tuple[str, dict[str, object]], status: int = 0) -> session.Run:
    for kind, fields in events:
        records.write(str(path), kind, **fields)
    return session._collect("sm_90", path.parent, path, status, False)


def compiled(key: str) -> tuple[str, dict[str, object]]:
    return "compile", {"hash": key, "entry": key.upper(), "kernel": "k", "seconds": 0.5, "candidate": False}


def launch(key: str, grid: int, **arguments: int) -> tuple[str, dict[str, object]]:
    return "launch", {"hash": key, "grid": [grid, 1, 1], "arguments": arguments, "candidate": False}


def refused(key: str, *, candidate: bool) -> tuple[str, dict[str, object]]:
    return "refused", {"hash": key, "error": "too big", "candidate": candidate}


def test_equal_launches_count_once(tmp_path):
    run = collect(tmp_path / "e", compiled("a"), launch("a", 2, n=0), launch("a", 2, n=0), launch("a", 3, n=6))
    assert run.launches == {
        "A": (Launch((2, 1, 1), {"n": Fact(0, 0, 1)}, "sm_90"), Launch((3, 1, 1), {"n": Fact(6, 6, 6)}, "sm_90"))
    }


def test_very_many_launches_become_one_that_covers_them(tmp_path):
    many = [launch("a", grid, n=8 * grid) for grid in range(1, session.MOST_LAUNCHES + 2)]
    run = collect(tmp_path / "e", compiled("a"), *many)
    assert run.launches == {"A": (Launch((65, 1, 1), {"n": Fact(8, 520, 8)}, "sm_90"),)}


@pytest.mark.parametrize("refusals", [[True, False], [False, True]])
def test_a_kernel_refused_outside_tuning_is_no_candidate(tmp_path, refusals):
    run = collect(tmp_path / "e", compiled("a"), *(refused("a", candidate=value) for value in refusals))
    assert run.refused == (session.Failure("k", "too big", False, entry="A"),)


def test_a_line_cut_off_by_a_kill_is_left_out(tmp_path):
    path = tmp_path / "e"
    records.write(str(path), *compiled("a")[:1], **compiled("a")[1])
    path.write_text(path.read_text() + '{"kind": "compile", "hash": "b')
    assert session._collect("sm_90", tmp_path, path, -9, False).compiled == {"A": ("k", 0.5)}


def test_killed_programs_are_told_by_their_signal(tmp_path):
    run = collect(tmp_path / "e", ("process", {"triton": "3.9.0", "interpreted": False}), status=-9)
    assert run.sentences == ("the program was killed by SIGKILL",)
