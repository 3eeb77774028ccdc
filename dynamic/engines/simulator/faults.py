"""What the simulator says about a program: one fault or refusal with its place in PTX and in Python."""

from __future__ import annotations

from kcontract.errors import InputError, KContractError
from kcontract.ir.location import Location
from kcontract.ir.ptx import Function, Instruction

#: Characters of an instruction that a sentence shows.
_SHOWN = 100


def spelled(at: Instruction) -> str:
    """An instruction as it is written, on one line and not too long."""
    text = " ".join(f"{at.name} {at.text}".split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def place(line: int, location: Location | None) -> str:
    """Where something is: the line of the PTX and, where the compiler kept it, the user's line of Python."""
    return f"PTX line {line}" + (f"; {location.user()}" if location is not None else "")


class Unsupported(InputError):
    """PTX that the simulator does not execute: an unknown opcode, modifier, operand or descriptor value, or operands
    that do not fit together. ``reason`` is the sentence without its place, which the machine fills in once known."""

    def __init__(
        self, reason: str, *, line: int | None = None, instruction: str = "", location: Location | None = None
    ) -> None:
        self.reason, self.location = reason, location
        text = reason
        if line is not None:
            text = f"the simulator cannot execute `{instruction}`: {reason} ({place(line, location)})"
        super().__init__(text, line=line)

    def at(self, line: int, instruction: str, location: Location | None) -> Unsupported:
        """The same refusal with its place, unless it has one."""
        if self.line is not None:
            return self
        return Unsupported(self.reason, line=line, instruction=instruction, location=location)


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
        if self.line is None:
            return f"{self.kind}: {self.message}"
        return f"{self.kind}: {self.message} (`{self.instruction}`, {place(self.line, self.location)})"


def located(error: BaseException, function: Function, index: int | None) -> BaseException:
    """The error with the place of an instruction (the kernel's own line where none is known).

    What is neither a fault nor a refusal of an input becomes ``Unsupported``: operands that do not fit the instruction
    end as one of Python's or numpy's errors, and so would a defect of the simulator.
    """
    if not isinstance(error, Exception):
        return error
    if index is not None and index < len(function.instructions):
        at = function.instructions[index]
        where = at.line, spelled(at), at.location
    else:
        where = function.line, f".entry {function.name}", None
    if isinstance(error, (Fault, Unsupported)):
        return error.at(*where)
    if isinstance(error, InputError):
        return error if error.line is not None else Unsupported(error.message).at(*where)
    if isinstance(error, MemoryError):
        return Unsupported("it takes more memory than there is").at(*where)
    why = " ".join(str(error).split())[:200]
    return Unsupported(f"its operands or types do not fit it ({type(error).__name__}: {why})").at(*where)
