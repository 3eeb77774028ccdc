"""The processes between the grader and candidates: one that has torch and Triton imported, and a warden a candidate.

``grader ─ zygote ─ warden ─ worker ─ whatever the candidate starts``. The zygote (``python -m
kcontract.dynamic.sandbox.keeper SETTINGS``) imports what is slow to import, never touches CUDA, and forks a warden for
each request. The warden adopts orphans of its candidate (it is their subreaper), so a double fork or a new session
does not lose it a process; it watches memory, processes and disk, and when the grader's end of its lifeline closes, by
whatever death, it stops and kills them all. Should a warden be killed, its orphans fall to the zygote, which kills
them.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

_PR_SET_CHILD_SUBREAPER = 36
#: Seconds between two looks at what a candidate uses, while it works and while it rests.
_TICK, _REST = 0.1, 0.4


def adopt() -> None:
    """Make this process the parent of all orphans below it."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(root: int) -> list[int]:
    """All processes below ``root``, parents first."""
    found = list(_children(root))
    for pid in found:
        found += _children(pid)
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
                found += map(int, file.read().split())
    return found


def slay(root: int, spare: frozenset[int] = frozenset()) -> None:
    """Kill all below ``root`` but ``spare``: stopped first, so that nothing forks away, then killed and reaped."""
    while True:
        stopped: set[int] = set()
        while new := [p for p in descendants(root) if p not in stopped and p not in spare]:
            for pid in new:
                _signal(pid, signal.SIGSTOP)
            stopped.update(new)
        if not stopped:
            return
        for pid in stopped:
            _signal(pid, signal.SIGKILL)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and any(p in stopped for p in descendants(root)):
            for pid in _children(root):
                if pid in stopped:
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(pid, os.WNOHANG)
            time.sleep(0.002)
        if time.monotonic() >= deadline:
            return


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


class Usage:
    """What the processes below this one use, against limits in bytes and processes; a sentence when over one."""

    def __init__(self, limits: Mapping[str, int], folder: str, arenas: frozenset[int]) -> None:
        self.limits, self.folder, self.arenas, self.looks = limits, folder, arenas, 0
        self._worked: tuple[tuple[int, ...], int] = ((), 0)

    def rests(self) -> bool:
        """Whether its processes are the same as at the last look, and none has used the processor since."""
        pids = descendants(os.getpid())
        before, self._worked = self._worked, (tuple(pids), sum(map(_ticks, pids)))
        return before == self._worked

    def over(self) -> str:
        """Why the candidate must end; empty where it is inside its limits."""
        pids = descendants(os.getpid())
        self.looks += 1
        if len(pids) > self.limits["processes"]:
            return f"it started more than {self.limits['processes']} processes"
        memory = sum(map(_resident, pids))
        if memory > self.limits["memory"]:  # pages shared by a fork have been counted more than once
            memory = sum(map(_proportional, pids))
        if memory + self._in_memory_files(pids) > self.limits["memory"]:
            return f"it used more than {_size(self.limits['memory'])} of memory"
        if self.looks % 8 == 0 and self._on_disk() > self.limits["disk"]:
            return f"it wrote more than {_size(self.limits['disk'])} of files"
        return ""

    def _in_memory_files(self, pids: list[int]) -> int:
        """Bytes of memfds that are no arena of the channel, each counted once."""
        sizes: dict[int, int] = {}
        for pid in pids:
            with contextlib.suppress(OSError):
                for entry in os.scandir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(OSError):
                        if os.readlink(entry.path).startswith("/memfd:"):
                            status = os.stat(entry.path)
                            if status.st_ino not in self.arenas:
                                sizes[status.st_ino] = status.st_blocks * 512
        return sum(sizes.values())

    def _on_disk(self) -> int:
        total = 0
        for folder, _, names in os.walk(self.folder):
            for name in names:
                with contextlib.suppress(OSError):
                    total += os.lstat(os.path.join(folder, name)).st_blocks * 512
        return total


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def _ticks(pid: int) -> int:
    """Clock ticks of processor time."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return sum(map(int, file.read().rpartition(")")[2].split()[11:13]))
    except OSError:
        return 0


def _proportional(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return next((int(line.split()[1]) << 10 for line in file if line.startswith("Pss:")), 0)
    except OSError:
        return 0


def _size(count: int) -> str:
    return f"{count / (1 << 30):.3g} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.3g} MiB"


def guard(lifeline: socket.socket, worker: int, usage: Usage) -> None:
    """The warden: wait until the worker ends, a limit is passed or the grader has gone; end all; say how it went."""
    reading, writing = os.pipe2(os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writing)
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    poll.register(reading, select.POLLIN)
    ending: dict[str, Any] = {"status": None, "reason": ""}
    next_look, wait = 0.0, _TICK
    while ending["status"] is None and not ending["reason"]:
        ready = dict(poll.poll(wait * 1000))
        if lifeline.fileno() in ready:
            break
        if reading in ready:
            os.read(reading, 512)
        for pid, status in _ended():
            if pid == worker:
                ending["status"] = os.waitstatus_to_exitcode(status)
        if time.monotonic() >= next_look and ending["status"] is None:
            wait = _REST if usage.rests() else _TICK
            ending["reason"] = usage.over() if wait is _TICK else ""
            next_look = time.monotonic() + wait
    slay(os.getpid())
    with contextlib.suppress(OSError):
        lifeline.send(json.dumps(ending).encode())
    os._exit(0)


def _ended() -> Iterator[tuple[int, int]]:
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            yield found


def _work(request: Mapping[str, Any], link: socket.socket, inputs: int, outputs: int, output: int) -> None:
    """The worker's process, from its fork on."""
    from kcontract.dynamic.sandbox import confine

    os.setsid()
    confine.die_with_parent()
    null = os.open(os.devnull, os.O_RDONLY)
    for handle, number in ((null, 0), (output, 1), (output, 2)):
        os.dup2(handle, number)
    keep = {0, 1, 2, link.fileno(), inputs, outputs}
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/self/fd/{name}").startswith(("socket:", "pipe:")):
                    os.close(int(name))
    for number in (signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    os.chdir(request["folder"])
    settings = {**request, "socket": link.detach(), "inputs": inputs, "outputs": outputs}
    if request["tool"]:
        _instrumented(settings)
    from kcontract.dynamic.sandbox import worker

    worker.main(settings)


#: Environment of a process under a tool. Without torch's cache each tensor is an allocation whose end a tool sees.
_INSTRUMENTED = {
    "consan": {"TRITON_INSTRUMENTATION_MODE": "consan"},
    "memcheck": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
    "initcheck": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
}


def _instrumented(settings: Mapping[str, Any]) -> NoReturn:
    """Become a fresh worker under ``settings["tool"]``, which cannot take over a process that runs."""
    tool, folder = str(settings["tool"]), str(settings["folder"])
    for handle in (settings["socket"], settings["inputs"], settings["outputs"]):
        os.set_inheritable(handle, True)
    command = [sys.executable, "-m", __spec__.name, json.dumps({"work": {**settings, "tool": ""}})]
    if tool != "consan":
        log = os.path.join(folder, "sanitizer.%p")
        sanitizer = ["compute-sanitizer", "--tool", tool, "--target-processes", "application-only", "--log-file", log]
        command = [*sanitizer, "--print-limit", "20", *command]
    os.execvpe(command[0], command, os.environ | _INSTRUMENTED.get(tool, {}))


def _serve_one(request: Mapping[str, Any], handles: list[int]) -> None:
    """In the warden's process: fork the worker, then guard it."""
    adopt()
    lifeline = socket.socket(fileno=handles[0])
    arenas = frozenset(os.fstat(h).st_ino for h in handles[2:4])
    worker = os.fork()
    if worker == 0:
        try:
            _work(request, socket.socket(fileno=handles[1]), *handles[2:])
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(70)
    for handle in handles[1:]:
        os.close(handle)
    guard(lifeline, worker, Usage(request["limits"], request["folder"], arenas))


def main(settings: Mapping[str, Any]) -> None:
    """The zygote: import, say so, and fork until the grader closes the control socket. Or a worker that was started,
    not forked."""
    if "work" in settings:
        from kcontract.dynamic.sandbox import worker as lone

        lone.main(settings["work"])
    control = socket.socket(fileno=int(settings["control"]))
    adopt()
    import torch
    import triton

    from kcontract.dynamic.sandbox import confine, watch, worker  # noqa: F401

    with watch.Operations(watch.Seen(), None):
        torch.empty_like(torch.ones(1))
    import torch._dynamo  # some 900 modules, which several operations on meta import; once here, not in each worker

    if not triton.knobs.runtime.interpret:
        triton.runtime.cache.triton_key()  # hashes all of Triton, once a process
    # what was imported so far may be cached beside its source; what a candidate imports may not
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    gc.collect()
    gc.freeze()
    with contextlib.suppress(OSError):
        control.send(b"ready")
    wardens: set[int] = set()
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        readable = poll.poll(200 if wardens else None)
        for pid, status in _ended():
            wardens.discard(pid)
            if status:
                slay(os.getpid(), frozenset(p for w in wardens for p in (w, *descendants(w))))
        if not readable:
            continue
        try:
            data, handles, _, _ = socket.recv_fds(control, 1 << 16, 5)
        except OSError:  # the grader went with something unread
            break
        if not data:
            break
        pid = os.fork()
        if pid == 0:
            try:
                control.close()
                _serve_one(json.loads(data), handles)
            finally:
                os._exit(71)
        wardens.add(pid)
        for handle in handles:
            os.close(handle)
    deadline = time.monotonic() + 3  # wardens see the same end and clean up themselves
    while wardens and time.monotonic() < deadline:
        wardens.difference_update(pid for pid, _ in _ended())
        time.sleep(0.01)
    slay(os.getpid())
    os._exit(0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
