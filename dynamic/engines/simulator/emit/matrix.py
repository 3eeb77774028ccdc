"""ldmatrix, stmatrix, mma.sync (PTX ISA 9, "Warp Level Matrix Instructions").

Consecutive mma.sync of one form that do not depend on each other are emitted as one call: all their products are one
matrix product a warp.
"""

from __future__ import annotations

import re

from kcontract.dynamic.engines.simulator.codegen import Gen, Ins, form, fused
from kcontract.dynamic.engines.simulator.emit.memory import parts, space_of
from kcontract.ir.ptx import Instruction
from kcontract.ir.ptx.operands import Operand, Register, Vector


def _matrices(i: Ins) -> int:
    i.need("sync")
    i.need("aligned")
    i.need("m8n8")
    count = int(i.need("x1", "x2", "x4")[1:])
    i.need("b16")
    if space_of(i) != "shared":
        raise i.bad("shared memory was expected")
    return count


@form("ldmatrix")
def load(g: Gen, i: Ins) -> None:
    transpose = i.flag("trans")
    count = _matrices(i)
    if g.guard() is not None:
        raise i.bad("a guarded ldmatrix is not known")
    name = g.temp()
    g.emit(f"{name} = matrix.load_matrices(S, {g.address(i.args[1])}, {count}, {transpose})")
    for k, x in enumerate(parts(i.args[0], count, i)):
        g.assign(x, "b32", f"{name}[{k}]")


@form("stmatrix")
def store(g: Gen, i: Ins) -> None:
    transpose = i.flag("trans")
    count = _matrices(i)
    data = ", ".join(g.src(x, "b32") for x in parts(i.args[1], count, i))
    g.emit(f"matrix.store_matrices(S, {g.address(i.args[0])}, [{data}], {transpose}, {g.guard()})")


_MMA = re.compile(
    r"mma\.sync\.aligned\.m(\d+)n(\d+)k(\d+)\.row\.col(\.satfinite)?\.(f32|f16|s32|f64)\.(f16|bf16|tf32|s8|u8|e4m3|e5m2|f64)"
    r"\.(f16|bf16|tf32|s8|u8|e4m3|e5m2|f64)\.(f32|f16|s32|f64)"
)
_SHAPES = {
    ("f16", 16, 8, 8), ("f16", 16, 8, 16), ("bf16", 16, 8, 8), ("bf16", 16, 8, 16), ("tf32", 16, 8, 4),
    ("tf32", 16, 8, 8), ("s8", 16, 8, 16), ("s8", 16, 8, 32), ("u8", 16, 8, 16), ("u8", 16, 8, 32),
    ("e4m3", 16, 8, 16), ("e4m3", 16, 8, 32), ("e5m2", 16, 8, 16), ("e5m2", 16, 8, 32), ("f64", 8, 8, 4),
    ("f64", 16, 8, 4), ("f64", 16, 8, 8), ("f64", 16, 8, 16),
}  # fmt: skip


def _elements(x: Operand, i: Ins) -> tuple[Register, ...]:
    elements = x.elements if isinstance(x, Vector) else (x,)
    if not all(isinstance(e, Register) for e in elements):
        raise i.bad("registers were expected")
    return elements  # type: ignore[return-value]


@fused("mma")
def group(g: Gen, instructions: tuple[Instruction, ...], at: int, end: int) -> int:
    """Emit a run of independent mma.sync of one form; returns its length."""
    name = instructions[at].name
    match = _MMA.fullmatch(name)
    first = g.current = Ins(instructions[at])
    if match is None:
        raise first.bad("this form of mma is not known")
    m, n, k = (int(x) for x in match.group(1, 2, 3))
    d_kind, a_kind, b_kind, c_kind = match.group(5, 6, 7, 8)
    if (a_kind, m, n, k) not in _SHAPES or d_kind != c_kind:
        raise first.bad("this shape or this pair of accumulator types is not known")
    lists: list[tuple[tuple[Register, ...], ...]] = []
    written: set[int] = set()
    taken = at
    while taken < end and instructions[taken].name == name and instructions[taken].guard is None:
        i = g.current = Ins(instructions[taken])
        operands = tuple(_elements(x, i) for x in i.args[:4])
        if any(g.register(r) in written for x in operands[1:] for r in x):
            break
        if any(g.register(r) in written for r in operands[0]):
            break
        written |= {g.register(r) for r in operands[0]}
        lists.append(operands)
        taken += 1
    if not lists:
        raise first.bad("a guarded mma is not known")
    g.current, g.index = first, at
    bits = "b64" if a_kind == "f64" else "b32"

    def row(registers: tuple[Register, ...]) -> str:
        return "[" + ", ".join(g.src(r, bits) for r in registers) + "]"

    left, right = list(dict.fromkeys(x[1] for x in lists)), list(dict.fromkeys(x[2] for x in lists))
    pairs = tuple((left.index(x[1]), right.index(x[2])) for x in lists)
    shape = f"matrix.Shape({m}, {n}, {k}, {a_kind!r}, {b_kind!r}, {c_kind!r})"
    out = g.temp()
    a, b, c = ("[" + ", ".join(row(x) for x in side) + "]" for side in (left, right, [x[3] for x in lists]))
    g.emit(f"{out} = matrix.mma(S, {shape}, {a}, {b}, {c}, {pairs!r}, {match.group(4) is not None})")
    at_register = 0
    for operands in lists:
        for r in operands[0]:
            g.assign(r, bits, f"{out}[{at_register}]")
            at_register += 1
    return taken - at
