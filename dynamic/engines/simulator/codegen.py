"""Turns a PTX function into Python source: one function a basic block, one statement or a few an instruction.

The generated code works on strands (see ``strand``): a register is a numpy array of unsigned bits, and within one
block its float or signed view is kept beside it. Instruction families register an emitter with ``form``; an emitter
must consume every modifier, and what nobody consumes is ``Unsupported`` with its line. Blocks are split where threads
may have to wait, so that the scheduler sees each such place as the start of a block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from kcontract.dynamic.engines.simulator.blocks import split
from kcontract.dynamic.engines.simulator.calls import Whole
from kcontract.dynamic.engines.simulator.faults import Unsupported, located, spelled
from kcontract.dynamic.engines.simulator.values import Array
from kcontract.ir.ptx.operands import (
    Address,
    Immediate,
    Operand,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)
from kcontract.ir.ptx.program import Instruction

#: numpy representation of a value of each PTX type; packed and 16-bit floats are bits and decoded by the emitters.
REPRESENTATION = {
    **{f"b{n}": f"u{n // 8}" for n in (8, 16, 32, 64)},
    **{f"u{n}": f"u{n // 8}" for n in (8, 16, 32, 64)},
    **{f"s{n}": f"i{n // 8}" for n in (8, 16, 32, 64)},
    "f32": "f4",
    "f64": "f8",
    "f16": "u2",
    "bf16": "u2",
    "f16x2": "u4",
    "bf16x2": "u4",
    "f32x2": "u8",
    "u16x2": "u4",
    "s16x2": "u4",
    "tf32": "u4",
    "e4m3x2": "u2",
    "e5m2x2": "u2",
    "ue8m0x2": "u2",
    "b128": "c16",
    "pred": "bool",
}
BITS = {"u1": "u1", "i1": "u1", "u2": "u2", "i2": "u2", "u4": "u4", "i4": "u4", "f4": "u4", "u8": "u8", "i8": "u8",
        "f8": "u8", "bool": "bool", "c16": "c16"}  # fmt: skip

Emitter = Callable[["Gen", "Ins"], None]
FORMS: dict[str, Emitter] = {}


def form(*opcodes: str) -> Callable[[Emitter], Emitter]:
    """Register the emitter of some opcodes."""

    def register(emitter: Emitter) -> Emitter:
        for opcode in opcodes:
            FORMS[opcode] = emitter
        return emitter

    return register


#: Emitters of runs of instructions: (gen, instructions, at, end) -> how many they took.
RunEmitter = Callable[["Gen", "tuple[Instruction, ...]", int, int], int]
FUSED: dict[str, RunEmitter] = {}


def fused(opcode: str) -> Callable[[RunEmitter], RunEmitter]:
    """Register the emitter of runs of an opcode."""

    def register(emitter: RunEmitter) -> RunEmitter:
        FUSED[opcode] = emitter
        return emitter

    return register


@dataclass
class Ins:
    """One instruction while its emitter reads it; ``mods`` shrinks as modifiers are taken."""

    raw: Instruction
    mods: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.mods = list(self.raw.modifiers)
        self.op = self.raw.opcode
        self.args: tuple[Operand, ...] = self.raw.operands

    def bad(self, why: str) -> Unsupported:
        return Unsupported(why, line=self.raw.line, instruction=spelled(self.raw), location=self.raw.location)

    def take(self, *options: str) -> str | None:
        """Remove and return the first modifier that is one of ``options``."""
        for i, m in enumerate(self.mods):
            if m in options:
                return self.mods.pop(i)
        return None

    def need(self, *options: str) -> str:
        found = self.take(*options)
        if found is None:
            raise self.bad(f"one of {', '.join('.' + o for o in options)} was expected")
        return found

    def flag(self, name: str) -> bool:
        return self.take(name) is not None

    def type(self) -> str:
        """The last modifier, which must be a type."""
        if not self.mods or self.mods[-1] not in REPRESENTATION:
            raise self.bad("it does not end in a type that is known")
        return self.mods.pop()

    def done(self) -> None:
        if self.mods:
            raise self.bad(f"modifier .{self.mods[0]} is not known here")


@dataclass
class Body:
    """Generated lines of a block; ``prologue`` are the registers read before written, ``final`` what returns."""

    lines: list[str]
    places: list[int]
    prologue: list[int]
    defined: set[int]
    cache: dict[tuple[int, str], str]
    final: str


class Gen:
    """State of the generation of one function."""

    def __init__(self, whole: Whole) -> None:
        self.whole, self.function = whole, whole.function
        self.constants: dict[str, Array] = {}
        self._constant_names: dict[tuple[str, bytes], str] = {}
        self.registers: dict[tuple[int, str], int] = {}
        self.widths: list[str] = []
        self.blocks = split(self.function)
        self.starts = {b.first: i for i, b in enumerate(self.blocks)}
        self.counter = 0
        self.reset(0)

    # ---- names

    def temp(self) -> str:
        self.counter += 1
        return f"t{self.counter}"

    def const(self, value: int | float | Array, dtype: str) -> str:
        """A name for a (1, 1) constant."""
        if isinstance(value, int) and dtype[0] in "ui":
            value = value & ((1 << (8 * int(dtype[1:]))) - 1)
            array = np.array([[value]], dtype=f"u{dtype[1:]}").view(dtype)
        else:
            array = np.array(value, dtype=dtype).reshape(1, 1)
        key = (dtype, array.tobytes())
        name = self._constant_names.get(key)
        if name is None:
            name = self._constant_names[key] = f"K{len(self.constants)}"
            array.flags.writeable = False
            self.constants[name] = array
        return name

    def register(self, r: Register) -> int:
        """The number of a register, by its declaration's scope."""
        scope = self.current.raw.scope
        declared = self.function.register(r.name, scope)
        if declared is None:
            raise self.current.bad(f"register {r.name} is not declared")
        key = (declared.scope, r.name)
        number = self.registers.get(key)
        if number is None:
            number = self.registers[key] = len(self.widths)
            self.widths.append(BITS[REPRESENTATION[declared.type]])
        return number

    # ---- reading

    def read(self, number: int, dtype: str) -> str:
        """Expression of a register as ``dtype`` (same width as declared, or narrower bits, or zero-extended)."""
        found = self.cache.get((number, dtype))
        if found is not None:
            return found
        own = self.widths[number]
        bits = self.cache.get((number, own))
        if bits is None:
            typed = next((d for (n, d) in self.cache if n == number), None)
            bits = f"r{number}"
            if typed is not None:
                self.emit(f"{bits} = {self.cache[number, typed]}.view('{own}')")
            else:
                self.prologue.append(number)
            self.cache[number, own] = bits
        if dtype == own:
            return bits
        if own == "bool" or dtype == "bool":
            raise self.current.bad("a predicate is used as a number")
        name = f"r{number}_{dtype}"
        if dtype[1:] == own[1:]:
            self.emit(f"{name} = {bits}.view('{dtype}')")
        elif BITS[dtype] == dtype:
            self.emit(f"{name} = {bits}.astype('{dtype}')")
        else:
            self.emit(f"{name} = {bits}.astype('{BITS[dtype]}').view('{dtype}')")
        self.cache[number, dtype] = name
        return name

    def src(self, x: Operand, kind: str) -> str:
        """Expression of an operand as PTX type ``kind`` (in its representation)."""
        dtype = REPRESENTATION.get(kind, kind)
        if isinstance(x, Register):
            if x.member is not None:
                raise self.current.bad("vector registers are not known")
            text = self.read(self.register(x), dtype)
            return f"(~{text})" if x.negated else text
        if isinstance(x, Immediate):
            return self.immediate(x, kind, dtype)
        if isinstance(x, Special):
            return self.special(x, dtype)
        if isinstance(x, Symbol):
            return f"S.symbol({x.name!r}, {x.offset}).astype('{dtype}')"
        if isinstance(x, Vector):
            return self.pack([self.src_vector(e, kind, len(x.elements)) for e in x.elements], dtype)
        raise self.current.bad(f"operand {x} is not understood")

    def src_vector(self, x: Operand, kind: str, count: int) -> str:
        width = int(REPRESENTATION[kind][1:]) // count if kind != "b128" else 16 // count
        return self.src(x, f"b{width * 8}")

    def pack(self, parts: list[str], dtype: str) -> str:
        return f"pack(({', '.join(parts)},), '{dtype}')"

    def immediate(self, x: Immediate, kind: str, dtype: str) -> str:
        if dtype == "bool":
            return self.const(bool(x.value), "bool")
        if dtype in ("f4", "f8"):
            if x.kind == "int":
                if kind in ("f32", "f64"):
                    return self.const(float(x.value), dtype)
                raise self.current.bad("an integer constant stands for a float")
            if dtype == "f4" and x.kind == "f32":
                return self.const(np.array(x.bits, "u4").view("f4"), "f4")
            return self.const(x.value, dtype)
        if x.kind == "int":
            return self.const(int(x.value), dtype)
        bits = x.bits
        if kind == "f16":
            bits = int(np.array(x.value, "f2").view("u2"))
        return self.const(bits, dtype)

    def special(self, x: Special, dtype: str) -> str:
        return f"S.machine.special(S, {x.name!r}).astype('{dtype}')"

    def frame(self, x: Operand) -> str | None:
        """Local address of ``[name + offset]`` where the name is a ``.param`` variable of the body, else None."""
        base = x.base if isinstance(x, Address) else None
        found = self.whole.frame(base.name, self.current.raw.scope) if isinstance(base, Symbol) else None
        if found is None or not isinstance(x, Address) or not isinstance(base, Symbol):
            return None
        if not 0 <= (offset := base.offset + x.offset) < found[1]:
            raise self.current.bad(f"{base.name} has {found[1]} bytes")
        return self.const(found[0] + offset, "i8")

    def address(self, x: Operand, dtype: str = "i8") -> str:
        """Expression of the address of ``[base + offset]`` as int64."""
        if not isinstance(x, Address):
            raise self.current.bad("an address was expected")
        base = x.base
        if isinstance(base, Symbol):
            return f"S.symbol({base.name!r}, {base.offset + x.offset})"
        if isinstance(base, Immediate):
            return self.const(int(base.value) + x.offset, "i8")
        if not isinstance(base, Register):
            raise self.current.bad("the address is no register, symbol or constant")
        number = self.register(base)
        wide = self.widths[number] == "u8"
        dtype = "i8" if wide else "u4"
        text = self.read(number, dtype)
        if x.offset:
            text = f"({text} + {self.const(x.offset, dtype)})"  # 32-bit addresses wrap
        return text if wide else f"{text}.astype('i8')"

    def guard(self) -> str | None:
        """Expression of the guard, or None."""
        if (g := self.current.raw.guard) is None:
            return None
        text = self.read(self.register(g), "bool")
        if not g.negated:
            return text
        name = self.cache.get((self.register(g), "not"))
        if name is None:
            name = f"n{self.register(g)}"
            self.emit(f"{name} = ~{text}")
            self.cache[self.register(g), "not"] = name
        return name

    # ---- writing

    def emit(self, line: str) -> None:
        self.lines.append(line)
        self.places.append(self.index)

    def assign(self, x: Operand, kind: str, value: str, *, guarded: bool = True) -> None:
        """Assign an expression of type ``kind`` to an operand, extended to the register's width if narrower."""
        if isinstance(x, Sink):
            self.emit(value)
            return
        dtype = REPRESENTATION.get(kind, kind)
        if isinstance(x, Vector):
            size = 16 if dtype == "c16" else int(dtype[1:])
            part = f"u{size // len(x.elements)}"
            name = self.temp()
            self.emit(f"{name} = unpack({value}, '{part}', {len(x.elements)})")
            for i, e in enumerate(x.elements):
                if not isinstance(e, Sink):
                    self.assign(e, part, f"{name}[{i}]")
            return
        if not isinstance(x, Register):
            raise self.current.bad("the destination is no register")
        number = self.register(x)
        own = self.widths[number]
        if dtype == "bool" or own == "bool":
            if dtype != own:
                raise self.current.bad("predicate and number are mixed")
        elif dtype[1:] != own[1:]:
            signed = dtype[0] == "i"
            value = f"{value}.astype('i{own[1:]}')" if signed else f"{value}.astype('{own}')"
            dtype = ("i" if signed else "u") + own[1:] if own != "c16" else own
        guard = self.guard() if guarded else None
        name = f"r{number}" if dtype == own else f"r{number}_{dtype}"
        if guard is not None:
            old = self.read(number, dtype)
            value = f"W({guard}, {value}, {old})"
        self.emit(f"{name} = {value}")
        for key in [k for k in self.cache if k[0] == number]:
            del self.cache[key]
        self.cache[number, dtype] = name
        self.defined.add(number)

    def end(self, line: str) -> None:
        """Finish the block with a statement that tells the scheduler what is next (after live-out is saved)."""
        self.ended = True
        self.final = line

    # ---- driving

    def instruction(self, raw: Instruction) -> None:
        self.index = raw.index
        ins = self.current = Ins(raw)
        emitter = FORMS.get(ins.op)
        if emitter is None:
            raise ins.bad(f"opcode {ins.op} is not known")
        emitter(self, ins)
        ins.done()

    def body(self, number: int) -> Body:
        """Source lines of one block, without the saving of live registers."""
        code = self.blocks[number]
        self.reset(number)
        at = self.index = code.first
        instructions = self.function.instructions
        while at < code.last:
            group = FUSED.get(instructions[at].opcode)
            try:
                taken = group(self, instructions, at, code.last) if group else 0
                if not taken:
                    self.instruction(instructions[at])
                    taken = 1
            except Exception as error:
                raise located(error, self.function, at) from error
            at += taken
        if not self.ended:
            last = number == len(self.blocks) - 1  # behind all instructions, where a kernel ends as by ret
            self.final = "return S.retire()" if last else f"return {self.starts[code.last]}"
        return Body(self.lines, self.places, self.prologue, self.defined, self.cache, self.final)

    def reset(self, number: int) -> None:
        """Start a block: nothing is known of its registers."""
        self.lines: list[str] = []
        self.places: list[int] = []
        self.prologue: list[int] = []
        self.cache: dict[tuple[int, str], str] = {}
        self.defined: set[int] = set()
        self.ended, self.final = False, ""
        self.carry: str | None = None
        self.number, self.index = number, 0

    def finish(self, number: int, body: Body) -> tuple[list[str], list[int]]:
        """All lines of the block's function and, beside each, the index of its instruction."""
        code = self.blocks[number]
        self.lines, self.places, self.prologue = [], [], []
        self.cache = body.cache
        saved: list[str] = []
        for n in sorted(body.defined & self.live_out(number)):
            text = self.read(n, self.widths[n])
            saved.append(f"R[{n}] = {text}")
        head = [f"r{n} = R[{n}]" for n in body.prologue]
        tail = [*self.lines, *saved, body.final]
        last = max(code.last - 1, code.first)
        return [*head, *body.lines, *tail], [code.first] * len(head) + body.places + [last] * len(tail)

    def liveness(self, bodies: list[Body]) -> None:
        """Fill in the registers live at the start of each block."""
        uses = [set(b.prologue) for b in bodies]
        follow = [self.successors(i) for i in range(len(bodies))]
        live = [set(u) for u in uses]
        changed = True
        while changed:
            changed = False
            for i in reversed(range(len(bodies))):
                out: set[int] = set()
                for s in follow[i]:
                    out |= live[s]
                new = uses[i] | (out - bodies[i].defined)
                if new != live[i]:
                    live[i], changed = new, True
        for code, registers in zip(self.blocks, live, strict=True):
            code.live = tuple(sorted(registers))

    def live_out(self, number: int) -> set[int]:
        out: set[int] = set()
        for s in self.successors(number):
            out |= set(self.blocks[s].live)
        return out

    def successors(self, number: int) -> tuple[int, ...]:
        code = self.blocks[number]
        last = self.function.instructions[code.last - 1] if code.last > code.first else None
        out: list[int] = []
        if last is not None and last.is_branch:
            out += [self.block_at(t) for t in self.function.targets(last)]
        if last is None or not last.ends_block or last.guard is not None:
            follows = self.starts.get(code.last)
            if follows is not None:
                out.append(follows)
        return tuple(out)

    def block_at(self, instruction: int) -> int:
        return self.starts[instruction]
