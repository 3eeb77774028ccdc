"""How the simulator runs, and the environment variable that says it. Imports neither numpy nor Triton."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from kcontract.errors import UsageError

VARIABLE = "TRITON_KCONTRACT_SIM"
LANES = 8192
ACCUMULATE = ("fp32", "hardware")


@dataclass(frozen=True)
class Options:
    """``checked`` turns the diagnoses on, ``seed`` permutes atomics (None: thread order), ``accumulate`` chooses how
    tensor cores sum (``fp32`` or ``hardware``), ``lanes`` bounds threads simulated at once.

    ``patience`` is how long, in seconds by a fixed estimate of the work, the threads simulated at once may run on
    without changing any memory before that counts as an endless loop, and a thirtieth of how long they may run at all.
    """

    checked: bool = False
    seed: int | None = None
    accumulate: str = "fp32"
    lanes: int = LANES
    patience: float = 20.0


def from_text(text: str) -> Options:
    """The options that a value of the variable names: words separated by commas. Raises ``UsageError``."""
    options = Options()
    for word in (part.strip() for part in text.split(",") if part.strip()):
        name, _, value = word.partition("=")
        if word in ("fast", "checked"):
            options = replace(options, checked=word == "checked")
        elif name == "patience" and _seconds(value):
            options = replace(options, patience=float(value))
        else:
            raise UsageError(
                f"{VARIABLE} is {text!r}, of which {word!r} is not known; write fast, checked, patience=SECONDS, or "
                "several of them separated by commas"
            )
    return options


def _seconds(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False
