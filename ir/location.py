"""Places in the user's Python, with the chain of inlined calls that led there."""

from __future__ import annotations

from dataclasses import dataclass, replace


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

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.column else f"{self.file}:{self.line}"


def _in_library(file: str) -> bool:
    return any(part in file for part in ("/triton/language/", "/triton/experimental/", "-linux/include/"))
