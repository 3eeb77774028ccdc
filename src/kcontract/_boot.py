"""Waits for Triton. Python's start runs ``start()`` when ``TRITON_KCONTRACT`` is set (see ``kcontract.pth``).

It imports nothing that Python has not loaded by then, neither Triton nor torch: it leaves a finder that runs a
function of ours right after a module it waits for is first imported, and takes itself away when none is left.
Nothing here may break a program: what goes wrong is one sentence on stderr.
"""

from __future__ import annotations

import atexit
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

RELAY = "TRITON_KCONTRACT_RELAY"


class Waiter:
    """Meta path finder that finds nothing itself: it wraps the loader of the modules waited for."""

    def __init__(self, waiting: dict[str, Callable[[ModuleType], None]]) -> None:
        self.waiting = waiting

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self.waiting:
            return None
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = Loader(spec.loader, self)  # type: ignore[assignment]
                return spec
        return None

    def arrived(self, module: ModuleType) -> None:
        """Run what waits for this module, once."""
        function = self.waiting.pop(module.__name__, None)
        if not self.waiting and self in sys.meta_path:
            sys.meta_path.remove(self)
        try:
            if function is not None:
                function(module)
        except Exception as error:
            _complain(error)


class Loader:
    """Stands in for a module's own loader, which the module gets back before its code runs."""

    def __init__(self, inner: Any, waiter: Waiter) -> None:
        self.inner, self.waiter = inner, waiter

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self.inner
        if module.__spec__ is not None:
            module.__spec__.loader = self.inner
        self.inner.exec_module(module)
        self.waiter.arrived(module)


def start() -> None:
    """Name a relay folder for mute child processes, make the report's path absolute, and wait. Idempotent."""
    if any(isinstance(finder, Waiter) for finder in sys.meta_path):
        return
    try:
        if not is_mute() or RELAY not in os.environ:
            name = f"kcontract-{os.getpid()}-{os.urandom(8).hex()}"
            os.environ[RELAY] = folder = os.path.join(os.environ.get("TMPDIR") or "/tmp", name)
            atexit.register(_finish, folder, os.getpid())
        if report := os.environ.get("TRITON_KCONTRACT_REPORT"):
            try:  # noqa: SIM105 (contextlib is not loaded yet)
                os.environ["TRITON_KCONTRACT_REPORT"] = os.path.abspath(report)
            except OSError:  # the working directory is gone; writing the report will say so
                pass
        waiter = Waiter(
            {
                "triton.knobs": _on_knobs,
                "triton.runtime.interpreter": _on_interpreter,
                "torch._inductor.runtime.triton_heuristics": _on_inductor,
            }
        )
        sys.meta_path.insert(0, waiter)
        for name in [name for name in waiter.waiting if name in sys.modules]:
            waiter.arrived(sys.modules[name])
    except Exception as error:
        _complain(error)


def is_mute(descriptor: int = 2) -> bool:
    """Whether what is written there is lost: closed, or the null device."""
    try:
        return os.fstat(descriptor).st_rdev == os.stat(os.devnull).st_rdev
    except OSError:
        return True


def _on_knobs(module: ModuleType) -> None:
    from kcontract.hook import install

    install(module)


def _on_interpreter(module: ModuleType) -> None:
    from kcontract.hook import interpreted

    interpreted()


def _on_inductor(module: ModuleType) -> None:
    from kcontract.hook.inductor import install

    install(module)


def _finish(folder: str, owner: int) -> None:
    if os.getpid() == owner and os.path.isdir(folder):
        from kcontract.hook.console import finish

        finish(folder)


def _complain(error: Exception) -> None:
    from contextlib import suppress

    with suppress(OSError, ValueError, AttributeError):  # stderr may be gone
        print(f"kcontract: not active: {type(error).__name__}: {error}", file=sys.stderr)
