"""A warm local service: torch imported, a worker process started ahead, one verification at a time.

For loops that verify many kernels (reinforcement learning, agents). One JSON object a line in each direction, over a
Unix socket that only its owner may use: a request has the fields of the command line (``path`` at least), the answer
is the lines that ``--json`` prints (or ``{"type": "text"}`` lines), ended by ``{"type": "done", "status": N}``.
Requests of several clients are answered one after the other.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import signal
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from kcontract.errors import InputError, KContractError, UsageError

#: Bytes of the longest request.
_LONGEST = 1 << 16
#: Seconds a client may take to send its request.
_PATIENCE = 10.0
_KNOWN = {
    "path", "reference", "candidate", "engine", "gates", "floor", "dtype", "seed", "thorough", "witnesses", "timeout",
    "memory", "no_cache", "json",
}  # fmt: skip
_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("path", "reference", "candidate", "engine", "dtype", "witnesses"), (str,)),
    **dict.fromkeys(("floor", "thorough", "no_cache", "json"), (bool,)),
    **dict.fromkeys(("timeout", "memory"), (int, float)),
    "gates": (list,),
    "seed": (int,),
}


def serve(path: str, log: TextIO) -> int:
    """Answer requests until interrupted; 0. Raises ``UsageError`` where the socket cannot be had."""
    import torch  # noqa: F401 - what makes the service warm

    from kcontract.dynamic.gates import gates

    gates()
    spare = _Spare()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _bound(path) as listener:
            print(f"kcontract: serving on {path}; stop with Ctrl-C", file=log, flush=True)
            while True:
                client, _ = listener.accept()
                with client, contextlib.suppress(OSError):
                    client.settimeout(_PATIENCE)
                    _answer(client, spare)
    except KeyboardInterrupt:
        print("kcontract: stopped", file=log, flush=True)
        return 0
    finally:
        signal.signal(signal.SIGTERM, before)
        spare.close()


@contextlib.contextmanager
def _bound(path: str) -> Iterator[socket.socket]:
    """The listening socket; a stale file of a service that is gone is replaced."""
    listener = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise UsageError(f"{path}: there is a file of that name, and it is no socket")
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(path) == 0:
                raise UsageError(f"{path}: a service is already there")
        os.unlink(path)
    before = os.umask(0o177)
    try:
        listener.bind(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    finally:
        os.umask(before)
    listener.listen(16)
    try:
        yield listener
    finally:
        listener.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


class _Spare:
    """A worker process started ahead of the next request, for the engine and limits of the last one."""

    def __init__(self) -> None:
        self.ready: Any = None
        self.made_for: tuple[object, ...] = ()

    def take(self, problem: Any, engine: str, limits: Any, seed: int) -> Any:
        """A candidate's process for a problem: the one started ahead, if it is of the right kind."""
        from kcontract.dynamic.sandbox.candidate import Candidate

        if self.ready is not None and self.made_for == (engine, limits):
            taken, self.ready = self.ready, None
            taken.entry, taken.init, taken.seed = problem.candidate, tuple(problem.init), seed
            return taken
        self.close()
        return Candidate(problem.candidate, engine, init=problem.init, seed=seed, limits=limits)

    def prepare(self, problem: Any, engine: str, limits: Any) -> None:
        """Start the next one."""
        from kcontract.dynamic.sandbox.candidate import Candidate

        self.close()
        self.made_for = (engine, limits)
        self.ready = Candidate(problem.candidate, engine, limits=limits)
        with contextlib.suppress(Exception):  # one that does not start is started again, and explained, when used
            self.ready.start()

    def close(self) -> None:
        """Kill it."""
        if self.ready is not None:
            self.ready.close()
            self.ready = None


def _answer(client: socket.socket, spare: _Spare) -> None:
    """One request; whatever goes wrong is said to the client, and the service goes on."""

    def say(record: Mapping[str, Any]) -> None:
        client.sendall((json.dumps(record) + "\n").encode())

    try:
        asked = _request(client)
        client.settimeout(None)
        status = _verify(asked, spare, say)
    except KContractError as error:
        say({"type": "error", "message": str(error)})
        status = 3 if isinstance(error, InputError) else 2
    except OSError:
        raise
    except SystemExit as error:
        say({"type": "error", "message": f"the reference or its inputs ended the process (SystemExit {error.code})"})
        status = 3
    except Exception as error:
        say({"type": "error", "message": f"error inside kcontract: {type(error).__name__}: {error}"})
        status = 3
    say({"type": "done", "status": status})


def _request(client: socket.socket) -> argparse.Namespace:
    data, end = b"", time.monotonic() + _PATIENCE
    while not data.endswith(b"\n"):
        client.settimeout(max(0.01, end - time.monotonic()))
        part = client.recv(1 << 16)
        data += part
        if not part or len(data) > _LONGEST:
            raise UsageError("a request is one JSON object, ended by a newline")
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        raise UsageError("a request is one JSON object, ended by a newline") from None
    if not isinstance(fields, dict) or not isinstance(fields.get("path"), str):
        raise UsageError('a request names the candidate\'s file: {"path": "/where/kernel.py"}')
    if unknown := sorted(fields.keys() - _KNOWN):
        raise UsageError(f"a request has no field {unknown[0]!r}; it may have {', '.join(sorted(_KNOWN))}")
    for name, kinds in _KINDS.items():
        value = fields.get(name)
        if value is not None and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
            raise UsageError(f"a request's {name!r} is {value!r}; give {' or '.join(k.__name__ for k in kinds)}")
    if not all(isinstance(g, str) for g in fields.get("gates") or ()):
        raise UsageError("a request's 'gates' is a list of gate ids")
    defaults: dict[str, Any] = {
        "gates": [],
        "floor": False,
        "seed": 0,
        "thorough": False,
        "json": True,
        "color": "never",
    }
    absent = dict.fromkeys(_KNOWN)
    given = {k: v for k, v in fields.items() if v is not None}
    return argparse.Namespace(**{**absent, **defaults, "witnesses": ".kcontract", "no_cache": False, **given})


def _verify(args: argparse.Namespace, spare: _Spare, say: Any) -> int:
    from kcontract.cli import verify as command
    from kcontract.dynamic import certificates
    from kcontract.dynamic.problems.load import load
    from kcontract.dynamic.verify import verify

    engine = args.engine or command.default_engine()
    limits = command.limits(args.timeout, args.memory)
    statuses = []
    for problem in load(args.path, args.reference, args.candidate):
        with spare.take(problem, engine, limits, args.seed) as candidate:
            result = verify(
                problem, engine=engine, only=args.gates, floor=args.floor, dtype=args.dtype, seed=args.seed,
                thorough=args.thorough, candidate=candidate,
                verdicts=None if args.no_cache else certificates.folder(),
            )  # fmt: skip
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            statuses.append(command.show(result, args, engine))
        for line in text.getvalue().splitlines():
            say(json.loads(line) if args.json else {"type": "text", "text": line})
        spare.prepare(problem, engine, limits)
    return next((status for status in (1, 3) if status in statuses), 0)


def ask(path: str, request: Mapping[str, Any], out: TextIO) -> int:
    """Send a request to a service and print its answer; the exit status it gives. Raises ``UsageError`` without one."""
    client = socket.socket(socket.AF_UNIX)
    try:
        client.connect(path)
    except OSError as error:
        raise UsageError(
            f"{path}: no service answers ({error.strerror}); start one with: kcontract verify --serve {path}"
        ) from None
    with client, client.makefile("r") as lines:
        client.sendall((json.dumps({k: v for k, v in request.items() if v is not None}) + "\n").encode())
        wrong = ""
        for line in lines:
            record = json.loads(line)
            if record["type"] == "done" and wrong:
                raise InputError(wrong) if record["status"] == 3 else UsageError(wrong)
            if record["type"] == "done":
                return int(record["status"])
            if record["type"] == "text":
                print(record["text"], file=out, flush=True)
            elif record["type"] == "error" and "kernel" not in record:
                wrong = str(record["message"])
            else:
                print(line, end="", file=out, flush=True)
    raise InputError("the service has gone before it answered", path=str(Path(path)))
