"""Which floating-point format the words of a store hold, and whether two words differ by rounding alone.

Why: PTX stores untyped bits. Lanes that hold one result of a reduction differ in its last bits where products are
fused into its additions, and Triton lets all of them store it; lanes that differ otherwise race. Where the terms cancel
they differ by rounding of the terms, not of the sum: what a butterfly of shuffles has summed is allowed that of the
largest value that the store writes. The format is read from the program text: a backward walk from the stored
registers through moves, selections and shuffles to the instructions that made the values. A value that comes from
memory, or from an integer instruction, has none.
"""

from __future__ import annotations

import numpy as np

from kcontract.dynamic.engines.simulator import values
from kcontract.dynamic.engines.simulator.registers import keys
from kcontract.dynamic.engines.simulator.values import Array
from kcontract.ir.ptx.operands import Special, Symbol
from kcontract.ir.ptx.program import TYPE_BYTES, Function, Instruction

#: The unsigned word that holds a value of each format, its fraction bits, and the bits of infinity.
WORDS = {"f16": "u2", "bf16": "u2", "f32": "u4", "f64": "u8"}
_FRACTION = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}
_INFINITY = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF << 52}
#: Units in the last place by which lanes of one sum may differ.
ROUNDING = 4
_HANDS_ON = ("mov", "selp", "shfl")


def stored(function: Function, index: int) -> tuple[str, bool]:
    """Format of the values that the store at an instruction index writes, "" where it is not known to be one format;
    and whether each is the sum of a lane's own value and one shuffled from its partner."""
    store = function.instructions[index]
    if own := _format(store):
        return own, False
    made: dict[tuple[int, str], list[Instruction]] = {}
    for i in function.instructions:
        for key in keys(function, i, i.operands[:1]):
            made.setdefault(key, []).append(i)
    work = list(keys(function, store, store.operands[1:2]))
    seen = set(work)
    formats: set[str] = set()
    butterfly = True
    while work:
        for i in made.get(work.pop(), ()):
            form = _format(i)
            sources = i.operands[1:3] if i.opcode == "selp" else i.operands[1:2]
            if not form and i.opcode in _HANDS_ON and not any(isinstance(x, (Special, Symbol)) for x in sources):
                fresh = set(keys(function, i, sources)) - seen
                seen |= fresh
                work += fresh
                continue
            formats.add(form)
            terms = (d for key in keys(function, i, i.operands[1:]) for d in made.get(key, ()))
            butterfly &= i.opcode in ("add", "fma") and any("bfly" in d.modifiers for d in terms)
    return (formats.pop(), butterfly) if len(formats) == 1 else ("", False)


def _format(i: Instruction) -> str:
    """Format of what an instruction makes; its first type is that of its result."""
    for word in i.modifiers:
        plain = word.removesuffix("x2")
        if plain in WORDS:
            return plain
        if word in TYPE_BYTES:
            return ""
    return ""


def close(a: Array, b: Array, form: str, butterfly: bool) -> Array:
    """Whether values of a format are finite and at most ``ROUNDING`` ulp apart; flat, a value each.

    An ulp is that of the values themselves, which must have one sign, or with ``butterfly`` of the largest of all.
    """
    x, y = (np.ascontiguousarray(words).reshape(-1).view(WORDS[form]) for words in (a, b))
    sign = x.dtype.type(1 << (8 * x.itemsize - 1))
    finite = np.maximum(x & ~sign, y & ~sign) < _INFINITY[form]
    near = (np.maximum(x, y) - np.minimum(x, y) <= ROUNDING) & ((x ^ y) & sign == 0)
    if butterfly and finite.any():
        p, q = (values.decode(v, form).astype("f8") for v in (x, y))
        largest = np.abs(p[finite]).max()
        near |= np.abs(p - q) <= ROUNDING * largest * 2.0 ** -_FRACTION[form]
    return np.asarray(finite & near)
