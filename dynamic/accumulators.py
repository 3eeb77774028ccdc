"""What the matrix products of a candidate's compiled kernels add in: the accumulator types that the oracle asks for.

Only products are looked at: they alone may be allowed more than float32 sums allow, by cutting their factors to tf32
(relative error 2^-10, which is the format's and no fault). That a sum is kept in 16 bits loosens nothing.
"""

from __future__ import annotations

import re
from pathlib import Path

from kcontract.ir.artifact import Artifact
from kcontract.passes.analysis.sums import UNIT_ROUNDOFF, Row

_PRODUCT = re.compile(r"\b(tt\.dot|ttng\.warp_group_dot|ttng\.tc_gen5_mma)\b")
_SHORT = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64"}


def accumulators(cache: Path, dtype: str) -> tuple[str, ...]:
    """Accumulator types (``f32``, ``tf32``, ``f16``) of all products in kernels that hold ``dtype`` values."""
    from kcontract.errors import KContractError
    from kcontract.ir.loaders import load_cache
    from kcontract.passes.analysis.accumulations import Ledger
    from kcontract.passes.base import Facts

    holds = re.compile(rf"(?<![a-z]){_SHORT.get(dtype, dtype)}\b|\dx{_SHORT.get(dtype, dtype)}\b")
    found: set[str] = set()
    for artifact in load_cache(str(cache)) if cache.is_dir() else ():
        text = artifact.ttgir if isinstance(artifact, Artifact) else None
        if text is None or not _PRODUCT.search(text) or not holds.search(text):
            continue
        assert isinstance(artifact, Artifact)
        try:
            rows = Facts(artifact).get(Ledger).rows
        except KContractError:  # a text that cannot be read is told by the static pass
            continue
        found |= {_kept_in(row) for row in rows if row.kind in ("dot", "mma")}
    return tuple(sorted(found & set(UNIT_ROUNDOFF)))


def _kept_in(row: Row) -> str:
    """``tf32`` for float32 factors that a matrix unit cuts, else the type of the sum."""
    operation = row.operation
    if row.inputs != "f32" or operation is None:
        return row.element
    precision = str(operation.attributes.get("inputPrecision", "tf32" if row.kind == "mma" else ""))
    cut = "tf32" in precision.lower() or re.fullmatch(r"0( : i32)?", precision.strip()) is not None
    return "tf32" if cut else row.element
