"""What the worker sees of a candidate's call: launches, torch operations, global state, whatever it did to inputs.

A candidate shares the process with these records and could forge them, so they only ever accuse, or explain: that a
value is right is judged elsewhere, from bytes. Imported by the worker before the candidate's file is.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten

from kcontract.dynamic.sandbox import channel

#: Operations that allocate memory and leave it as it is.
_EMPTY = ("aten::empty", "aten::empty_strided", "aten::empty_like", "aten::new_empty", "aten::new_empty_strided",
          "aten::empty_permuted", "aten::resize_")  # fmt: skip


#: Operations that allocate memory and fill it with one value.
_FILLED = tuple(f"aten::{start}{what}{end}" for what in ("zeros", "ones", "full")
                for start, end in (("", ""), ("", "_like"), ("new_", "")))  # fmt: skip
#: Bytes of the border before and after a guarded tensor.
BORDER = 4096

#: Results of operations that are kept until the call's end.
_REMEMBERED = 32


def storage_of(tensor: Any) -> int:
    """What identifies a tensor's storage: its address, 0 for none."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except Exception:
        return 0


@dataclass(slots=True)
class Seen:
    """The record of one call. ``launches`` are Triton launches in order, ``operations`` aten operations with the
    storages they read and made (any allocation is ``aten::empty``), ``sizes`` the elements each made, ``casts`` changes
    of a floating dtype (from, to, storage read); ``made`` are the last floating results themselves, by operation."""

    launches: list[dict[str, Any]] = field(default_factory=list)
    operations: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    casts: list[tuple[str, str, int]] = field(default_factory=list)
    made: dict[int, Any] = field(default_factory=dict)

    def twins(self, outputs: Sequence[Any]) -> list[tuple[int, int]]:
        """(operation, output) where an operation made, in a storage of its own, the very values of an output."""
        found = []
        for k, out in enumerate(outputs):
            if type(out) is not torch.Tensor or out.numel() < 2 or out.device.type == "meta":
                continue
            for at, made in self.made.items():
                alike = made.shape == out.shape and made.dtype == out.dtype and made.device == out.device
                if alike and storage_of(made) != storage_of(out) and torch.equal(made, out):
                    found.append((at, k))
        return found


class Launches:
    """Hooks into Triton's launchers once ``triton`` is there. ``suppress`` leaves launches out (ablation)."""

    def __init__(self) -> None:
        self.seen: Seen | None = None
        self.suppress = False
        self._simulator: Any = None
        self._checked = False

    def simulate(self, order: int | None, checked: bool) -> None:
        """How the simulator runs from here on: the seed of the order of atomics, diagnoses on or off."""
        if self._simulator is not None:
            self._simulator.options = replace(self._simulator.options, seed=order, checked=checked or self._checked)

    def note(self, name: str, key: str, grid: tuple[int, int, int], stream: int, arguments: Mapping[str, Any]) -> bool:
        """Record a launch; whether it shall happen."""
        if self.seen is not None:
            pointers = {n: storage_of(v) for n, v in arguments.items() if isinstance(v, torch.Tensor)}
            numbers = {n: v for n, v in arguments.items() if type(v) in (int, float, bool)}
            self.seen.launches.append(
                {
                    "kernel": name,
                    "key": key,
                    "grid": [int(g) for g in grid],
                    "stream": int(stream),
                    "after": len(self.seen.operations),
                    "main_thread": threading.current_thread() is threading.main_thread(),
                    "pointers": pointers,
                    "numbers": numbers,
                }
            )
        return not self.suppress

    def install(self, triton: Any) -> Any:
        """Wrap the launcher of the driver in place: CUDA's, or one of kcontract's on CPU tensors. What holds the wrap
        comes back."""
        if bool(triton.knobs.runtime.interpret):
            return self._wrap_interpreter()
        from kcontract.dynamic.engines.driver import CpuTensorDriver

        active = triton.runtime.driver._active
        if isinstance(active, CpuTensorDriver):
            return self._wrap_simulator(active)
        return self._wrap_cuda()

    def _wrap_interpreter(self) -> Any:
        from triton.runtime.interpreter import GridExecutor

        run, note = GridExecutor.__call__, self.note

        def call(executor: Any, *args: Any, **kwargs: Any) -> Any:
            named = dict(zip(executor.arg_names, args, strict=False)) | kwargs
            if note(getattr(executor.fn, "__name__", "kernel"), "", (0, 0, 0), 0, named):
                with _disable_current_modes():  # the interpreter works with torch itself
                    return run(executor, *args, **kwargs)
            return None

        GridExecutor.__call__ = call
        return GridExecutor

    def _wrap_simulator(self, active: Any) -> Any:
        launch, note = active.launch, self.note
        self._simulator, self._checked = active, active.options.checked

        def call(source: Any, metadata: Any, grid: tuple[int, int, int], arguments: Mapping[str, Any]) -> None:
            if note(metadata.name, metadata.hash, grid, 0, arguments):
                launch(source, metadata, grid, arguments)

        active.launch = call
        return active

    def _wrap_cuda(self) -> Any:
        from triton.backends.nvidia.driver import CudaLauncher

        make, run, note = CudaLauncher.__init__, CudaLauncher.__call__, self.note

        def init(launcher: Any, src: Any, metadata: Any) -> None:
            make(launcher, src, metadata)
            launcher.kcontract = (getattr(src.fn, "arg_names", ()), metadata)

        def call(launcher: Any, x: int, y: int, z: int, stream: int, function: int, *rest: Any) -> Any:
            names, metadata = launcher.kcontract
            arguments = dict(zip(names, rest[4:], strict=False))
            if note(metadata.name, metadata.hash, (x, y, z), stream, arguments):
                return run(launcher, x, y, z, stream, function, *rest)
            return None

        CudaLauncher.__init__, CudaLauncher.__call__ = init, call
        return CudaLauncher


class Operations(TorchDispatchMode):  # type: ignore[misc]
    """Records aten operations and fills memory that an operation leaves uninitialised with ``poison``. With
    ``border``, what is allocated lies between two borders so filled, kept in ``guarded``."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch's switch: else the first use imports all of torch._dynamo, for code that is compiled

    def __init__(self, seen: Seen, poison: str | None, border: str = "") -> None:
        super().__init__()
        self.record, self.poison, self.border = seen, poison, border
        self.guarded: list[Any] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        name = function.name().split(".")[0]
        if self.border and name in (*_EMPTY[:-1], *_FILLED):
            result = self._bordered(result)
        record, results = self.record, [t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor)]
        makes = tuple(storage_of(t) for t in results)
        if name in _EMPTY:
            if self.poison and results and name != "aten::resize_":
                fill(result, self.poison)
            record.operations.append(("aten::empty", (), makes))
        else:
            given = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)]
            record.operations.append((name, tuple(storage_of(t) for t in given), makes))
            if name == "aten::_to_copy" and given[0].is_floating_point() and given[0].dtype != result.dtype:
                names = [str(t.dtype).removeprefix("torch.") for t in (given[0], result)]
                record.casts.append((names[0], names[1], storage_of(given[0])))
            if results and results[0].is_floating_point():
                record.made[len(record.operations) - 1] = results[0].detach()
                while len(record.made) > _REMEMBERED:
                    del record.made[next(iter(record.made))]
        record.sizes.append(sum(t.numel() for t in results))
        return result

    def _bordered(self, made: Any) -> Any:
        """The same tensor between two borders; itself where it is not dense, or on no device."""
        if type(made) is not torch.Tensor or not made.numel() or made.device.type == "meta":
            return made
        if made.layout is not torch.strided or made.numel() != channel.extent_of(made.shape, made.stride()):
            return made
        inner, around = bordered(made.as_strided((made.numel(),), (1,)), made.device, self.border)
        self.guarded.append(around)
        return inner.as_strided(made.shape, made.stride())


def bordered(flat: Any, device: Any, pattern: str) -> tuple[Any, Any]:
    """A copy of a tensor of one dimension on the device, between two borders; and all of it."""
    pad = BORDER // flat.dtype.itemsize
    around = torch.empty(flat.numel() + 2 * pad, dtype=flat.dtype, device=device)
    fill(around, pattern)
    inner = around[pad : pad + flat.numel()]
    inner.copy_(flat)
    return inner, around


def overrun(around: Any, pattern: str) -> bool:
    """Whether the borders of a guarded tensor are no longer as they were filled."""
    pad = BORDER // around.dtype.itemsize
    fresh = torch.empty(pad, dtype=around.dtype, device=around.device)
    fill(fresh, pattern)
    return any(
        not torch.equal(part.view(torch.uint8), fresh.view(torch.uint8)) for part in (around[:pad], around[-pad:])
    )


def fill(tensor: Any, poison: str) -> None:
    """Fill with a pattern: ``nan`` (for integers their largest value), ``finite`` (-2.5; for integers -3 or 1), or
    ``zero``, which is what memory holds that nobody has used before."""
    if tensor.numel() == 0:
        return
    if poison == "zero":
        tensor.zero_()
        return
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.fill_(float("nan") if poison == "nan" else -2.5)
    elif tensor.dtype is torch.bool:
        tensor.fill_(poison == "nan")
    else:
        info = torch.iinfo(tensor.dtype)
        tensor.fill_(info.max if poison == "nan" else (-3 if info.min else 1))


def autotuners() -> list[Any]:
    """A list that every autotuner made from now on joins. In Triton's interpreter, which has no clock, each run of a
    configuration takes 1 ms."""
    from triton import knobs
    from triton.runtime.autotuner import Autotuner

    made: list[Any] = []
    init = Autotuner.__init__

    def once(call: Callable[[], object], **options: object) -> list[float]:
        call()
        return [1.0, 1.0, 1.0]

    def record(tuner: Any, *args: Any, **kwargs: Any) -> None:
        init(tuner, *args, **kwargs)
        if knobs.runtime.interpret:
            tuner._do_bench = once
        made.append(tuner)

    Autotuner.__init__ = record
    return made


def custom_nodes(outputs: Sequence[Any]) -> list[str]:
    """Names of the ``torch.autograd.Function`` classes in the graph that the outputs carry."""
    waiting, seen, names = [t.grad_fn for t in outputs], set(), []
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting += [into for into, _ in node.next_functions]
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            names.append(type(node).__name__)
    return sorted(names)


def flags() -> dict[str, str]:
    """Global switches of torch that change what a computation gives."""
    backends = torch.backends
    return {
        "default dtype": str(torch.get_default_dtype()),
        "matmul precision": torch.get_float32_matmul_precision(),
        "allow_tf32 (matmul)": str(backends.cuda.matmul.allow_tf32),
        "allow_tf32 (cudnn)": str(backends.cudnn.allow_tf32),
        "reduced precision reduction (fp16)": str(backends.cuda.matmul.allow_fp16_reduced_precision_reduction),
        "reduced precision reduction (bf16)": str(backends.cuda.matmul.allow_bf16_reduced_precision_reduction),
        "cudnn.benchmark": str(backends.cudnn.benchmark),
        "cudnn.deterministic": str(backends.cudnn.deterministic),
        "cudnn.enabled": str(backends.cudnn.enabled),
        "deterministic algorithms": str(torch.are_deterministic_algorithms_enabled()),
        "grad mode": str(torch.is_grad_enabled()),
        "flush denormal": str(_flushes()),
    }


def _flushes() -> bool:
    return bool((torch.tensor([1e-40], dtype=torch.float32) * 1.0 == 0).item())


#: Audit events that no kernel needs, and what the candidate did.
_DEEDS = {
    "sys._getframe": "walks the stack of its caller", "sys._current_frames": "walks the stack of its caller",
    "sys.settrace": "traces its caller", "sys.setprofile": "traces its caller",
    "gc.get_objects": "searches all live objects", "gc.get_referrers": "searches all live objects",
    "gc.get_referents": "searches all live objects", "sys.addaudithook": "adds an audit hook",
    "socket.connect": "opens a network connection", "socket.bind": "opens a network connection",
    "socket.getaddrinfo": "opens a network connection", "socket.__new__": "opens a socket", "os.kill": "sends a signal",
    "_thread.start_new_thread": "starts a thread", "_thread.start_joinable_thread": "starts a thread",
}  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_STANDARD = os.path.dirname(os.__file__)
#: Of the standard library, modules that walk the stack for their caller (others do it for themselves).
_WALKERS = tuple(os.path.join(_STANDARD, name) for name in ("inspect.py", "traceback.py"))


def audit(own: Callable[[], str]) -> list[str]:
    """Start the audit; the list fills with what the candidate's own file (``own()``) does. It cannot be stopped.

    An event is the candidate's where its file, or the standard library called from it, causes it: Triton and torch
    open files and look at frames for their own reasons.
    """
    told: list[str] = []
    looking: set[int] = set()
    getframe = sys._getframe

    def mine(frame: Any, through: Callable[[str], bool]) -> bool:
        while frame is not None and through(frame.f_code.co_filename):
            frame = frame.f_back
        return frame is not None and frame.f_code.co_filename == own()

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event not in _DEEDS and event not in ("open", "import"):
            return
        thread = threading.get_ident()
        if len(told) >= 64 or not own() or thread in looking:
            return
        looking.add(thread)
        try:
            look(event, args)
        finally:
            looking.discard(thread)

    def look(event: str, args: tuple[Any, ...]) -> None:
        if event in _DEEDS:
            if mine(getframe(2), _walker if event.startswith("sys._") else _standard):
                told.append(_DEEDS[event])
        elif event == "import":
            if str(args[0]).startswith("kcontract.dynamic") and mine(getframe(2), _importing):
                told.append(f"imports {args[0]}, which is the checker")
        elif isinstance(args[0], (str, bytes)) and mine(getframe(2), _standard):
            path = os.path.realpath(os.fsdecode(args[0]))
            if path.startswith(_CHECKER):
                told.append(f"opens {os.path.basename(path)}, a file of the checker")
            elif path.startswith("/proc/") and path.split("/")[2] != str(os.getpid()) and path.split("/")[2].isdigit():
                told.append("looks into another process")
            elif "site-packages" in path and isinstance(args[2], int) and args[2] & _WRITING:
                told.append(f"writes to {os.path.basename(path)}, a file of an installed package")

    sys.addaudithook(hook)
    _watch_environment(lambda: mine(getframe(2), _standard), told)
    return told


_CHECKER = (os.path.realpath(os.path.dirname(os.path.dirname(__file__))) + os.sep,)


def _standard(file: str) -> bool:
    frozen = file.startswith("<frozen ") and not file.startswith("<frozen importlib")
    return frozen or (file.startswith(_STANDARD) and "site-packages" not in file)


def _walker(file: str) -> bool:
    return file in _WALKERS


def _importing(file: str) -> bool:
    return file.startswith("<frozen importlib") or _standard(file)


def _watch_environment(mine: Callable[[], bool], told: list[str]) -> None:
    """Tell when the candidate asks the environment whether a checker or a test is running."""
    environment: Any = type(os.environ)

    class Environment(environment):  # type: ignore[misc]
        def __getitem__(self, name: str) -> str:
            if str(name).startswith(("TRITON_KCONTRACT", "KCONTRACT", "PYTEST_")) and mine():
                told.append(f"looks for {name} in the environment")
            return super().__getitem__(name)  # type: ignore[no-any-return]

    os.environ.__class__ = Environment


def changes(before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[str]:
    """Names whose entries are no longer the same."""
    for name, value in before.items():
        if after.get(name) is not value and after.get(name) != value:
            yield name
