"""Names of the engines that run candidates. Imports no torch."""

from __future__ import annotations

import os

from kcontract.dynamic.engines import devices
from kcontract.dynamic.engines.simulator import options
from kcontract.errors import UsageError


def engine_parts(name: str) -> tuple[str, str]:
    """(``gpu``, ``sim`` or ``interpreter``; target) of an engine's name.

    Raises ``UsageError`` for an unknown one, and where the environment says of the simulator what it cannot do.
    """
    kind, _, target = name.partition(":")
    if kind not in ("gpu", "sim", "interpreter") or (target and kind != "sim"):
        raise UsageError(f"--engine is {name!r}; write gpu, sim:sm_90 (or another target), or interpreter")
    if kind == "sim":
        options.from_text(os.environ.get(options.VARIABLE, ""))
    return kind, devices.device(target).target.name if target else "sm_90"
