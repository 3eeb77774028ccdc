"""The gated delta rule: float64 references, and Triton kernels for training.

Nothing here imports torch or triton until a name is used, and nothing imports the rest of kcontract.

`chunk_gated_delta_rule`  differentiable, for CUDA tensors; takes the arguments of flash-linear-attention's function
`reference`               float64, token by token, differentiable by autograd: what the kernels are measured against
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kcontract.kernels.gdn.api import chunk_gated_delta_rule
    from kcontract.kernels.gdn.recurrence import reference

__all__ = ["chunk_gated_delta_rule", "reference"]

_HOME = {"chunk_gated_delta_rule": "api", "reference": "recurrence"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
