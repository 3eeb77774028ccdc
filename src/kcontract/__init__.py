"""kcontract: checks what a GPU kernel promises, while Triton compiles it."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"
__all__ = ["contract"]


def __getattr__(name: str) -> Any:
    """``kcontract.contract``, imported when it is used: this module is loaded at the start of every Python process."""
    if name == "contract":
        from kcontract.model.declare import contract

        return contract
    raise AttributeError(f"module 'kcontract' has no attribute {name!r}")
