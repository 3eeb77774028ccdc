"""What the worker sees of a candidate's call: launches, torch operations, global state, whatever it did to inputs.

A candidate shares the process with these records and could forge them, so they only ever accuse, or explain: that a
value is right is judged elsewhere, from bytes. Imported by the worker before the candidate's file is.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

#: Operations that allocate memory and leave it as it is.
_EMPTY = ("aten::empty", "aten::empty_strided", "aten::empty_like", "aten::new_empty", "aten::new_empty_strided",
          "aten::empty_permuted", "aten::resize_")  # fmt: skip


def storage_of(tensor: Any) -> int:
    """What identifies a tensor's storage: its address, 0 for none."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except Exception:
        return 0


@dataclass(slots=True)
class Seen:
    """The record of one call. ``launches`` are Triton launches in order, ``operations`` aten operations with the
    storages they read and made."""

    launches: list[dict[str, Any]] = field(default_factory=list)
    operations: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)


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
                    "main_thread": threading.current_thread() is threading.main_thread(),
                    "pointers": pointers,
                    "numbers": numbers,
                }
            )
        return not self.suppress

    def install(self, triton: Any) -> None:
        """Wrap the launcher of the driver in place: CUDA's, or one of kcontract's on CPU tensors."""
        if bool(triton.knobs.runtime.interpret):
            self._wrap_interpreter()
            return
        from kcontract.dynamic.engines.driver import CpuTensorDriver

        active = triton.runtime.driver._active
        if isinstance(active, CpuTensorDriver):
            self._wrap_simulator(active)
        else:
            self._wrap_cuda()

    def _wrap_interpreter(self) -> None:
        from triton.runtime.interpreter import GridExecutor

        run, note = GridExecutor.__call__, self.note

        def call(executor: Any, *args: Any, **kwargs: Any) -> Any:
            named = dict(zip(executor.arg_names, args, strict=False)) | kwargs
            if note(getattr(executor.fn, "__name__", "kernel"), "", (0, 0, 0), 0, named):
                return run(executor, *args, **kwargs)
            return None

        GridExecutor.__call__ = call

    def _wrap_simulator(self, active: Any) -> None:
        launch, note = active.launch, self.note
        self._simulator, self._checked = active, active.options.checked

        def call(source: Any, metadata: Any, grid: tuple[int, int, int], arguments: Mapping[str, Any]) -> None:
            if note(metadata.name, metadata.hash, grid, 0, arguments):
                launch(source, metadata, grid, arguments)

        active.launch = call

    def _wrap_cuda(self) -> None:
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


class Operations(TorchDispatchMode):  # type: ignore[misc]
    """Records aten operations and fills memory that an operation leaves uninitialised with ``poison``."""

    def __init__(self, seen: Seen, poison: str | None) -> None:
        super().__init__()
        self.record, self.poison = seen, poison

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        name = function.name().split(".")[0]
        if name in _EMPTY:
            if self.poison and isinstance(result, torch.Tensor) and name != "aten::resize_":
                fill(result, self.poison)
        else:
            reads = tuple(storage_of(t) for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor))
            makes = tuple(storage_of(t) for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor))
            self.record.operations.append((name, reads, makes))
        return result


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
    """A list that every autotuner made from now on joins."""
    from triton.runtime.autotuner import Autotuner

    made: list[Any] = []
    init = Autotuner.__init__

    def record(tuner: Any, *args: Any, **kwargs: Any) -> None:
        init(tuner, *args, **kwargs)
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


_WATCHED: dict[str, tuple[Any, tuple[str, ...]]] = {
    "torch": (torch, ("allclose", "equal", "isclose", "manual_seed", "empty", "empty_like", "matmul")),
    "torch.testing": (torch.testing, ("assert_close",)),
    "torch.Tensor": (torch.Tensor, ("cpu", "to", "numpy", "__eq__", "data_ptr", "allclose", "equal")),
    "torch.cuda": (torch.cuda, ("synchronize", "Event", "current_stream", "Stream")),
    "time": (__import__("time"), ("time", "perf_counter", "perf_counter_ns", "monotonic", "sleep")),
}


def functions() -> dict[str, object]:
    """Functions that a checker relies on, by name, as they are now."""
    return {f"{o}.{n}": getattr(where, n, None) for o, (where, names) in _WATCHED.items() for n in names}


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
    return bool((torch.tensor([1e-40]) * 1.0 == 0).item())


#: Events of ``sys.addaudithook`` that no kernel needs, told when the candidate's own file causes them.
_AUDITED = ("open", "os.system", "subprocess.Popen", "os.fork", "os.exec", "socket.connect", "sys._getframe",
            "ctypes.dlopen", "os.kill", "gc.get_objects", "gc.get_referrers", "sys.settrace", "sys.setprofile",
            "pty.spawn", "os.posix_spawn", "shutil.rmtree", "os.remove", "os.rename")  # fmt: skip


def audit(own: Callable[[], str]) -> list[str]:
    """Start the audit; the list fills with what the candidate's own file (``own()``) does. It cannot be stopped."""
    told: list[str] = []

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event not in _AUDITED or len(told) > 64:
            return
        path = own()
        frame = sys._getframe(1) if event != "sys._getframe" else (args[0] if args else None)
        if path and frame is not None and frame.f_code.co_filename == path:
            what = str(args[0])[:200] if args and event != "sys._getframe" else ""
            told.append(f"{event} {what}".strip())

    sys.addaudithook(hook)
    return told


def changes(before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[str]:
    """Names whose entries are no longer the same."""
    for name, value in before.items():
        if after.get(name) is not value and after.get(name) != value:
            yield name
