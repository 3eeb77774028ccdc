"""The PTX reader: from the text of a ``.ptx`` to functions, instructions, operands and places.

    program = parse(text)                   # InputError, with the line, for what is no PTX or is cut off
    program.version, .target, .address_size, .files, .variables, .functions, program.entry
    program.opcodes()                       # how often each, without making instructions
    entry.parameters, .directives["reqntid"], .variables, .registers, .scopes, .labels, .blocks
    i.name, i.opcode, i.modifiers, i.guard, i.operands, i.line, i.scope, i.inline, i.location   # of entry.instructions
    entry.targets(i), entry.register("%r1", i.scope), entry.resolve_label("loop", i.scope)
    Register, Special, Immediate, Symbol, Label, Address, Vector, Pair, Group, Sink, Opaque     # the operands

Statements are read at once, instructions and operands when asked for. Unknown opcodes and directives are kept as they
stand, operands that cannot be read are ``Opaque``; neither is an error. It knows no instruction's signature.
"""

from __future__ import annotations

from kcontract.ir.ptx.operands import (
    Address,
    Group,
    Immediate,
    Label,
    Opaque,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)
from kcontract.ir.ptx.program import Block, Function, Instruction, Parameter, Program, Registers, Scope, Variable
from kcontract.ir.ptx.reader import MAX_CHARACTERS, parse

__all__ = [
    "MAX_CHARACTERS",
    "Address",
    "Block",
    "Function",
    "Group",
    "Immediate",
    "Instruction",
    "Label",
    "Opaque",
    "Operand",
    "Pair",
    "Parameter",
    "Program",
    "Register",
    "Registers",
    "Scope",
    "Sink",
    "Special",
    "Symbol",
    "Variable",
    "Vector",
    "parse",
]
