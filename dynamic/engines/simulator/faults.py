"""What the simulator reports about a program: one fault with its kind, its place in PTX and in Python."""

from __future__ import annotations

from kcontract.errors import InputError, KContractError
from kcontract.ir.location import Location


class Unsupported(InputError):
    """PTX that the simulator does not execute: an unknown opcode, modifier, operand or descriptor value."""


class Fault(KContractError):
    """The simulated program did something that is undefined or that never ends on hardware.

    ``kind`` is a slug such as ``out-of-bounds`` or ``deadlock``; ``line`` is the line in the PTX text and
    ``location`` the place in the user's Python, filled in by the machine once known.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message
        self.line: int | None = None
        self.instruction = ""
        self.location: Location | None = None

    def at(self, line: int, instruction: str, location: Location | None) -> Fault:
        """The same fault with its place, unless it has one."""
        if self.line is None:
            self.line, self.instruction, self.location = line, instruction, location
        return self

    def __str__(self) -> str:
        place = "" if self.line is None else f" (PTX line {self.line}: {self.instruction}"
        if self.location is not None:
            place += f"; {self.location}"
        return f"{self.kind}: {self.message}{place}{')' if place else ''}"
