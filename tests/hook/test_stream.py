"""The report file under many writers, killed writers, full disks and foreign files."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kcontract.errors import InputError
from kcontract.report import sarif, stream

from .conftest import SOURCE


def document(records: list[Any]) -> dict[str, Any]:
    return sarif.document(records, version="0", help_texts={})


def finding(number: int, rule: str = "by-name") -> dict[str, object]:
    text = dict.fromkeys(("why", "remedy"), "")
    place = {"file": "/a.py", "line": 3, "column": 1, "frames": [], "related": []}
    said = {"level": "violation", "message": f"found {number}", "waived": None}
    subject = {"kernel": f"k{number}", "target": "sm_90", "key": f"{number}", "gate": "PRC-02", "rule": rule}
    return {"type": "finding", **subject, **said, **place, **text}


def append(path: Path, *records: dict[str, object]) -> None:
    stream.append(path, records, document)


def numbers(path: Path) -> list[int]:
    return [json.loads(line)["n"] for line in path.read_text().splitlines()]


def results(path: Path) -> list[str]:
    run = json.loads(path.read_text())["runs"][0]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert all(rules[result["ruleIndex"]] == result["ruleId"] for result in run["results"])
    return [result["message"]["text"].split(" [")[0] for result in run["results"]]


WRITER = """
import sys
from pathlib import Path
from kcontract.report import sarif, stream
path, first, count, padding = Path(sys.argv[1]), *map(int, sys.argv[2:5])
document = lambda records: sarif.document(records, version="0", help_texts={})
for n in range(first, first + count):
    record = {"n": n, "padding": "x" * padding}
    if path.suffix == ".sarif":
        record = {**eval(sys.argv[5]), "message": f"found {n}"}
    stream.append(path, [record], document)
"""


def writer(path: Path, first: int, count: int, padding: int = 0, record: str = "") -> subprocess.Popen[bytes]:
    arguments = [str(path), str(first), str(count), str(padding), record]
    return subprocess.Popen([sys.executable, "-c", WRITER, *arguments], env={**os.environ, "PYTHONPATH": str(SOURCE)})


def test_eight_processes_lose_no_line(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    writers = [writer(path, 200 * i, 200, padding=3000) for i in range(8)]
    assert [w.wait(120) for w in writers] == [0] * 8
    assert sorted(numbers(path)) == list(range(1600))
    for i in range(8):  # each writer's own order is kept
        mine = [n for n in numbers(path) if n // 200 == i]
        assert mine == sorted(mine)


def test_four_processes_share_a_sarif_file(tmp_path: Path) -> None:
    path = tmp_path / "r.sarif"
    writers = [writer(path, 20 * i, 20, record=repr(finding(0))) for i in range(4)]
    assert [w.wait(120) for w in writers] == [0] * 4
    assert sorted(int(text.split()[-1]) for text in results(path)) == list(range(80))
    assert [p.name for p in tmp_path.iterdir()] == ["r.sarif"]


@pytest.mark.parametrize("suffix", ["jsonl", "sarif"])
def test_kill_keeps_all_earlier_lines(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"r.{suffix}"
    for attempt in range(6):
        victim = writer(path, 0, 1_000_000, padding=1 << 20, record=repr(finding(0)))
        deadline = time.monotonic() + 30
        while not (path.exists() and path.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(0.02 + 0.017 * attempt)
        victim.send_signal(signal.SIGKILL)
        victim.wait(30)
        before = path.read_bytes()
        if suffix == "jsonl":
            whole = before[: before.rfind(b"\n") + 1]
            assert [json.loads(line)["n"] for line in whole.splitlines()] == list(range(whole.count(b"\n")))
            append(path, {"n": -1})
            assert path.read_bytes() == whole + b'{"n": -1}\n'
        elif before:
            kept = results(path)
            append(path, finding(-1))
            assert results(path) == [*kept, "PRC-02: found -1"]
        path.unlink()


@pytest.mark.parametrize(
    ("left", "kept"),
    [
        (b"", b""),
        (b'{"n": 1}\n', b'{"n": 1}\n'),
        (b'{"n": 1}\n{"n": 2', b'{"n": 1}\n'),  # written in part: cut off
        (b'{"n": 1', b""),
        (b'{"n": 1}\n{"n": 2}', b'{"n": 1}\n{"n": 2}\n'),  # whole, by hand, without its newline
        (b"a note of somebody", b"a note of somebody\n"),  # not ours: kept
        (b"{" + b"x" * (2 << 20), b"{" + b"x" * (2 << 20) + b"\n"),  # longer than any record of ours
    ],
)
def test_the_next_append_starts_on_a_fresh_line(tmp_path: Path, left: bytes, kept: bytes) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(left)
    append(path, {"n": 9})
    assert path.read_bytes() == kept + b'{"n": 9}\n'


def test_sarif_merges_rules_and_skips_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "r.sarif"
    append(path, finding(1, "zebra"))
    append(path, finding(2, "aardvark"), finding(1, "zebra"))
    assert results(path) == ["PRC-02: found 1", "PRC-02: found 2"]
    append(path, {"type": "error", "message": "a defect"})
    append(path, {"type": "error", "message": "a defect"})
    (invocation,) = json.loads(path.read_text())["runs"][0]["invocations"]
    assert invocation["executionSuccessful"] is False
    assert [n["message"]["text"] for n in invocation["toolExecutionNotifications"]] == ["a defect"]


def test_sarif_without_findings_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "r.sarif"
    append(path, {"type": "verdict"})
    first = path.stat().st_mtime_ns
    assert results(path) == []
    append(path, {"type": "verdict"})
    assert path.stat().st_mtime_ns == first


@pytest.mark.parametrize(
    "text", ["{}", "[1]", "hello", '{"runs": [{"tool": {"driver": {"name": "other"}}, "results": []}]}']
)
def test_a_foreign_sarif_file_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.sarif"
    path.write_text(text)
    with pytest.raises(InputError, match="is no SARIF file of kcontract; move it away"):
        append(path, finding(1))
    assert path.read_text() == text


@pytest.mark.parametrize("suffix", ["jsonl", "sarif"])
def test_a_full_disk_takes_nothing_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    path = tmp_path / f"r.{suffix}"
    append(path, {**finding(1), "n": 1})
    before = path.read_bytes()
    write = os.write

    def full(file: int, data: bytes) -> int:
        if len(data) > 4:
            return write(file, data[:4])
        raise OSError(errno.ENOSPC, "No space left on device")

    def full_text(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    monkeypatch.setattr(Path, "write_text", full_text)
    with pytest.raises(InputError, match=r"cannot be written \(No space left on device\)"):
        append(path, {**finding(2), "n": 2})
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_really_full_disk() -> None:
    with pytest.raises(InputError, match="cannot be written"):
        stream.append(Path("/dev/full"), [{"n": 1}], document)


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(InputError, match="on a file system without locks"):
        append(tmp_path / "r.jsonl", {"n": 1})


def test_a_writer_that_holds_the_lock_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.jsonl"
    append(path, {"n": 1})
    monkeypatch.setattr(stream, "PATIENCE", 0.05)
    with path.open() as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(InputError, match=r"locked by another process for 0\.05 s; nothing was added"):
            append(path, {"n": 2})
    append(path, {"n": 3})
    assert numbers(path) == [1, 3]


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.mkdir()
    with pytest.raises(InputError, match=r"r\.jsonl: the report cannot be written \(Is a directory\)"):
        append(path, {"n": 1})


def test_what_json_cannot_hold_is_written_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    append(path, {"n": 1, "place": tmp_path, "name": "\udcff"})
    assert numbers(path) == [1]
