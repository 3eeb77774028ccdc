"""kcontract: checks what a GPU kernel promises, while Triton compiles it."""

from __future__ import annotations

__version__ = "0.1.0"
