"""The report file: many processes append to it, none ever breaks what stands in it.

``.jsonl``: one write of whole lines under an exclusive lock; what a killed writer left of a line is cut off first,
and a write that fails (a full disk) is taken back. No fsync: a line survives the death of its process, not of the
machine. ``.sarif``: read, merge, write to a second file and rename it over the first, under the same lock; findings
that stand there already stay. That takes longer the longer the file is: for thousands of findings use ``.jsonl``.

Locks are ``flock`` locks on the file itself, so nothing else is left lying about. A file system without them is
refused in a sentence, like any other failure.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kcontract.errors import InputError

PATIENCE = 10.0  # seconds to wait for the lock
_TAIL = 1 << 20

Record = Mapping[str, object]
Document = dict[str, Any]


def append(path: Path, records: Iterable[Record], make_sarif: Callable[[list[Record]], Document]) -> None:
    """Add the records to ``path`` (``.jsonl``, or ``.sarif`` by way of ``make_sarif``).

    Raises ``InputError`` when that cannot be done; the file then holds what it held before.
    """
    try:
        if path.suffix == ".sarif":
            _merge_sarif(path, make_sarif(list(records)))
        else:
            lines = [json.dumps(record, ensure_ascii=False, default=str) + "\n" for record in records]
            _append_lines(path, "".join(lines).encode("utf-8", "backslashreplace"))
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise InputError(
                "the report is on a file system without locks; choose another path", path=str(path)
            ) from None
        reason = error.strerror or str(error)
        raise InputError(f"the report cannot be written ({reason}); choose another path", path=str(path)) from None


def _append_lines(path: Path, data: bytes) -> None:
    with _locked(path) as file:
        end = _whole_lines(file)
        try:
            _write(file, data)
        except BaseException:
            with suppress(OSError):
                os.ftruncate(file, end)
            raise


def _whole_lines(file: int) -> int:
    """Make the file end with a whole line; returns its size. Cuts off a record that was written in part only."""
    size = os.fstat(file).st_size
    if size == 0 or os.pread(file, 1, size - 1) == b"\n":
        return size
    tail = os.pread(file, min(size, _TAIL), max(size - _TAIL, 0))
    last = tail[tail.rfind(b"\n") + 1 :]
    if last.startswith(b"{") and not _is_json(last):
        size -= len(last)
        os.ftruncate(file, size)
        return size
    _write(file, b"\n")
    return size + 1


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """A descriptor of ``path``, open for appending and locked. Waits ``PATIENCE`` seconds at most."""
    deadline = time.monotonic() + PATIENCE
    while True:
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _lock(file, path, deadline)
            if _is_current(file, path):  # else replaced by another process while we waited
                yield file
                return
        finally:
            os.close(file)


def _lock(file: int, path: Path, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                message = f"the report has been locked by another process for {PATIENCE:g} s; nothing was added"
                raise InputError(message, path=str(path)) from None
            time.sleep(0.001)


def _is_current(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def _merge_sarif(path: Path, new: Document) -> None:
    with _locked(path) as file:
        size = os.fstat(file).st_size
        if size and not any(run["results"] or _notifications(run) for run in new["runs"]):
            return
        if size:
            new = _merged(_read_sarif(file, size, path), new)
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        try:
            partial.write_text(json.dumps(new, ensure_ascii=False) + "\n", "utf-8", "backslashreplace")
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def _read_sarif(file: int, size: int, path: Path) -> Document:
    try:
        document = json.loads(os.pread(file, size, 0))
        driver = document["runs"][0]["tool"]["driver"]
        if driver["name"] == "kcontract" and isinstance(document["runs"][0]["results"], list):
            return dict(document)
    except (ValueError, LookupError, TypeError):
        pass
    raise InputError("the report is no SARIF file of kcontract; move it away or choose another path", path=str(path))


def _merged(old: Document, new: Document) -> Document:
    """Old with the results, rules and notifications of new that it lacks; both have one run."""
    run, added = old["runs"][0], new["runs"][0]
    rules = run["tool"]["driver"].setdefault("rules", [])
    places = {rule["id"]: index for index, rule in enumerate(rules)}
    for rule in added["tool"]["driver"].get("rules", ()):
        if places.setdefault(rule["id"], len(rules)) == len(rules):
            rules.append(rule)
    for result in added["results"]:
        result["ruleIndex"] = places[result["ruleId"]]
        if not any(other["message"] == result["message"] and other == result for other in run["results"]):
            run["results"].append(result)
    known = _notifications(run)
    if fresh := [notification for notification in _notifications(added) if notification not in known]:
        invocation = run.setdefault("invocations", [{}])[0]
        invocation["executionSuccessful"] = False
        invocation["toolExecutionNotifications"] = known + fresh
    return old


def _notifications(run: Mapping[str, Any]) -> list[Any]:
    return [n for invocation in run.get("invocations", ()) for n in invocation.get("toolExecutionNotifications", ())]
