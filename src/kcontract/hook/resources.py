"""The exception of a kernel that does not fit its hardware. Only Triton's own class makes a tuner go on."""

from __future__ import annotations

from triton.runtime.errors import OutOfResources

from kcontract.errors import KContractViolation


class DoesNotFit(KContractViolation, OutOfResources):  # type: ignore[misc]  # Triton is untyped
    """A tuner drops the candidate at it, as at Triton's own; it reads like a ``KContractViolation``."""

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)
        self.message = message
        self.required = self.limit = None
        self.name = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[type[DoesNotFit], tuple[str]]:
        return DoesNotFit, (self.message,)
