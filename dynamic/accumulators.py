"""What the matrix products of a candidate's compiled kernels add in, and what they round their factors to.

Only products are looked at: they alone may be allowed more than float32 sums allow, by cutting their factors to tf32
(relative error 2^-10, which is the format's and no fault), or by rounding a factor that they computed to the 16 bits
that a matrix unit takes. That a sum is kept in 16 bits loosens nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kcontract.ir.artifact import Artifact
from kcontract.ir.ttgir import Value
from kcontract.passes.analysis.flow import STORES
from kcontract.passes.analysis.origin import SHAPES
from kcontract.passes.analysis.sums import UNIT_ROUNDOFF, Row

_PRODUCT = re.compile(r"\b(tt\.dot|ttng\.warp_group_dot|ttng\.tc_gen5_mma)\b")
_ALLOCATIONS = ("ttg.local_alloc", "ttng.tmem_alloc")
#: What hands on its operands' values.
_PASSES = SHAPES | set(_ALLOCATIONS) | {"arith.select", "tt.join", "tt.fp_to_fp"}
_DEEPEST = 40
_SHORT = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64"}


def accumulators(cache: Path, dtype: str) -> tuple[str, ...]:
    """Accumulator types (``f32``, ``tf32``, ``f16``) of all products in kernels that hold ``dtype`` values."""
    from kcontract.errors import KContractError
    from kcontract.passes.analysis.accumulations import Ledger
    from kcontract.passes.base import Facts

    holds = re.compile(rf"(?<![a-z]){_SHORT.get(dtype, dtype)}\b|\dx{_SHORT.get(dtype, dtype)}\b")
    found: set[str] = set()
    for artifact in _multiplying(cache, holds):
        try:
            rows = Facts(artifact).get(Ledger).rows
        except KContractError:  # a text that cannot be read is told by the static pass
            continue
        found |= {_kept_in(row) for row in rows if row.kind in ("dot", "mma")}
    return tuple(sorted(found & set(UNIT_ROUNDOFF)))


def rounds_operands(cache: Path, dtype: str) -> bool:
    """Whether a product in a compiled kernel takes a factor that the kernel computed and rounded to ``dtype``."""
    from kcontract.errors import KContractError

    if dtype not in ("float16", "bfloat16"):
        return False
    for artifact in _multiplying(cache, re.compile(r"arith\.truncf")):
        try:
            module = artifact.module
        except KContractError:  # a text that cannot be read is told by the static pass
            continue
        products = [o for o in module.walk() if _PRODUCT.fullmatch(o.name)] if module is not None else []
        if any(_is_rounded(factor, _SHORT[dtype]) for o in products for factor in o.operands[:2]):
            return True
    return False


def _multiplying(cache: Path, holds: re.Pattern[str]) -> Iterator[Artifact]:
    """The compiled kernels with a matrix product whose text holds a pattern."""
    from kcontract.ir.loaders import load_cache

    for artifact in load_cache(str(cache)) if cache.is_dir() else ():
        text = artifact.ttgir if isinstance(artifact, Artifact) else None
        if text is not None and _PRODUCT.search(text) and holds.search(text):
            assert isinstance(artifact, Artifact)
            yield artifact


def _is_rounded(factor: Value, element: str, depth: int = 0) -> bool:
    """Whether a factor is the rounding of something wider, behind what moves, masks or stores it."""
    made = factor.definition
    if made is None or depth > _DEEPEST:
        return False
    if made.name == "arith.truncf":
        return factor.type.element == element
    passed = list(made.operands) if made.name in _PASSES else []
    if made.name in _ALLOCATIONS:
        passed += [user.operands[STORES[user.name][0]] for user in factor.users if user.name in STORES]
    return any(_is_rounded(value, element, depth + 1) for value in passed)


def _kept_in(row: Row) -> str:
    """``tf32`` for float32 factors that a matrix unit cuts, else the type of the sum."""
    operation = row.operation
    if row.inputs != "f32" or operation is None:
        return row.element
    precision = str(operation.attributes.get("inputPrecision", "tf32" if row.kind == "mma" else ""))
    cut = "tf32" in precision.lower() or re.fullmatch(r"0( : i32)?", precision.strip()) is not None
    return "tf32" if cut else row.element
