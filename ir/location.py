"""Places in the user's Python, with the chain of inlined calls that led there."""

from __future__ import annotations

import linecache
import os
import stat
from dataclasses import dataclass, replace

#: bytes of a source file; larger ones are not read for a line
_LARGEST_SOURCE = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Location:
    """One place in a source file.

    ``line`` and ``column`` are 1-based (0: unknown). ``callers`` are the call sites the code was inlined
    through, innermost first; ``name`` is the Python variable or scope name where the compiler kept one.
    """

    file: str
    line: int
    column: int = 0
    name: str | None = None
    callers: tuple[Location, ...] = ()

    def chain(self) -> tuple[Location, ...]:
        """This place and then its callers, innermost first, each without callers of its own."""
        return (replace(self, callers=()), *self.callers)

    def user(self) -> Location:
        """The innermost place outside Triton's and CUDA's own library code: the line a user can change."""
        chain = self.chain()
        return next((place for place in chain if not _in_library(place.file)), chain[0])

    def source_line(self) -> str:
        """The line's text without its end; empty where the file is no ordinary one of readable size, or is gone."""
        return source_line(self.file, self.line)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.column else f"{self.file}:{self.line}"


def source_line(file: str, line: int) -> str:
    """See ``Location.source_line``."""
    try:
        status = os.stat(file)
    except (OSError, ValueError):
        status = None
    if status is not None and (not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_SOURCE):
        return ""
    try:
        return linecache.getline(file, line).rstrip("\n")  # also knows the sources of notebooks
    except (OSError, ValueError, MemoryError):
        return ""


def _in_library(file: str) -> bool:
    return any(part in file for part in ("/triton/language/", "/triton/experimental/", "-linux/include/"))
