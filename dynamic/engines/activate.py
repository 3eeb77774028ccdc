"""Puts an engine in place at the start of a Python process of the program, before its own code imports Triton.

``site/sitecustomize.py`` calls ``start``. Nothing heavy is imported here: the driver is installed when the program's
import of ``triton`` has finished, the device shim when that of ``torch`` has, and a process that imports neither pays
for a look at one environment variable.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from types import ModuleType, TracebackType

from kcontract._boot import Waiter
from kcontract.dynamic.engines import records
from kcontract.errors import KContractError


def start() -> None:
    """Install the engine named by the environment."""
    settings = records.Settings.from_environment()
    if settings is None:
        return
    chosen = settings

    def on_triton(module: ModuleType) -> None:
        importlib.import_module(f"kcontract.dynamic.engines.{chosen.engine}").install(chosen)

    def on_torch(module: ModuleType) -> None:
        from kcontract.dynamic.engines import devices, shim

        shim.install(devices.device(chosen.target))

    sys.meta_path.insert(0, Waiter({"triton": on_triton, "torch": on_torch}))
    _record_failures(settings.records)


def _record_failures(path: str) -> None:
    """Note the exception that ends the program, so that the summary can say it in a sentence; of what kcontract raises
    on purpose show the program's own frames, unless Triton's switch for full tracebacks is on."""
    show = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        frames = _own(traceback.extract_tb(trace))
        place = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        records.write(path, "failure", error=records.sentence(error), place=place, missing=missing)
        if not isinstance(error, KContractError) or _wants_all():
            show(kind, error, trace)
            return
        told = traceback.TracebackException(kind, error, None)
        told.stack = traceback.StackSummary.from_list(frames)
        print("".join(told.format()), end="", file=sys.stderr)

    sys.excepthook = hook


def _own(frames: traceback.StackSummary) -> list[traceback.FrameSummary]:
    """The frames of the program: without those of kcontract and Triton, and what Triton generates for a launch."""
    packages = [sys.modules[name].__file__ for name in ("kcontract", "triton") if name in sys.modules]
    folders = tuple(os.path.join(os.path.dirname(file), "") for file in packages if file)
    libraries = [frame.filename.startswith(folders) for frame in frames]
    inside = libraries.index(True) if any(libraries) else len(frames)
    own = [
        frame
        for k, frame in enumerate(frames)
        if not libraries[k] and (k < inside or not frame.filename.startswith("<"))
    ]
    return own or list(frames)


def _wants_all() -> bool:
    triton = sys.modules.get("triton")
    return triton is not None and bool(triton.knobs.compilation.front_end_debugging)
