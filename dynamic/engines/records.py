"""The channel between ``kcontract run`` and the program it runs: settings in, one line of JSON an event out.

Lines are written at once and each in one ``write``, so nothing is lost when the program is killed and processes of one
program may share the file. Standard library only: this is imported at the start of every Python process of the program.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

VARIABLE = "TRITON_KCONTRACT_RUN"


@dataclass(frozen=True, slots=True)
class Settings:
    """How the program is to be run. ``engine`` names the module of this package whose ``install`` puts it in place,
    ``records`` the file of events, ``cache`` Triton's cache folder.

    Of an autotuner's configurations (after its own pruning) the first ``max_configs`` are compiled, and of those
    each ``shards``-th, starting at ``shard`` (0-based). ``package`` is the folder of the package ``kcontract``.
    """

    engine: str
    target: str
    records: str
    cache: str
    package: str
    max_configs: int | None = None
    shard: int = 0
    shards: int = 1

    def environment(self) -> dict[str, str]:
        """The variable that carries these settings to the program's processes."""
        return {VARIABLE: json.dumps(asdict(self))}

    @staticmethod
    def from_environment() -> Settings | None:
        """The settings of this process, or None when no ``kcontract run`` started it."""
        text = os.environ.get(VARIABLE)
        return Settings(**json.loads(text)) if text else None


def sentence(error: BaseException) -> str:
    """Type and the line of the message that says what is wrong, at most 300 characters of it.

    Compilers put it last, below the source; ``ptxas`` says ``error :`` in it; everybody else puts it first.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    told = [line for line in lines[1:] if re.search(r"\berror\s*:", line, re.IGNORECASE)]
    of_compiler = any(base.__name__ == "CompilationError" for base in type(error).__mro__)
    line = lines[-1] if of_compiler else (told or lines)[0]
    cause = f" ({sentence(error.__cause__)})" if error.__cause__ is not None else ""
    return f"{type(error).__name__}: {line[:300]}{cause}"


def write(path: str, kind: str, **fields: object) -> None:
    """Append one event."""
    line = json.dumps({"kind": kind, "pid": os.getpid(), **fields}, default=str) + "\n"
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The events written so far; a last line cut off by a kill is left out."""
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue
