"""wgmma (PTX ISA 9, "Asynchronous Warpgroup Level Matrix Instructions")."""

from __future__ import annotations

import re

from kcontract.dynamic.engines.simulator.codegen import Gen, Ins, form, fused
from kcontract.ir.ptx import Instruction
from kcontract.ir.ptx.operands import Immediate, Operand, Vector

_FORM = re.compile(
    r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(\d+)\.(f32|f16|s32)(\.satfinite)?\.(f16|bf16|tf32|e4m3|e5m2|s8|u8)"
    r"\.(f16|bf16|tf32|e4m3|e5m2|s8|u8)"
)
_DEPTH = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32}


@form("wgmma")
def control(g: Gen, i: Ins) -> None:
    what = i.need("fence", "commit_group", "wait_group")
    i.need("sync")
    i.need("aligned")
    if what == "commit_group":
        g.emit("S.machine.asynchronous.commit(S.machine.asynchronous.wgmma, S, None)")
    elif what == "wait_group":
        count = i.args[0]
        if not isinstance(count, Immediate):
            raise i.bad("a constant was expected")
        g.emit(f"S.machine.asynchronous.wait(S.machine.asynchronous.wgmma, S, {int(count.value)}, None)")


def _flag(x: Operand, i: Ins) -> int:
    if not isinstance(x, Immediate):
        raise i.bad("a constant was expected")
    return int(x.value)


@fused("wgmma")
def run(g: Gen, instructions: tuple[Instruction, ...], at: int, end: int) -> int:
    """Emit a run of wgmma.mma_async into one accumulator; returns its length, 0 for the other wgmma instructions."""
    name = instructions[at].name
    if not name.startswith("wgmma.mma_async."):
        return 0
    first = g.current = Ins(instructions[at])
    match = _FORM.fullmatch(name)
    if match is None:
        raise first.bad("this form of wgmma is not known")
    n, k, d, a, b = int(match[1]), int(match[2]), match[3], match[5], match[6]
    if k != _DEPTH[a] or _DEPTH[a] != _DEPTH[b] or n % 8 or not 8 <= n <= 256 or match[4]:
        raise first.bad("this shape or .satfinite is not known")
    target = first.args[0]
    if not isinstance(target, Vector):
        raise first.bad("a vector of registers was expected")
    steps: list[str] = []
    flags: tuple[int, ...] | None = None
    kept = False
    taken = at
    while taken < end and instructions[taken].name == name and instructions[taken].guard is None:
        i = g.current = Ins(instructions[taken])
        in_registers = isinstance(i.args[1], Vector)
        found = tuple(_flag(x, i) for x in i.args[4:])
        if i.args[0] != target or (flags is not None and (found, in_registers) != (flags, kept)):
            break
        flags, kept = found, in_registers
        left = i.args[1]
        if isinstance(left, Vector):
            text = "[" + ", ".join(g.src(x, "b32") for x in left.elements) + "]"
        else:
            text = g.src(left, "b64")
        steps.append(f"({text}, {g.src(i.args[2], 'b64')}, {g.src(i.args[3], 'pred')})")
        taken += 1
    if flags is None:
        raise first.bad("a guarded wgmma is not known")
    g.current, g.index = first, at
    scales = flags[:2] if d != "s32" else (1, 1)
    turns = flags[2:] if d != "s32" else ()
    a_turn, b_turn = (0, turns[0]) if kept and turns else (turns[0], turns[1]) if turns else (0, 0)
    text = (
        f"wgmma.Form({n}, {k}, {d!r}, {a!r}, {b!r}, {bool(a_turn)}, {bool(b_turn)}, {scales[0] < 0}, {scales[1] < 0})"
    )
    old = ", ".join(g.src(x, "b32") for x in target.elements)
    name = g.temp()
    g.emit(f"{name} = wgmma.multiply(S, {text}, [{old}], [{', '.join(steps)}])")
    for j, x in enumerate(target.elements):
        g.assign(x, "b32", f"{name}[{j}]")
    return taken - at
