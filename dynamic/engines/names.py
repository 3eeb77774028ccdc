"""Names of the engines that run candidates. Imports no torch."""

from __future__ import annotations

from kcontract.dynamic.engines import devices
from kcontract.errors import UsageError


def engine_parts(name: str) -> tuple[str, str]:
    """(``gpu``, ``sim`` or ``interpreter``; target) of an engine's name. Raises ``UsageError`` for an unknown one."""
    kind, _, target = name.partition(":")
    if kind not in ("gpu", "sim", "interpreter") or (target and kind != "sim"):
        raise UsageError(f"--engine is {name!r}; write gpu, sim:sm_90 (or another target), or interpreter")
    return kind, devices.device(target).target.name if target else "sm_90"
