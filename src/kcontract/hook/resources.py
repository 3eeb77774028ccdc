"""The exception of a kernel that does not fit its hardware. Only Triton's own class makes a tuner go on."""

from __future__ import annotations

from triton.runtime.errors import OutOfResources

from kcontract.errors import KContractViolation


class DoesNotFit(KContractViolation, OutOfResources):  # type: ignore[misc]  # Triton is untyped
    """A tuner drops the candidate at it, as at Triton's own; it reads like a ``KContractViolation``.

    ``required``, ``limit`` and ``name`` (of the resource) are those of the first finding, where its rule gives them.
    """

    def __init__(self, message: str, required: object = None, limit: object = None, name: object = None) -> None:
        Exception.__init__(self, message)
        self.message = message
        self.required, self.limit, self.name = required, limit, name

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[type[DoesNotFit], tuple[object, ...]]:
        return DoesNotFit, (self.message, self.required, self.limit, self.name)
