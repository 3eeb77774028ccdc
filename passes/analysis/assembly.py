"""The accumulations of a kernel of which only PTX is there: native CUDA, and what other compilers wrote.

Why: PTX shows sums that no higher text has, packed 16-bit adds and the accumulator type of each matrix instruction.
On Blackwell ``tcgen05.mma.kind::f16`` adds in float16 or float32 alike; which one stands in bits 4 and 5 of the
instruction descriptor, a register whose value is found by constant propagation. Example: descriptor ``0x08200490``
has 1 there, a float32 accumulator; ``0x08200480`` has 0, float16.

A register that is computed from its own earlier self, by an instruction in a loop, is an accumulator; how often the
loop runs is not known here. Memory is not followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from kcontract.ir.ptx import Function, Immediate, Instruction, Operand, Program, Register, Vector
from kcontract.model import Place
from kcontract.passes.analysis.flow import components
from kcontract.passes.analysis.sums import Row, Terms

_TYPES = {"f16": "f16", "f16x2": "f16", "bf16": "bf16", "bf16x2": "bf16", "f32": "f32", "f32x2": "f32", "f64": "f64"}
_ADDS = ("add", "sub", "fma", "mad")
_SHAPE = re.compile(r"m\d+n\d+k(\d+)$")
_INSTRUCTION = re.compile(r"[a-z][\w:]*(?:\.[\w:]+)+")
#: PTX ISA 9, tcgen05 "Instruction descriptor format": bits 4-5
_DESCRIPTOR_TYPES = {0: "f16", 1: "f32", 2: "s32"}
#: depth of one tcgen05.mma by kind (PTX ISA 9, tcgen05 "Data movement shape")
_DEPTHS = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}


def rows(program: Program) -> Iterator[Row]:
    """Every float accumulation of a program, in order."""
    names = program.opcodes()
    if not any(_element(name) or name.startswith("tcgen05.mma") for name in names):
        return
    groups: dict[object, int] = {}
    for function in program.functions:
        yield from _rows(function, groups)


def added_types(text: str) -> set[str]:
    """The types that the instructions of an inline assembly string add in."""
    return {kind for name in _INSTRUCTION.findall(text) if (kind := _element(name))}


def atomic_in(text: str) -> bool:
    """Whether an inline assembly string adds to memory atomically."""
    return any(name.startswith(("red.", "atom.")) and ".add" in name for name in _INSTRUCTION.findall(text))


def _rows(function: Function, groups: dict[object, int]) -> Iterator[Row]:
    instructions = function.instructions
    flows: dict[str, list[str]] = {}
    for instruction in instructions:
        destinations, sources = _registers(instruction)
        for source in sources:
            flows.setdefault(source, []).extend(destinations)
    component = components(flows)
    constants = _constants(function)
    for instruction in instructions:
        name = instruction.name
        if name.startswith("tcgen05.mma"):
            row = _tcgen05(instruction, constants)
        elif instruction.opcode in ("red", "atom"):
            element = _TYPES.get(instruction.modifiers[-1], "") if "add" in instruction.modifiers else ""
            row = _row(instruction, "atomic", element, element, Terms(1, None)) if element else None
        else:
            row = _arithmetic(instruction, component)
        if row is not None:
            home = _home(instruction, component)
            yield replace(row, group=groups.setdefault((function.name, home), len(groups)))


def _home(instruction: Instruction, component: Mapping[str, int]) -> object:
    """What tells accumulators apart: the cycle of registers, or for Tensor Memory the source line."""
    if instruction.opcode == "tcgen05":
        return instruction.location or "tensor memory"
    destinations, _ = _registers(instruction)
    return next((component[name] for name in destinations if name in component), instruction)


def _arithmetic(instruction: Instruction, component: Mapping[str, int]) -> Row | None:
    element = _element(instruction.name)
    if element is None:
        return None
    destinations, sources = _registers(instruction)
    homes = {component.get(d) for d in destinations} - {None}
    carried = any(component.get(source) in homes for source in sources)
    if instruction.opcode in ("mma", "wmma", "wgmma"):
        depth = next((int(m[1]) for part in instruction.modifiers if (m := _SHAPE.match(part))), 1)
        inputs = {"mma": instruction.modifiers[-2], "wmma": "f16"}.get(instruction.opcode, instruction.modifiers[-1])
        kind = "mma"
    else:
        depth, inputs, kind = 1, element, "loop sum" if carried else "elementwise"
    terms = Terms(depth, None) if carried else Terms(depth + (kind != "mma"), depth + (kind != "mma"))
    return _row(instruction, kind, element, inputs, terms)


def _tcgen05(instruction: Instruction, constants: Mapping[str, int]) -> Row | None:
    kind = next((part.removeprefix("kind::") for part in instruction.modifiers if part.startswith("kind::")), "")
    element = "f32"
    if kind in ("f16", "f8f6f4"):
        descriptor = instruction.operands[3] if len(instruction.operands) > 3 else None
        value = _value(descriptor, constants)
        element = "unknown" if value is None else _DESCRIPTOR_TYPES.get(value >> 4 & 3, "unknown")
    if kind == "i8":
        return None
    return _row(instruction, "mma", element, kind, Terms(_DEPTHS.get(kind, 1), None))


def _row(instruction: Instruction, kind: str, element: str, inputs: str, terms: Terms) -> Row:
    return Row(Place(instruction.location, "ptx", instruction.line), kind, element, inputs, terms)


def _element(name: str) -> str | None:
    """The type an instruction adds in, None where it adds no floating-point numbers."""
    opcode, *modifiers = name.split(".")
    if opcode in _ADDS or (opcode in ("red", "atom") and "add" in modifiers):
        return _TYPES.get(modifiers[-1]) if modifiers else None
    if opcode == "mma" or name.startswith(("wmma.mma", "wgmma.mma_async")):
        types = [part for part in modifiers if part in _TYPES or part in ("s32", "tf32", "e4m3", "e5m2", "b1")]
        return types[0] if types and types[0] in _TYPES else None
    return None


def _registers(instruction: Instruction) -> tuple[list[str], list[str]]:
    """Names of the registers written and read; a store, a branch or a barrier writes none."""
    operands = instruction.operands
    if not operands or instruction.opcode in ("st", "bra", "bar", "red", "tcgen05", "ret", "call"):
        return [], []
    written = list(_names(operands[0]))
    read = [name for operand in operands[1:] for name in _names(operand)]
    if instruction.name.startswith("wgmma.mma_async"):
        read += written  # the accumulator is operand and result
    return written, read


def _names(operand: Operand) -> Iterator[str]:
    if isinstance(operand, Register):
        yield operand.name
    elif isinstance(operand, Vector):
        for element in operand.elements:
            yield from _names(element)


def _constants(function: Function) -> dict[str, int]:
    """Values of registers that are written once, by a move or integer arithmetic of constants."""
    writers: dict[str, list[Instruction]] = {}
    for instruction in function.instructions:
        for name in _registers(instruction)[0]:
            writers.setdefault(name, []).append(instruction)
    known: dict[str, int] = {}
    for instruction in function.instructions:
        written, _ = _registers(instruction)
        if len(written) != 1 or len(writers[written[0]]) != 1:
            continue
        values = [_value(operand, known) for operand in instruction.operands[1:]]
        if (
            None not in values
            and (result := _fold(instruction.opcode, [v for v in values if v is not None])) is not None
        ):
            known[written[0]] = result & 0xFFFFFFFFFFFFFFFF
    return known


def _value(operand: Operand | None, known: Mapping[str, int]) -> int | None:
    if isinstance(operand, Immediate) and operand.kind == "int":
        return int(operand.value)
    return known.get(operand.name) if isinstance(operand, Register) else None


def _fold(opcode: str, values: list[int]) -> int | None:
    if opcode in ("mov", "cvt") and len(values) == 1:
        return values[0]
    if len(values) != 2:
        return None
    left, right = values
    return {"add": left + right, "or": left | right, "and": left & right, "shl": left << min(right, 63)}.get(opcode)
