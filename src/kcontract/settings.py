"""The settings of kcontract, read in one place. This docstring is the source of their page.

Each has an environment variable and a key under ``[tool.kcontract]`` in the nearest ``pyproject.toml`` (searched
upward from the working directory); the variable wins.

``TRITON_KCONTRACT``, ``mode``
    ``0`` (or ``off``, ``false``, empty): do nothing. ``warn``: check each kernel that is compiled, warn of violations
    and hazards. ``error``: also stop the compile at a violation. ``1`` (or ``true``, ``on``): as the key in
    ``pyproject.toml`` says, ``warn`` without one. Whether kcontract is active is decided when Python starts, from
    the variable alone.
``TRITON_KCONTRACT_REPORT``, ``report``
    File that findings and verdicts are appended to, by any number of processes: ``NAME.jsonl`` (a JSON object a
    line) or ``NAME.sarif`` (SARIF 2.1.0, findings only). A relative path counts from the working directory that
    Python started in, in ``pyproject.toml`` from that file's folder.
``TRITON_KCONTRACT_SELECT``, ``select``
    Rules or gates to check, separated by commas (in TOML a list). Empty: all. ``kcontract check`` and ``kcontract
    run`` follow this and the next one unless ``--gate`` or ``--rule`` is given; the report belongs to the variable.
``TRITON_KCONTRACT_IGNORE``, ``ignore``
    Rules or gates to leave out.
``TRITON_KCONTRACT_DEEP``, ``deep``
    ``1``: lift the time limits of the solver.
``TRITON_KCONTRACT_COLOR``, ``color``
    ``auto`` (colour where stderr is a terminal and ``NO_COLOR`` is not set), ``always`` or ``never``.

``TRITON_KCONTRACT_RELAY`` is set by kcontract itself: the folder through which child processes without a stderr of
their own (torch's compile workers) hand their findings to the parent.
"""

from __future__ import annotations

import enum
import importlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PREFIX = "TRITON_KCONTRACT"
_KEYS = ("mode", "report", "select", "ignore", "deep", "color")


class Mode(str, enum.Enum):
    """What kcontract does at a compile."""

    OFF = "off"
    WARN = "warn"
    ERROR = "error"


_SWITCH = ("1", "on", "true")
_MODES = {
    **dict.fromkeys(("", "0", "off", "false"), Mode.OFF),
    **dict.fromkeys(("1", "warn", "true", "on"), Mode.WARN),
    "error": Mode.ERROR,
}
_FLAGS = {**dict.fromkeys(("", "0", "off", "false", "no"), False), **dict.fromkeys(("1", "on", "true", "yes"), True)}
_COLORS = ("auto", "always", "never")


@dataclass(frozen=True, slots=True)
class Settings:
    """One value a setting. ``problems`` holds a sentence for each value that could not be used as given."""

    mode: Mode = Mode.OFF
    report: Path | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    deep: bool = False
    color: str = "auto"
    problems: tuple[str, ...] = ()

    @staticmethod
    def load(environ: Mapping[str, str] = os.environ, folder: Path | None = None) -> Settings:
        """Read the environment, and the ``pyproject.toml`` nearest to ``folder`` (default: the working directory).

        Never raises: what cannot be used becomes a sentence in ``problems`` and the default.
        """
        problems: list[str] = []
        table, base = _pyproject(folder, problems)
        values: dict[str, tuple[Any, str]] = {
            key: (value, f"'{key}' under [tool.kcontract]") for key, value in table.items() if key in _KEYS
        }
        problems += [
            f"[tool.kcontract] has no setting '{key}'; the settings are {', '.join(_KEYS)}"
            for key in table
            if key not in _KEYS
        ]
        for key in _KEYS:
            variable = PREFIX if key == "mode" else f"{PREFIX}_{key.upper()}"
            if key == "mode" and values.get("mode", ("",))[0] in ("warn", "error") and environ.get(PREFIX) in _SWITCH:
                continue
            if variable in environ:
                values[key] = (environ[variable], variable)
                base = Path() if key == "report" else base
        mode, report, select, ignore, deep, color = (values.get(key, (None, "")) for key in _KEYS)
        return Settings(
            mode=_choice(mode, _MODES, Mode.OFF, Mode.WARN, "0, 1 or warn, and error; taken as warn", problems),
            report=_report(report, base, problems),
            select=_names(select, problems),
            ignore=_names(ignore, problems),
            deep=_choice(deep, _FLAGS, False, False, "0 and 1; taken as 0", problems),
            color=_choice(
                color, {c: c for c in _COLORS}, "auto", "auto", "auto, always and never; taken as auto", problems
            ),
            problems=tuple(problems),
        )


def _pyproject(folder: Path | None, problems: list[str]) -> tuple[dict[str, Any], Path]:
    """The ``[tool.kcontract]`` table of the nearest ``pyproject.toml``, and that file's folder."""
    try:
        start = folder or Path.cwd()
    except OSError:  # the working directory is gone
        return {}, Path()
    path = next((path for at in (start, *start.parents) if (path := at / "pyproject.toml").is_file()), None)
    if path is None:
        return {}, start
    try:
        data = path.read_bytes()
        if b"kcontract" not in data:  # spares the import of the TOML reader
            return {}, path.parent
        tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
        table = tomllib.loads(data.decode()).get("tool", {}).get("kcontract", {})
        if isinstance(table, dict):
            return table, path.parent
        problems.append(f"{path}: [tool.kcontract] is no table; it is not used")
    except (OSError, ValueError, AttributeError, ImportError, RecursionError) as error:
        problems.append(f"{path}: cannot be read, so its [tool.kcontract] is not used: {error}")
    return {}, path.parent


def _choice(
    given: tuple[Any, str], known: Mapping[str, Any], default: Any, fallback: Any, valid: str, problems: list[str]
) -> Any:
    value, name = given
    if value is None:
        return default
    try:
        return known[str(value).strip().lower()]
    except KeyError:
        problems.append(f"{name} is {str(value)!r}; valid values are {valid}")
        return fallback


def _report(given: tuple[Any, str], base: Path, problems: list[str]) -> Path | None:
    value, name = given
    if not value:
        return None
    if isinstance(value, str) and value.endswith((".jsonl", ".sarif")):
        return base / value
    problems.append(
        f"{name} is {str(value)!r}; valid values are a path that ends in .jsonl or .sarif; no report is written"
    )
    return None


def _names(given: tuple[Any, str], problems: list[str]) -> tuple[str, ...]:
    value, name = given
    if isinstance(value, str):
        value = value.split(",")
    if value is None:
        return ()
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(item.strip() for item in value if item.strip())
    problems.append(f"{name} is {value!r}; valid values are names of rules and gates; it is not used")
    return ()
