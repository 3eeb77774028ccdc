"""The PTX reader: ``parse(text)`` gives a ``Program`` of functions, instructions, operands and places."""

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
