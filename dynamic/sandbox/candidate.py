"""The grader's end of a candidate's process: starts it, calls it, and turns whatever becomes of it into an answer.

A candidate that hangs, dies or exits is an ``Answer`` with a ``Failure`` in a sentence; the next call starts a fresh
process. The process and all it started are killed on ``close``, and die with the grader.
"""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from kcontract.dynamic.engines.names import engine_parts
from kcontract.dynamic.problems.problem import Entry
from kcontract.dynamic.sandbox import channel, pool
from kcontract.dynamic.sandbox.answer import Answer, Failure, Output
from kcontract.errors import UsageError

__all__ = ["Answer", "Candidate", "Failure", "Limits", "Output"]


@dataclass(frozen=True, slots=True)
class Limits:
    """``call`` and ``load`` are seconds, ``memory`` bytes of all processes of the candidate, ``room`` bytes of all
    tensors of one call in each direction, ``processes`` their number, ``output`` bytes it may print, ``disk`` bytes of
    files in its folder (no file may be larger than the larger of ``disk`` and ``room``)."""

    load: float = 120.0
    call: float = 60.0
    memory: int = 16 << 30
    room: int = 8 << 30
    processes: int = 64
    output: int = 64 << 20
    disk: int = 4 << 30


#: CUDA errors after which a process can do nothing more on its device.
_BROKEN = ("illegal memory access", "misaligned address", "unspecified launch failure", "device-side assert",
           "illegal instruction", "illegal address", "hardware stack error")  # fmt: skip


class Candidate:
    """One candidate on one engine. Not for use from several threads."""

    def __init__(
        self, entry: Entry, engine: str, *, init: Sequence[Any] = (), seed: int = 0, limits: Limits | None = None,
        tool: str = "",
    ) -> None:  # fmt: skip
        self.entry, self.init, self.seed = entry, tuple(init), seed
        self.kind, self.target = engine_parts(engine)
        if self.kind == "gpu":
            if not torch.cuda.is_available():
                raise UsageError("--engine gpu needs a CUDA device, and there is none; use sim:sm_90 or interpreter")
            self.target = "sm_{}{}".format(*torch.cuda.get_device_capability())
        self.limits = limits or Limits()
        self.tool = tool
        pool.zygote(self.kind, self.target)  # warms up meanwhile
        self.state: list[tuple[str, Any]] = []
        self.parameters: tuple[str, ...] = ()
        self.unset: tuple[str, ...] = ()
        self.folder = tempfile.TemporaryDirectory(prefix="kcontract-", ignore_cleanup_errors=True)
        self.pinned: int | None = None
        self.training = True
        self.loaded_with: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]] = ((), (), ())
        self.shapes: frozenset[tuple[int, ...]] = frozenset()
        self.isolation: tuple[str, ...] = ()
        self.flooded = False
        self._process: pool.Process | None = None
        self._link: socket.socket | None = None
        self._loaded = False
        self._asked = 0
        self.printed = bytearray()

    # -- life ---------------------------------------------------------------------------------------------------------

    @property
    def cache(self) -> Path:
        """Triton's cache folder of this candidate: what it compiled."""
        return Path(self.folder.name) / "cache"

    def __enter__(self) -> Candidate:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the process and all it started; remove its folder."""
        self._kill()
        self.folder.cleanup()

    def report(self) -> str:
        """End the process; what the tool that it ran under has written."""
        if self._link is not None:
            self._link.close()  # it ends by itself, and the tool with it
            self._link = None
        if self._process is not None:
            self._process.wait(60)
        self._kill()
        return "\n".join(p.read_text(errors="replace") for p in sorted(Path(self.folder.name).glob("sanitizer.*")))

    def forget(self) -> None:
        """End the process; the next call starts one whose parameters are as its own initialisation draws them."""
        self._kill()
        self.state = []

    def start(self) -> None:
        """Start the process, unless it runs. Raises ``Closed`` or ``TimeoutError`` where it does not come up."""
        if self._process is not None and self._process.running():
            return
        self._kill()
        ours, theirs = socket.socketpair()
        self._inputs = channel.Arena(os.memfd_create("inputs"), self.limits.room)
        self._outputs = channel.Arena(os.memfd_create("outputs"), self.limits.room)
        readonly = os.open(f"/proc/self/fd/{self._inputs.handle}", os.O_RDONLY)
        reading, writing = os.pipe()
        self.cache.mkdir(exist_ok=True)
        (Path(self.folder.name) / "tmp").mkdir(exist_ok=True)
        settings = {
            "room": self.limits.room,
            "device": "cuda:0" if self.kind == "gpu" else "cpu",
            "gpu": self.kind == "gpu",
            "folder": self.folder.name,
            "tool": self.tool,
            "limits": asdict(self.limits),
        }
        try:
            self._process = pool.zygote(self.kind, self.target).spawn(
                settings, theirs.fileno(), readonly, self._outputs.handle, writing
            )
        finally:
            theirs.close()
            for handle in (readonly, writing):
                os.close(handle)
            if self._process is None:
                ours.close()
                for handle in (reading, self._inputs.handle, self._outputs.handle):
                    os.close(handle)
        threading.Thread(target=self._drain, args=(reading, self._process), daemon=True).start()
        self._link, self._loaded = ours, False
        self.isolation = tuple(channel.receive(ours, self.limits.load)["isolation"])

    def _drain(self, pipe: int, process: pool.Process) -> None:
        """Keep the last 64 KiB of what the candidate prints; kill it when it prints without end."""
        total = 0
        with open(pipe, "rb", buffering=0) as file:
            while part := file.read(1 << 16):
                total += len(part)
                self.printed = (self.printed + part)[-(1 << 16) :]
                if total > self.limits.output and not self.flooded:
                    self.flooded = True
                    process.kill()

    def _kill(self) -> pool.Ending | None:
        ending = None
        if self._process is not None:
            self._process.kill()
            ending = self._process.wait(20)
            for arena in (self._inputs, self._outputs):
                os.close(arena.handle)
        if self._link is not None:
            self._link.close()
        self._process = self._link = None
        self._loaded = False
        return ending

    # -- requests -----------------------------------------------------------------------------------------------------

    def load(self, state: Sequence[tuple[str, Any]] = ()) -> Failure | None:
        """Load the candidate with these parameters and buffers (name, CPU tensor); None, or why it cannot be.

        ``unset`` then names those that it has no place of the same name or shape for.
        """
        self.state = list(state)
        reply = self._state() if self._loaded else self._load()
        return reply if isinstance(reply, Failure) else None

    def _state(self) -> dict[str, Any] | Failure:
        """Give it the parameters and buffers, once it is loaded."""
        self._inputs.clear()
        try:
            states = [{"name": name, **self._pack(value)} for name, value in self.state]
        except channel.Garbled as error:
            return Failure("too large", str(error), "load")
        request = {"op": "state", "state": states, "training": self.training}
        reply = self._ask(request, self.limits.load)
        if not isinstance(reply, Failure):
            self.parameters = tuple(str(n) for n in reply["parameters"])
            self.unset = tuple(str(n) for n in reply["unset"])
            self.shapes = frozenset(tuple(int(n) for n in shape) for shape in reply["shapes"])
        return reply

    def _load(self) -> dict[str, Any] | Failure:
        request = {
            "op": "load",
            "path": os.path.abspath(self.entry.path),
            "name": self.entry.name,
            "kind": self.entry.kind,
            "init": channel.literal(self.init),
            "seed": self.seed,
        }
        try:
            self.start()
        except (channel.Closed, channel.Garbled, TimeoutError):
            self._kill()
            return Failure("died", f"its process did not start: {self._last_line()}", "start")
        reply = self._ask(request, self.limits.load)
        if not isinstance(reply, Failure):
            flags, functions, deeds = (tuple(map(str, reply[key])) for key in ("flags", "functions", "deeds"))
            self.loaded_with = (flags, functions, deeds)
            reply = self._state()
        if not isinstance(reply, Failure):
            self._loaded = True
            if self.pinned is not None:
                self._ask({"op": "tuners", "pin": self.pinned}, self.limits.load)
        return reply

    def call(
        self,
        arguments: Sequence[Any],
        *,
        upstream: Sequence[Any] = (),
        placement: str = "fresh",
        poison: str | None = None,
        observe: bool = False,
        suppress: bool = False,
        twice: bool = False,
        late: bool = False,
        hold: str = "",
        on: str | None = None,
        order: int | None = None,
        checked: bool = False,
        kernels: bool = False,
    ) -> Answer:
        """Call it once with CPU tensors, which it gets as private copies on its device.

        ``upstream`` are gradients of the floating outputs: with them, gradients of arguments that require one and of
        all parameters come back, ``twice`` from two backwards. ``placement``: ``fresh`` buffers, the ``same`` addresses
        as the last time, or ``guarded:nan`` / ``guarded:finite`` with 4 KiB borders so filled, around what it allocates
        too (but in the simulator, which knows where each buffer ends). ``poison`` fills what an allocation leaves
        uninitialised (``nan``, ``finite``). ``observe`` records torch operations. ``suppress`` leaves Triton launches
        out. ``late`` lets inputs arrive late on the current stream and reads outputs in its order. ``hold`` keeps the
        outputs alive for ``again``. ``on`` puts tensors on another device. For the simulator: ``order`` seeds the order
        of atomics, ``checked`` turns its diagnoses on. ``kernels`` names the kernels that ran on a GPU, whoever
        launched them.
        """
        if not self._loaded:
            loaded = self._load()
            if isinstance(loaded, Failure):
                return Answer(failure=loaded)
        self._inputs.clear()
        try:
            request: dict[str, Any] = {
                "op": "call",
                "arguments": [self._argument(v, on) for v in arguments],
                "upstream": [self._pack(v) for v in upstream],
            }
        except channel.Garbled as error:
            return Answer(failure=Failure("too large", str(error), "call"))
        request |= {"placement": placement, "poison": poison, "observe": observe, "suppress": suppress}
        request |= {"order": order, "checked": checked, "kernels": kernels}
        reply = self._ask({**request, "twice": twice, "late": late, "hold": hold}, self.limits.call)
        if isinstance(reply, Failure):
            return Answer(failure=reply)
        try:
            return self._answer(reply)
        except (channel.Garbled, KeyError, TypeError, ValueError, AttributeError) as error:
            self._kill()
            return Answer(failure=Failure("garbled", f"its process answered with nonsense: {error}", "call"))

    def again(self, name: str) -> list[Any]:
        """The bytes that a held result has now, one tensor an output; empty where it is gone."""
        reply = self._ask({"op": "again", "name": name}, self.limits.call)
        return [] if isinstance(reply, Failure) else [self._output(o).value for o in reply["outputs"]]

    def tuners(self, pin: int | None = None, rebuild: bool = False) -> list[tuple[str, list[str]]]:
        """The autotuners that have run, with their configurations; ``pin`` leaves each only the configuration of that
        number (modulo), -1 the one it chose itself. ``rebuild`` makes a module anew under it: its state is to be
        loaded again."""
        self.pinned = pin
        reply = self._ask({"op": "tuners", "pin": pin, "rebuild": rebuild, "seed": self.seed}, self.limits.load)
        return [] if isinstance(reply, Failure) else [(str(n), [str(c) for c in cs]) for n, cs in reply["tuners"]]

    def _argument(self, value: Any, on: str | None) -> dict[str, Any]:
        if not isinstance(value, torch.Tensor):
            return {"value": channel.literal(value)}
        skew = value.storage_offset() % 16
        return {"tensor": self._pack(value), "grad": value.requires_grad, "on": on, "skew": skew}

    def _pack(self, value: Any) -> dict[str, Any]:
        if self._process is None:
            self.start()
        header = channel.pack(torch, value, self._inputs)
        if header["at"] is None:
            raise channel.Garbled(f"the inputs are larger than {self.limits.room} bytes")
        return header

    def _ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any] | Failure:
        stage = str(request["op"])
        assert self._link is not None or self._process is None
        if self._link is None:
            return Failure("died", "its process has ended", stage)
        self._asked += 1
        self._outputs.clear()
        try:
            channel.send(self._link, {**request, "number": self._asked}, seconds)
            reply = channel.receive(self._link, seconds)
            if reply.get("number") != self._asked:
                raise channel.Garbled("an answer to another request")
        except TimeoutError:
            self._kill()
            return Failure("hung", f"no result after {seconds:g} s", stage)
        except channel.Closed:
            return self._died(stage)
        except channel.Garbled as error:
            self._kill()
            return Failure("garbled", f"its process answered with nonsense: {error}", stage)
        if "error" in reply:
            e = reply["error"]
            broken = any(word in str(e["message"]) for word in _BROKEN)
            if broken:
                self._kill()  # a CUDA context that met such an error answers every later call with it
            kind = "died" if broken else "raised"
            return Failure(kind, str(e["message"]), str(e["stage"]), str(e["type"]), str(e["place"]))
        return reply

    def _died(self, stage: str) -> Failure:
        assert self._process is not None
        ending = self._process.wait(10)
        said = self._last_line()
        self._kill()
        if self.flooded:
            return Failure("died", f"it printed more than {self.limits.output} bytes and was ended", stage)
        if ending.reason:
            return Failure("died", f"{ending.reason} and was ended", stage)
        status = -signal.SIGKILL if ending.status is None else ending.status
        how = f"was killed by {_signal(-status)}" if status < 0 else f"ended itself with exit status {status}"
        return Failure("died", f"its process {how}" + (f": {said}" if said else ""), stage)

    def _last_line(self) -> str:
        lines = [line.strip() for line in self.printed.decode(errors="replace").splitlines() if line.strip()]
        return lines[-1][:200] if lines else ""

    def _answer(self, reply: Mapping[str, Any]) -> Answer:
        return Answer(
            outputs=tuple(self._output(o) for o in reply["outputs"]),
            grads=tuple(tuple(None if g is None else self._output(g) for g in each) for each in reply["grads"]),
            parts=tuple(str(part) for part in reply["parts"]),
            changed=tuple(int(k) for k in reply["changed"]),
            borders=tuple(int(k) for k in reply["borders"]),
            beyond=str(reply["beyond"]),
            launches=tuple(reply["launches"]),
            operations=tuple((str(n), tuple(r), tuple(m)) for n, r, m in reply["operations"]),
            sizes=tuple(int(n) for n in reply["sizes"]),
            casts=tuple((str(a), str(b), int(at)) for a, b, at in reply["casts"]),
            twins=tuple((int(at), int(k)) for at, k in reply["twins"]),
            meeting=tuple((int(k), int(j)) for k, j in reply["meeting"]),
            kernels=tuple(str(n) for n in reply["kernels"]),
            native=tuple(str(n) for n in reply["native"]),
            own=tuple(int(at) for at in reply["own"]),
            flags=tuple(reply["flags"]),
            functions=tuple(reply["functions"]),
            deeds=tuple(reply["deeds"]),
            nodes=tuple(str(n) for n in reply["nodes"]),
            stream=int(reply["stream"]),
            inputs={int(k): int(v) for k, v in reply["inputs"].items()},
            seconds=float(reply["seconds"]),
        )

    def _output(self, header: Mapping[str, Any]) -> Output:
        shape = tuple(int(s) for s in header["shape"])
        value = (
            channel.unpack(torch, header, self._outputs, pinned=self.kind == "gpu")
            if header["at"] is not None or 0 in shape
            else None
        )
        alias = header["alias"]
        return Output(
            value=value,
            dtype=str(header["dtype"]),
            shape=shape,
            device=str(header["device"]),
            kind=str(header["class"]),
            plain=bool(header["plain"]),
            storage=int(header["storage"]),
            alias=None if alias is None else int(alias),
            held=bool(header["held"]),
            requires_grad=bool(header["requires_grad"]),
            number=bool(header.get("number")),
        )


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
