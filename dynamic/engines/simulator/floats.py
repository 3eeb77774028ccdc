"""Which floating-point format the words of a store hold, and whether two words differ by rounding alone.

Why: PTX stores untyped bits. Lanes that hold one result of a reduction differ in its last bits where products are
fused into its additions, and Triton lets all of them store it; lanes that differ otherwise race. The format is read
from the program text: a backward walk from the stored registers through moves, selections and shuffles to the
instructions that made the values. A value that comes from memory, or from an integer instruction, has none.
"""

from __future__ import annotations

import numpy as np

from kcontract.dynamic.engines.simulator.registers import keys
from kcontract.dynamic.engines.simulator.values import Array
from kcontract.ir.ptx.operands import Special, Symbol
from kcontract.ir.ptx.program import TYPE_BYTES, Function, Instruction

#: The unsigned word that holds a value of each format, and the bits of infinity.
WORDS = {"f16": "u2", "bf16": "u2", "f32": "u4", "f64": "u8"}
_INFINITY = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF << 52}
#: Units in the last place by which lanes of one sum may differ.
ROUNDING = 4
_HANDS_ON = ("mov", "selp", "shfl")


def stored(function: Function, index: int) -> str:
    """Format of the values that the store at an instruction index writes; "" where it is not known to be one format."""
    store = function.instructions[index]
    if own := _format(store):
        return own
    made: dict[tuple[int, str], list[Instruction]] = {}
    for i in function.instructions:
        for key in keys(function, i, i.operands[:1]):
            made.setdefault(key, []).append(i)
    work = list(keys(function, store, store.operands[1:2]))
    seen = set(work)
    formats: set[str] = set()
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
    return formats.pop() if len(formats) == 1 else ""


def _format(i: Instruction) -> str:
    """Format of what an instruction makes; its first type is that of its result."""
    for word in i.modifiers:
        plain = word.removesuffix("x2")
        if plain in WORDS:
            return plain
        if word in TYPE_BYTES:
            return ""
    return ""


def close(a: Array, b: Array, form: str) -> Array:
    """Whether values of a format are finite, of one sign and at most ``ROUNDING`` ulp apart; flat, a value each."""
    x, y = (np.ascontiguousarray(words).reshape(-1).view(WORDS[form]) for words in (a, b))
    sign = x.dtype.type(1 << (8 * x.itemsize - 1))
    near = np.maximum(x, y) - np.minimum(x, y) <= ROUNDING
    return np.asarray(near & ((x ^ y) & sign == 0) & (np.maximum(x & ~sign, y & ~sign) < _INFINITY[form]))
