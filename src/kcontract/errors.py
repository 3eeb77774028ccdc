"""The errors kcontract raises on purpose. Anything else that escapes is a defect of kcontract."""

from __future__ import annotations


class KContractError(Exception):
    """Base class: ``str(error)`` is one sentence fit for a user, naming the input and what to do."""


class InputError(KContractError):
    """An input (file, cache folder, IR text, setting, argument) that cannot be used as given.

    ``path`` and ``line`` (1-based) say where, when known.
    """

    def __init__(self, message: str, *, path: str | None = None, line: int | None = None) -> None:
        self.message, self.path, self.line = message, path, line
        place = "" if path is None else f"{path}:{line}: " if line else f"{path}: "
        super().__init__(place + message)


class UsageError(KContractError):
    """Wrong use of a command or of the Python API (exit status 2)."""


class KContractViolation(KContractError):
    """A kernel breaks its promise, and ``TRITON_KCONTRACT=error`` asks to stop there."""
