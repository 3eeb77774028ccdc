"""The candidate's process: loads its file, calls it as told, and hands back raw bytes with what was seen.

Forked by ``keeper``, which has imported all this; confined before the candidate's file is read. It judges nothing.
Everything that could be told about the checker from in here (a gate's name, a tolerance, a reference) is not here.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib.util
import os
import re
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from kcontract.dynamic import results
from kcontract.dynamic.engines.records import sentence
from kcontract.dynamic.sandbox import channel, confine, marks, watch
from kcontract.dynamic.sandbox import seal as seals
from kcontract.dynamic.sandbox.seal import seal

#: Differs from run to run, so that two messages about one failure would not be equal.
_ADDRESS = re.compile(r"\b0x[0-9a-f]{9,16}\b")
_MODULE = "candidate"


class Worker:
    """One candidate, loaded once, called many times."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.device = torch.device(settings["device"])
        self.on_gpu = bool(settings["gpu"])
        self.native = marks.native_code()
        self.interpreted = bool(importlib.import_module("triton").knobs.runtime.interpret)
        self.inputs = channel.Arena(settings["inputs"], settings["room"])
        self.outputs = channel.Arena(settings["outputs"], settings["room"])
        self.path = ""
        self.call: Any = None
        self.make: Callable[[], Any] | None = None
        self.launches = watch.Launches()
        self.launcher = self.launches.install(importlib.import_module("triton"))
        self.flags = watch.flags()
        self.replaced: dict[str, None] = {}
        self.look: Callable[[], list[str]] = list
        self.deeds = watch.audit(lambda: self.path)
        self.slots: dict[int, Any] = {}
        self.held: dict[str, list[Any]] = {}
        self.autotuners: list[Any] = []
        self.tuned: dict[int, tuple[list[Any], int]] = {}
        self.nodes: list[str] = []

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out one request."""
        self.outputs.clear()
        self.nodes = []
        stage = str(request["op"])
        try:
            return {"load": self._load, "state": self._state, "call": self._call, "again": self._again,
                    "tuners": self._tuners}[stage](request)  # fmt: skip
        except (channel.Garbled, channel.Closed):
            raise
        except BaseException as error:
            return {"error": self._failure(error, "backward" if self.nodes else stage)}

    def _failure(self, error: BaseException, stage: str) -> dict[str, str]:
        """Type, first telling line, place in the candidate's own file, and what was being done."""
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == self.path]
        place = f"{os.path.basename(self.path)}:{frames[-1].lineno}" if frames else ""
        return {
            "type": type(error).__name__,
            "message": _ADDRESS.sub("(an address)", sentence(error)),
            "place": place,
            "stage": stage,
        }

    def _load(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.path = str(request["path"])
        self.autotuners = watch.autotuners()
        sys.path.insert(0, os.path.dirname(os.path.abspath(self.path)))
        sys.argv = [self.path]
        spec = importlib.util.spec_from_file_location(_MODULE, self.path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[_MODULE] = module
        init = channel.plain(torch, request["init"])
        look = self.look = seal([channel, marks, results, seals, watch, sys.modules[__name__]], self.launcher)
        try:
            spec.loader.exec_module(module)
            torch.manual_seed(int(request["seed"]))
            self.call = getattr(module, str(request["name"]))
            if request["kind"] == "module":
                self.make = functools.partial(self.call, *init)
                self.call = self.make().to(self.device)
        finally:
            self.replaced.update(dict.fromkeys(look()))
        return {"ok": True, **self._global_changes()}

    def _state(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Set parameters and buffers: by name, else in order where all shapes agree. ``unset`` are names left alone."""
        given = [(str(e["name"]), self._tensor(e).to(self.device)) for e in request.get("state", ())]
        if not isinstance(self.call, torch.nn.Module):
            return {"parameters": [], "unset": [name for name, _ in given], "shapes": []}
        if not request.get("training", True):
            self.call.eval()
        own = {**dict(self.call.named_parameters()), **dict(self.call.named_buffers())}
        pairs = [(own[name], value) for name, value in given if name in own and own[name].shape == value.shape]
        unset = [name for name, value in given if name not in own or own[name].shape != value.shape]
        if unset and [tuple(t.shape) for t in own.values()] == [tuple(v.shape) for _, v in given]:
            pairs, unset = list(zip(own.values(), (v for _, v in given), strict=True)), []
        with torch.no_grad():
            for target, value in pairs:
                if target.dtype is value.dtype:
                    target.copy_(value)  # in place, as an optimiser does: whoever keeps what was there shows
                else:
                    target.data = value.clone()
        held = [
            t for m in self.call.modules() for t in (*vars(m).values(), *m._parameters.values(), *m._buffers.values())
        ]
        shapes = [list(t.shape) for t in held if isinstance(t, torch.Tensor)]
        return {"parameters": [n for n, _ in self.call.named_parameters()], "unset": unset, "shapes": shapes}

    def _global_changes(self) -> dict[str, Any]:
        return {
            "flags": list(watch.changes(self.flags, watch.flags())),
            "functions": list(self.replaced),
            "deeds": list(self.deeds),
        }

    def _tensor(self, header: Mapping[str, Any]) -> Any:
        return channel.unpack(torch, header, self.inputs, pinned=self.on_gpu)

    def _argument(self, at: int, entry: Mapping[str, Any], placement: str) -> tuple[Any, Any]:
        """An argument on the device, and (for guarded ones) the buffer around it."""
        if "tensor" not in entry:
            return channel.plain(torch, entry["value"]), None
        host = self._tensor(entry["tensor"])
        on = torch.device(entry["on"]) if entry.get("on") else self.device
        value, around = self._placed(at, host, placement, on, int(entry.get("skew", 0)))
        return (value.requires_grad_() if entry.get("grad") else value), around

    def _placed(self, at: int, host: Any, placement: str, on: Any, skew: int) -> tuple[Any, Any]:
        if on.type == "meta":
            return host.to("meta"), None
        count, size = channel.extent_of(host.shape, host.stride()), host.dtype.itemsize
        flat = host.as_strided((count,), (1,), 0) if count else host.reshape(-1)
        if placement == "same":
            slot = self.slots.get(at)
            if slot is None or slot.numel() < count * size:
                slot = self.slots[at] = torch.empty(max(2 * count * size, 512), dtype=torch.uint8, device=on)
            buffer = slot[: count * size].view(host.dtype)
            buffer.copy_(flat)
            return buffer.as_strided(host.shape, host.stride()).data, None  # with a version counter of its own
        if placement.startswith("guarded"):
            inner, around = watch.bordered(flat, on, placement.partition(":")[2])
            return inner.as_strided(host.shape, host.stride()), around
        fresh = torch.empty(count + skew, dtype=host.dtype, device=on)
        fresh[skew:].copy_(flat)
        return fresh.as_strided(host.shape, host.stride(), skew), None

    def _call(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """One call. See ``Candidate.call`` for the options."""
        placement = str(request.get("placement", "fresh"))
        pairs = [self._argument(k, e, placement) for k, e in enumerate(request["arguments"])]
        arguments = [value for value, _ in pairs]
        tensors = [(k, t) for k, t in enumerate(arguments) if isinstance(t, torch.Tensor)]
        before = {k: t.detach().clone() for k, t in tensors}
        late = request.get("late") and self.on_gpu
        if late:
            self._delay(arguments)
        self.launches.simulate(request.get("order"), bool(request.get("checked")))
        seen = watch.Seen()
        self.launches.seen, self.launches.suppress = seen, bool(request.get("suppress"))
        poison = request.get("poison")
        want = list(request.get("upstream", ()))
        away = next((t.device for _, t in tensors if t.device != self.device), None) if self.on_gpu else None
        profiler = self._profiler() if request.get("kernels") else None
        # the simulator knows each buffer's end itself, and a border would hide it
        border = placement.partition(":")[2] if self.on_gpu or self.interpreted else ""
        mode = watch.Operations(seen, poison, border) if poison or request.get("observe") else None
        look, start = self.look, time.perf_counter()
        try:
            with self._moved(tensors), mode or contextlib.nullcontext():
                result, grads = self._run(arguments, tensors, want, request)
                self.replaced.update(dict.fromkeys(look()))
            if late:
                result = [t.clone() if isinstance(t, torch.Tensor) else t for t in results.leaves(result)]
            self._synchronize(away)
        except BaseException:
            self.replaced.update(dict.fromkeys(look()))
            raise
        finally:
            names = marks.kernels(profiler)
            self.launches.seen, self.launches.suppress = None, False
        seconds = time.perf_counter() - start
        parts = list(results.leaves(result))
        returned = [(results.tensor_of(part), results.kind(part)) for part in parts if results.compared(part)]
        outputs = [t for t, _ in returned]
        answer = {
            "outputs": [{**self._output(t, tensors), "number": kind == "number"} for t, kind in returned],
            "parts": [results.kind(part)[:64] for part in parts[:4096]],
            "grads": [[None if g is None else self._output(g, tensors) for g in each] for each in grads],
            "changed": [k for k, t in tensors if not late and marks.differs(t, before[k])],
            "borders": [
                k for k, (_, a) in enumerate(pairs) if a is not None and watch.overrun(a, placement.partition(":")[2])
            ],
            "beyond": next((_size(a) for a in mode.guarded if watch.overrun(a, border)), "") if mode else "",
            "launches": seen.launches[:256],
            "count": len(seen.launches),
            "operations": [list(o) for o in seen.operations[:512]] if request.get("observe") else [],
            "sizes": seen.sizes[:512],
            "casts": seen.casts[:512],
            "twins": seen.twins(outputs),
            "meeting": marks.meeting(outputs),
            "kernels": names,
            "native": sorted(marks.native_code() - self.native) if request.get("kernels") else [],
            "own": [watch.storage_of(t) for t in self._parameters()],
            "stream": self._stream(away),
            "nodes": self.nodes,
            "inputs": {str(k): watch.storage_of(t) for k, t in tensors},
            "seconds": seconds,
            **self._global_changes(),
        }
        if request.get("hold"):
            self.held[str(request["hold"])] = outputs
        return answer

    @contextlib.contextmanager
    def _moved(self, tensors: Sequence[tuple[int, Any]]) -> Iterator[None]:
        """Within it, a module's parameters are where the inputs are: on another GPU, or (a copy of them) on meta."""
        kept, where = self.call, next((t.device for _, t in tensors), self.device)
        if (
            not isinstance(kept, torch.nn.Module)
            or where.type not in ("cuda", "meta")
            or where == self.device
            or (where.type == "cuda" and not self.on_gpu)
        ):
            yield
        elif where.type == "meta":
            self.call = copy.deepcopy(kept).to("meta")
            try:
                yield
            finally:
                self.call = kept
        else:
            kept.to(where)
            try:
                yield
            finally:
                kept.to(self.device)

    def _run(self, arguments: Sequence[Any], tensors: Any, want: Any, request: Mapping[str, Any]) -> Any:
        repeats = 2 if request.get("twice") else 1
        with torch.set_grad_enabled(bool(want)):
            result = self.call(*arguments)
            if not want:
                return result, []
            floating = [t for t in results.tensors(result) if t.is_floating_point()]
            given = [(t, self._upstream(h, t)) for t, h in zip(floating, want, strict=False) if t.requires_grad]
            outputs, upstream = [t for t, _ in given], [u for _, u in given]
            self.nodes = watch.custom_nodes(outputs)
            leaves = [t for _, t in tensors if t.requires_grad]
            own = list(self.call.parameters()) if isinstance(self.call, torch.nn.Module) else []
            asked = leaves + [p for p in own if p.requires_grad]
            if not outputs or not asked:
                return result, [[None] * (len(leaves) + len(own))]
            grads = []
            for k in range(repeats):
                more = k + 1 < repeats
                got = iter(torch.autograd.grad(outputs, asked, upstream, retain_graph=more, allow_unused=True))
                found = [next(got) if t.requires_grad else None for t in (*leaves, *own)]
                # the next backward may write to where this one's result lies
                grads.append([g.clone() if more and g is not None else g for g in found])
        return result, grads

    def _upstream(self, header: Mapping[str, Any], output: Any) -> Any:
        """An upstream gradient where its output is, in the layout it was sent in."""
        host = self._tensor(header)
        return self._placed(-1, host, "fresh", output.device, 0)[0].to(output.dtype)

    def _parameters(self) -> list[Any]:
        own = self.call
        return [*own.parameters(), *own.buffers()] if isinstance(own, torch.nn.Module) else []

    def _profiler(self) -> Any:
        """A running profiler of device kernels, where there is a device."""
        if not self.on_gpu:
            return None
        profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
        profiler.start()
        return profiler

    def _delay(self, arguments: Sequence[Any]) -> None:
        """Let the inputs arrive late on the current stream, so that work on another stream meets NaN."""
        staged = [t.detach().clone() for t in arguments if isinstance(t, torch.Tensor) and t.is_floating_point()]
        with torch.no_grad():
            for t in arguments:
                if isinstance(t, torch.Tensor) and t.is_floating_point():
                    t.detach().fill_(float("nan"))
            torch.cuda.synchronize()
            torch.cuda._sleep(20_000_000)
            for t in arguments:
                if isinstance(t, torch.Tensor) and t.is_floating_point():
                    t.detach().copy_(staged.pop(0))

    def _output(self, tensor: Any, inputs: Sequence[tuple[int, Any]]) -> dict[str, Any]:
        place = watch.storage_of(tensor)
        device = str(tensor.device)
        plainly = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
        facts = {
            "class": type(tensor).__name__ if plainly or type(tensor) is not torch.Tensor else str(tensor.layout),
            "plain": plainly,
            "device": device,
            "storage": place,
            "alias": next((k for k, t in inputs if place and watch.storage_of(t) == place), None),
            "held": any(place and watch.storage_of(t) == place for ts in self.held.values() for t in ts),
            "requires_grad": bool(tensor.requires_grad),
        }
        if not plainly or device == "meta":
            shape = [int(s) for s in tensor.shape]
            return {
                **facts,
                "dtype": str(tensor.dtype).removeprefix("torch."),
                "shape": shape,
                "stride": [],
                "at": None,
            }
        return {**facts, **channel.pack(torch, tensor, self.outputs)}

    def _again(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The bytes that a held result has now."""
        self._synchronize()
        return {"outputs": [self._output(t, ()) for t in self.held.pop(str(request["name"]), [])]}

    def _tuners(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The autotuners that have run. ``pin`` leaves each its configuration of that number (modulo), -1 the one that
        it had chosen itself before it was pinned first; ``rebuild`` makes a module anew under it."""
        pin, told = request.get("pin"), []
        for tuner in self.autotuners:
            ran = hasattr(tuner, "best_config")
            if id(tuner) not in self.tuned:
                best = next((k for k, c in enumerate(tuner.configs) if ran and c is tuner.best_config), 0)
                self.tuned[id(tuner)] = (list(tuner.configs), best)
            configs, best = self.tuned[id(tuner)]
            at = best if pin == -1 else int(pin or 0) % len(configs)
            tuner.configs = list(configs) if pin is None else [configs[at]]
            tuner.cache.clear()
            if ran:
                told.append((tuner.base_fn.__name__, [str(c) for c in configs]))
        if request.get("rebuild") and self.make is not None:
            look = self.look
            torch.manual_seed(int(request["seed"]))
            try:
                self.call = self.make().to(self.device)
            finally:
                self.replaced.update(dict.fromkeys(look()))
        return {"tuners": told}

    def _synchronize(self, away: Any = None) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()
            if away is not None and away.type == "cuda":
                torch.cuda.synchronize(away)

    def _stream(self, away: Any) -> int:
        where = away if away is not None and away.type == "cuda" else None
        return int(torch.cuda.current_stream(where).cuda_stream) if self.on_gpu else 0


def _size(around: Any) -> str:
    """A guarded tensor in words."""
    inside = around.numel() - 2 * watch.BORDER // around.dtype.itemsize
    return f"{inside} elements of {str(around.dtype).removeprefix('torch.')}"


def prepare(settings: Mapping[str, Any]) -> list[str]:
    """Bring up the device and the engine, turn to the candidate's own folders, and confine the process."""
    import triton

    if triton.knobs.compilation.instrumentation_mode:  # ConSan keeps its notes in memory that a program gives it
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    if settings["gpu"]:
        torch.cuda.init()
        torch.empty(1, device="cuda").fill_(0)
    else:
        import numpy

        from kcontract.dynamic.engines import shim

        shim.zero_fill = False
        numpy.seterr(all="ignore")  # the engines overflow where a device would, without a word
    if not triton.knobs.runtime.interpret:
        active = triton.runtime.driver.active
        _ = active.utils  # on a GPU it is compiled, into the cache that all workers share
        if hasattr(active, "log"):
            cache, records = (os.path.join(settings["folder"], n) for n in ("cache", "events.jsonl"))
            active.log.settings = replace(active.log.settings, cache=cache, records=records)
    folders = {"TRITON_CACHE_DIR": "cache", "TMPDIR": "tmp", "HOME": "", "CUDA_CACHE_PATH": "tmp"}
    for name in ("TRITON_KCONTRACT_RUN", "TRITON_KCONTRACT_SIM"):
        os.environ.pop(name, None)
    os.environ |= {name: os.path.join(settings["folder"], inner) for name, inner in folders.items()}
    tempfile.tempdir = None
    extensions = os.environ.get("TORCH_EXTENSIONS_DIR")
    writable = [settings["folder"], *([extensions] if extensions and os.path.isdir(extensions) else [])]
    return confine.apply(writable, max(settings["limits"]["disk"], settings["room"]))


def main(settings: Mapping[str, Any]) -> None:
    """Serve requests until the grader closes the channel."""
    link = socket.socket(fileno=int(settings["socket"]))
    isolation = prepare(settings)
    worker = Worker(settings)
    channel.send(link, {"isolation": isolation, "torch": torch.__version__})
    while True:
        try:
            request = channel.receive(link)
        except channel.Closed:
            os._exit(0)
        channel.send(link, {"number": request["number"], **worker.answer(request)})
