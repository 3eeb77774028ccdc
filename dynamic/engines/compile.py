"""The engine ``compile``: every launch and every autotune configuration is compiled for the target, nothing is run.

Installed in the program's process by ``activate``. Each compile happens first in a forked child that fills Triton's
cache, and then, as a hit, in the program: where the compiler aborts the process (LLVM does, on Gluon for a target
it was not written for) only the child dies, and the launch is left out with a sentence. Checking is not done here:
what was compiled and launched is recorded, and ``session`` reads it after the program has ended, when the launches are
known. Imports Triton, so it is itself imported only after Triton.
"""

from __future__ import annotations

import contextlib
import contextvars
import io
import os
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.runtime.autotuner import Autotuner, OutOfResources

from kcontract.dynamic.engines import devices, records
from kcontract.dynamic.engines.driver import CpuTensorDriver
from kcontract.errors import KContractError

#: Exit status of a child in which the compiler raised an exception; LLVM itself may end a process with 1.
_RAISED = 113
#: True while an autotuner tries a configuration.
_candidate: contextvars.ContextVar[bool] = contextvars.ContextVar("candidate", default=False)


class CompilerDied(KContractError):
    """Raised at a configuration that killed the compiler, so that its autotuner goes on with the others."""


def install(settings: records.Settings) -> None:
    """Make the compile-only driver Triton's active one. Once a process; children by fork keep it."""
    log = _Log(settings)
    log.write("process", triton=triton.__version__, interpreted=bool(triton.knobs.runtime.interpret))
    driver = _Driver(devices.device(settings.target), log)
    triton.runtime.driver.set_active(driver)
    triton.runtime.driver._default = driver
    _wrap_compile(log)
    _wrap_load(log)
    _wrap_tuner(log, settings)


class _Log:
    """Writes events; launches that say nothing new are written once."""

    def __init__(self, settings: records.Settings) -> None:
        self.settings = settings
        self._seen: set[tuple[object, ...]] = set()

    def write(self, kind: str, **fields: object) -> None:
        records.write(self.settings.records, kind, **fields)

    def once(self, kind: str, key: tuple[object, ...], **fields: object) -> None:
        if (kind, *key) not in self._seen:
            self._seen.add((kind, *key))
            self.write(kind, **fields)


class _Driver(CpuTensorDriver):
    def __init__(self, device: devices.Device, log: _Log) -> None:
        super().__init__(device)
        self.log = log

    def launch(self, source: Any, metadata: Any, grid: tuple[int, int, int], arguments: Mapping[str, Any]) -> None:
        integers = {
            name: value
            for name, value in arguments.items()
            if source.signature.get(name) != "constexpr" and type(value) is int
        }
        key = (metadata.hash, grid, tuple(integers.items()))
        self.log.once("launch", key, hash=metadata.hash, grid=grid, arguments=integers, candidate=_candidate.get())


def _wrap_compile(log: _Log) -> None:
    original = triton.compiler.compile

    def compile_(src: Any, target: Any = None, options: Any = None, **more: Any) -> Any:
        start = time.perf_counter()
        name = getattr(src, "name", str(src))
        child = _in_child(lambda: original(src, target=target, options=options, **more))
        if child.died:
            log.write("failed", kernel=name, error=child.died, aborted=True, candidate=_candidate.get())
            if _candidate.get():
                raise CompilerDied(child.died)
            return _LeftOut(name)
        # ptxas errors print the whole PTX
        with contextlib.redirect_stdout(io.StringIO()) if child.raised else contextlib.nullcontext():
            try:
                kernel = original(src, target=target, options=options, **more)
            except Exception as error:
                reason = records.sentence(error)
                if isinstance(error, RuntimeError) and (told := _first(child.output)):  # MLIR tells stderr only
                    reason += f" ({told})"
                log.write("failed", kernel=name, error=reason, aborted=False, candidate=_candidate.get())
                raise
        sys.stderr.write(child.output)
        log.once(
            "compile",
            (kernel.hash,),
            kernel=kernel.name,
            hash=kernel.hash,
            entry=_kept(kernel, Path(log.settings.cache)),
            seconds=round(time.perf_counter() - start, 4),
            candidate=_candidate.get(),
        )
        return kernel

    for module in (triton, triton.compiler, triton.compiler.compiler):
        module.compile = compile_


@dataclass(frozen=True, slots=True)
class _Child:
    """How a child ended: the sentence when the compiler ended it, whether it raised, what was written meanwhile."""

    died: str
    raised: bool
    output: str


def _in_child(call: Callable[[], object]) -> _Child:
    """Run ``call`` in a forked child. An exception stays there: the caller, who runs the same call, meets it itself."""
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as written:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads: the child only compiles
            pid = os.fork()
        if pid == 0:
            os.dup2(written.fileno(), 1)
            os.dup2(written.fileno(), 2)
            ended = _RAISED
            try:
                triton.knobs.compilation.listener = None  # the program's own one is called in the program
                call()
                ended = 0
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(ended)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        written.seek(0)
        output = written.read().decode(errors="replace")
    if status in (0, _RAISED):
        return _Child("", status == _RAISED, output)
    how = f"died of {signal.Signals(-status).name}" if status < 0 else f"ended the process with status {status}"
    return _Child(f"the compiler {how}: {_first(output) or 'no message'}", False, output)


def _first(output: str) -> str:
    """The first line that says ``error:``, or the first at all."""
    lines = [line.strip()[:300] for line in output.splitlines() if line.strip()]
    return next((line for line in lines if "error:" in line.lower()), "".join(lines[:1]))


def _kept(kernel: Any, cache: Path) -> str:
    """Name of the kernel's folder in ``cache``; copied there when the program chose another cache folder."""
    folder = Path(next(iter(kernel.metadata_group.values()))).parent
    if folder.parent != cache and not (cache / folder.name).exists():
        shutil.copytree(folder, cache / folder.name)
    return folder.name


class _LeftOut:
    """Stands for a kernel that could not be compiled because the compiler died: launching it does nothing."""

    function = packed_metadata = None
    n_regs = n_spills = 0

    def __init__(self, name: str) -> None:
        self.name = name

    def launch_metadata(self, *args: object) -> None:
        """There is none."""

    def run(self, *args: object) -> None:
        """Nothing to run."""

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return self.run


def _wrap_load(log: _Log) -> None:
    """Note a kernel that Triton refuses to load because it is over the device's limits."""
    original = triton.compiler.compiler.CompiledKernel._init_handles

    def init_handles(self: Any) -> None:
        try:
            original(self)
        except OutOfResources as error:
            log.once(
                "refused",
                (self.hash, _candidate.get()),
                hash=self.hash,
                error=records.sentence(error),
                candidate=_candidate.get(),
            )
            raise

    triton.compiler.compiler.CompiledKernel._init_handles = init_handles


@contextlib.contextmanager
def _as_candidate() -> Iterator[None]:
    token = _candidate.set(True)
    try:
        yield
    finally:
        _candidate.reset(token)


def _wrap_tuner(log: _Log, settings: records.Settings) -> None:
    """Every configuration the tuner would try is compiled once, those that fail are passed over."""
    prune = Autotuner.prune_configs

    def prune_configs(self: Any, kwargs: dict[str, Any]) -> list[Any]:
        offered = list(prune(self, kwargs))
        wanted = offered[: settings.max_configs]
        wanted = wanted[settings.shard :: settings.shards] or wanted[:1]
        name = self.base_fn.__name__
        log.once("tuner", (name, len(offered)), kernel=name, offered=len(offered), compiled=len(wanted))
        return wanted

    def once(call: Callable[[], object], **options: object) -> list[float]:
        with _as_candidate():
            try:
                call()
            except Exception:  # recorded where it was raised; if every configuration fails, the launch itself raises
                return [float("inf")] * 3
        return [1.0] * 3

    def check_disk_cache(self: Any, key: object, configs: object, bench: Callable[[], object]) -> bool:
        bench()  # neither believes timings of another run nor leaves the ones made up here
        return False

    Autotuner.prune_configs = prune_configs
    Autotuner.check_disk_cache = check_disk_cache
    Autotuner.do_bench = property(lambda self: once)
