"""Keeps a reference's file from ending, or holding up, the process that judges by it.

The file is trusted; this is against mistakes in it. ``os._exit`` called from it raises instead, and a run that does
not come back is broken off by an alarm (in the main thread; a single long operation of torch ends first).
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

from kcontract.errors import InputError

#: Seconds that one run of a reference, of its inputs or of its file's definitions may take.
SECONDS = 300.0
#: Files of references, from which this process is not to be ended.
_FILES: set[str] = set()

_exit = os._exit


def watch(path: str) -> None:
    """From now on ``os._exit`` in this file raises ``InputError``."""
    _FILES.add(path)
    os._exit = _refuse  # type: ignore[assignment]


def _refuse(status: int) -> None:
    file = sys._getframe(1).f_code.co_filename
    if file not in _FILES:
        _exit(status)
    raise InputError(f"its reference ends the process (os._exit({status})) instead of giving a result", path=file)


@contextlib.contextmanager
def limited(what: str) -> Iterator[None]:
    """Within it, ``InputError`` is raised after ``SECONDS``."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: Any) -> None:
        raise InputError(f"{what} has not come back within {SECONDS:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    left, every = signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, every)
        signal.signal(signal.SIGALRM, before)


def inputs(draw: Callable[[], Any]) -> Callable[[], Any]:
    """The same draw of inputs, limited."""

    def drawn() -> Any:
        with limited("drawing the inputs"):
            return draw()

    return drawn


def reference(make: Callable[[], Any]) -> Callable[[], Any]:
    """A maker of references whose calls are limited; after one that did not come back the others fail at once."""
    late: list[str] = []

    def run(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if late:
            raise InputError(late[0])
        try:
            with limited("the reference"):
                return call(*args, **kwargs)
        except InputError as error:
            late.append(str(error))
            raise

    def made() -> Any:
        import torch

        with limited("making the reference"):
            found = make()
        if not isinstance(found, torch.nn.Module):
            return functools.wraps(found)(functools.partial(run, found))
        original = type(found).forward

        @functools.wraps(original)
        def forward(module: Any, *args: Any, **kwargs: Any) -> Any:
            return run(functools.partial(original, module), *args, **kwargs)

        found.forward = types.MethodType(forward, found)  # a method of its own: it is copied with the module
        return found

    return made
