"""The grader's side of the keeper: warm processes by engine, from which each candidate's process is forked.

``spawn`` gives a fresh process within milliseconds once the engine's zygote is warm (torch and Triton imported), also
after a candidate has died. Zygotes end with the grader, whichever way it ends.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kcontract.dynamic.engines import records
from kcontract.dynamic.sandbox.channel import Closed

_KEPT = ("PATH", "HOME", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES",
         "LANG", "CC", "CXX", "TRITON_PTXAS_PATH", "TRITON_DEFAULT_FP_FUSION", "VIRTUAL_ENV", "USER",
         "TORCH_CUDA_ARCH_LIST", "TORCH_EXTENSIONS_DIR", "TRITON_KCONTRACT_SIM")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process ended: exit status (negative: the signal), and why its warden ended it, if that did."""

    status: int | None
    reason: str


class Process:
    """One candidate's processes, seen from the grader."""

    def __init__(self, lifeline: socket.socket) -> None:
        self._lifeline = lifeline
        self._ending: Ending | None = None

    def running(self) -> bool:
        """Whether it has not ended."""
        return self._ending is None and not self._told(0.0)

    def kill(self) -> None:
        """Ask for the end of all its processes; from any thread. ``wait`` tells when it has come."""
        with contextlib.suppress(OSError):
            self._lifeline.send(b"end")

    def wait(self, seconds: float) -> Ending:
        """The ending, killed for when it does not come by itself."""
        if self._ending is None and not self._told(seconds):
            self.kill()
            if not self._told(20.0):
                self._ending = Ending(-signal.SIGKILL, "")
        self._lifeline.close()
        assert self._ending is not None
        return self._ending

    def _told(self, seconds: float) -> bool:
        self._lifeline.settimeout(seconds)
        try:
            data = self._lifeline.recv(1 << 16)
        except (TimeoutError, BlockingIOError):
            return False
        except OSError:
            data = b""
        try:
            told = json.loads(data)
            self._ending = Ending(told["status"], str(told["reason"]))
        except (ValueError, KeyError, TypeError):  # the warden itself was killed
            self._ending = Ending(-signal.SIGKILL, "")
        return True


class Zygote:
    """A process with torch and Triton imported for one engine. Raises ``Closed`` where it does not come up."""

    def __init__(self, kind: str, target: str) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="kcontract-", ignore_cleanup_errors=True)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kcontract.dynamic.sandbox.keeper", json.dumps({"control": theirs.fileno()})],
            pass_fds=(theirs.fileno(),),
            env=_environment(kind, target, self.folder.name),
            cwd=self.folder.name,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self._control.settimeout(120)
        self._warm, self._lock = False, threading.Lock()

    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def spawn(self, settings: Mapping[str, Any], link: int, inputs: int, outputs: int, output: int) -> Process:
        """Fork a worker that holds these file descriptors."""
        try:
            with self._lock:
                if not self._warm and self._control.recv(16) != b"ready":
                    raise Closed("the process that candidates are forked from did not start")
                self._warm = True
                ours, lifeline = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with lifeline:
                    request = json.dumps(settings).encode()
                    socket.send_fds(self._control, [request], [lifeline.fileno(), link, inputs, outputs, output])
        except OSError as error:
            raise Closed(f"the process that candidates are forked from is gone: {error}") from None
        return Process(ours)

    def close(self) -> None:
        """End it and all below it."""
        self._control.close()
        if not self._warm:
            self._process.kill()  # it has forked nobody yet, and may still be importing
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.folder.cleanup()


_zygotes: dict[tuple[str, ...], Zygote] = {}
_lock = threading.Lock()


def zygote(kind: str, target: str) -> Zygote:
    """The warm process of an engine, started on the first call; it warms up in the background."""
    key = (kind, target, *(os.environ.get(name, "") for name in (*_KEPT, "PYTHONPATH")))
    with _lock:
        held = _zygotes.get(key)
        if held is not None and not held.running():
            held.close()
            held = None
        if held is None:
            held = _zygotes[key] = Zygote(kind, target)
        return held


@atexit.register
def close() -> None:
    """End all warm processes. They start again when needed."""
    with _lock:
        for held in _zygotes.values():
            held.close()
        _zygotes.clear()


def _environment(kind: str, target: str, folder: str) -> dict[str, str]:
    import kcontract

    package = Path(kcontract.__file__).parent
    site = Path(__file__).parents[1] / "engines" / "site"
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    own = [os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    environment |= {
        "PYTHONPATH": os.pathsep.join([str(site), str(package.parent), *own]),
        "TRITON_CACHE_DIR": folder,
        "PYTHONUNBUFFERED": "1",
        "OMP_WAIT_POLICY": "PASSIVE",  # many candidates may run beside each other
    }
    if kind != "gpu":
        settings = records.Settings(
            engine="simulator.process" if kind == "sim" else "interpreter",
            target=target,
            records=os.path.join(folder, "events.jsonl"),
            cache=folder,
            package=str(package),
        )
        environment |= settings.environment() | {"TORCHDYNAMO_DISABLE": "1", "CUDA_VISIBLE_DEVICES": ""}
    if kind == "interpreter":
        environment["TRITON_INTERPRET"] = "1"
    return environment
