"""Checks what Triton compiles, in the process that compiles it.

``install`` is called when ``triton.knobs`` has been imported in a process that was started with ``TRITON_KCONTRACT``
(see ``kcontract._boot``). From then on a compile, and a hit in Triton's cache on disk, ends in ``Observer.compiled``;
kernels that torch restores from its own caches come through ``kcontract.hook.inductor``. A hit in the process's own
cache was looked at before. Nothing is written into a cache, and no cache key changes.
"""

from __future__ import annotations

import functools
import os
from types import ModuleType
from typing import TYPE_CHECKING

from kcontract.settings import Mode, Settings

if TYPE_CHECKING:
    from kcontract.hook.observer import Observer


@functools.cache
def active() -> Observer | None:
    """This process's observer, or None where the settings say off."""
    settings = Settings.load()
    if settings.mode is Mode.OFF:
        return None
    from kcontract.hook.observer import Observer

    return Observer(settings)


def install(knobs: ModuleType) -> None:
    """Put the observer on ``triton.knobs.compilation.listener``, beside whatever the user puts there."""
    if watcher := active():
        from kcontract.hook.chain import attach

        attach(knobs.compilation, "listener", watcher.compiled)


def interpreted() -> None:
    """Say that Triton's interpreter compiles nothing; called when Triton imports it."""
    if os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "on", "true", "yes", "y") and (watcher := active()):
        watcher.console.notice(
            "TRITON_INTERPRET is set: Triton runs its kernels in Python and compiles nothing, so nothing is checked"
        )
