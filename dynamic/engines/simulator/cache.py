"""Decoded kernels on disk, beside Triton's own cache: a later process only reads them.

An entry is an ``.npz`` of the kernel's constants, its compiled Python code (``marshal``) and what describes it (JSON).
Its name hashes the PTX, the simulator's own sources and the Python version, so nothing stale is ever read.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import marshal
import os
import sys
import tempfile
import types
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kcontract.dynamic.engines.simulator.values import Array


@dataclass(frozen=True)
class Decoded:
    """What code generation gives: code object, constants by name, live registers of each block, register widths, the
    instruction of each line of the generated source, instruction ranges of the blocks."""

    code: types.CodeType
    constants: dict[str, Array]
    live: list[tuple[int, ...]]
    widths: list[str]
    lines: list[int]
    first: list[tuple[int, int]]


@functools.cache
def _version() -> bytes:
    digest = hashlib.sha256(sys.version.encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.digest()


def _path(ptx: str) -> Path:
    folder = os.environ.get("TRITON_CACHE_DIR") or str(Path.home() / ".triton" / "cache")
    key = hashlib.sha256(_version() + ptx.encode("utf-8", "surrogateescape")).hexdigest()
    return Path(folder) / "kcontract-simulator" / f"{key[:40]}.npz"


def load(ptx: str) -> Decoded | None:
    """The entry of a PTX text, or None."""
    try:
        with np.load(_path(ptx), allow_pickle=False) as entry:
            about = json.loads(entry["about"].tobytes())
            constants = {name: entry[name] for name in about["constants"]}
            code = marshal.loads(entry["code"].tobytes())
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile):
        return None
    live = [tuple(x) for x in about["live"]]
    return Decoded(code, constants, live, about["widths"], about["lines"], [(a, b) for a, b in about["first"]])


def store(ptx: str, decoded: Decoded) -> None:
    """Keep an entry; a folder that cannot be written is no error."""
    about = {
        "constants": list(decoded.constants),
        "live": decoded.live,
        "widths": decoded.widths,
        "lines": decoded.lines,
        "first": decoded.first,
    }
    path = _path(ptx)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            np.savez(
                file,
                about=np.frombuffer(json.dumps(about).encode(), "u1"),
                code=np.frombuffer(marshal.dumps(decoded.code), "u1"),
                **decoded.constants,  # type: ignore[arg-type]
            )
        os.replace(name, path)
