"""What the oracle knows of a floating type: unit roundoff, largest value, smallest step. It rounds nothing itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kcontract.errors import InputError

Tensor = Any
DType = Any


@dataclass(frozen=True, slots=True)
class Format:
    """One floating type (round to nearest even; IEEE 754-2019, OCP 8-bit formats 1.0).

    ``u`` is the unit roundoff 2^-p, ``largest`` the largest finite value, ``tiny`` the smallest normal
    value and ``eta`` half the smallest subnormal: rounding a real y errs by at most u·|y| + eta.
    """

    name: str
    u: float
    largest: float
    tiny: float
    eta: float


FORMATS: dict[DType, Format] = {
    torch.float64: Format("float64", 2.0**-53, torch.finfo(torch.float64).max, 2.0**-1022, 0.0),
    torch.float32: Format("float32", 2.0**-24, torch.finfo(torch.float32).max, 2.0**-126, 2.0**-150),
    torch.float16: Format("float16", 2.0**-11, 65504.0, 2.0**-14, 2.0**-25),
    torch.bfloat16: Format("bfloat16", 2.0**-8, torch.finfo(torch.bfloat16).max, 2.0**-126, 2.0**-134),
    torch.float8_e4m3fn: Format("float8_e4m3fn", 2.0**-4, 448.0, 2.0**-6, 2.0**-10),
    torch.float8_e5m2: Format("float8_e5m2", 2.0**-3, 57344.0, 2.0**-14, 2.0**-17),
}


def form(dtype: DType) -> Format:
    """The format of a torch floating dtype. Raises ``InputError`` for one the oracle has no figures of."""
    try:
        return FORMATS[dtype]
    except KeyError:
        known = ", ".join(f.name for f in FORMATS.values())
        raise InputError(f"no error bound is known for {dtype}; use one of {known}") from None
