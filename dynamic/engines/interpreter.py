"""Triton's interpreter as an engine: kernels run as Python on CPU tensors. A fallback with known gaps.

It keeps no compiled artifact, treats NaN in min, max and sums, aliased arguments and ``other`` differently from
compiled code, and its bf16 dot is wrong; so it never decides EXC-01, EXC-02, PRC-02 or ORD-02 alone.
"""

from __future__ import annotations

from kcontract.dynamic.engines import records

#: Gates it cannot decide.
GAPS = ("EXC-01", "EXC-02", "PRC-02", "ORD-02")


def install(settings: records.Settings) -> None:
    """Nothing to put in place: ``TRITON_INTERPRET`` in the environment does it."""
