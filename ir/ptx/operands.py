"""Operands of PTX instructions.

Why: rules and the simulator ask "which register, which address, which bits"; this file answers from the operand's
text alone plus the names in scope. It checks no instruction's signature, and what it cannot read is ``Opaque``,
never an error.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Register:
    """A register. ``type`` is its declared one without the dot (``b32``, ``pred``), None if undeclared here;
    ``member`` is ``x`` of ``%v.x``; ``negated`` is the ``!`` before a predicate."""

    name: str
    type: str | None = None
    member: str | None = None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Special:
    """A read-only special register such as ``%tid.x``, ``%laneid`` or ``%clock64``."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant. ``kind`` is ``int``, ``f32`` (``0f…``) or ``f64`` (``0d…``, ``1.5``); ``bits`` is the bit pattern
    of a float, and the value modulo 2**64 of an integer."""

    text: str
    kind: str
    value: int | float
    bits: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable, parameter or function by name, plus ``offset`` bytes."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Label:
    """A branch target or a list of them (``.branchtargets``), in scope where it is used."""

    name: str


@dataclass(frozen=True, slots=True)
class Address:
    """``[base + offset]``; ``coordinates`` are the further operands inside the brackets (TMA: the vector of
    indices). ``offset`` is in bytes."""

    base: Operand
    offset: int = 0
    coordinates: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Vector:
    """``{a, b}``, in written order."""

    elements: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two destinations written ``a|b``."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Group:
    """``(a, b)``: the results or the arguments of a call."""

    elements: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Sink:
    """``_``: a result that is thrown away."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """Text that this reader does not understand."""

    text: str


Operand = Register | Special | Immediate | Symbol | Label | Address | Vector | Pair | Group | Sink | Opaque

#: Tells what a bare name is where it is used.
Resolve = Callable[[str], Operand]

#: PTX ISA 9, Special Registers, without the percent sign and the member.
_SPECIAL = re.compile(
    r"n?tid|laneid|n?warpid|n?ctaid|n?smid|gridid|is_explicit_cluster|n?clusterid|cluster_n?cta(?:id|rank)"
    r"|lanemask_(?:eq|le|lt|ge|gt)|clock(?:_hi|64)?|globaltimer(?:_lo|_hi)?|(?:total|aggr|dynamic)_smem_size"
    r"|current_graph_exec|reserved_smem_offset_(?:begin|end|cap|\d)|envreg\d{1,2}|pm\d(?:_64)?",
    re.ASCII,
)

_TOKEN = re.compile(
    r"\s*(?:([%$A-Za-z_][\w$]*(?:\.[A-Za-z]\w*)?)"
    r"|(0[fF][0-9A-Fa-f]{8}(?!\w)|0[dD][0-9A-Fa-f]{16}(?!\w)|\d+\.\d*(?:[eE][+-]?\d+)?|\d[\dA-Za-z]*)"
    r"|([\[\]{}(),|!+\-]))",
    re.ASCII,
)
_INTEGER = re.compile(r"0[xX][0-9A-Fa-f]{1,16}U?|0[bB][01]{1,64}U?|\d{1,20}U?", re.ASCII)
_NAME = re.compile(r"[%$A-Za-z_]", re.ASCII)
_MAX_NESTING = 8
#: The longest operand list that is taken apart, in characters; 128 registers take about 1,000.
MAX_OPERANDS = 2**16


def is_special(name: str) -> bool:
    """Whether ``name`` (with its percent sign and member) is a special register of the PTX ISA."""
    stem = name[1:].partition(".")[0]
    return name.startswith("%") and _SPECIAL.fullmatch(stem) is not None


def immediate(text: str) -> Immediate | None:
    """The constant written as ``text``, or None."""
    lead = text[:2].lower()
    if lead == "0f" and len(text) == 10:
        bits = int(text[2:], 16)
        return Immediate(text, "f32", struct.unpack("<f", bits.to_bytes(4, "little"))[0], bits)
    if lead == "0d" and len(text) == 18:
        bits = int(text[2:], 16)
        return Immediate(text, "f64", struct.unpack("<d", bits.to_bytes(8, "little"))[0], bits)
    if "." in text and len(text) <= 64:
        value = float(text)
        return Immediate(text, "f64", value, int.from_bytes(struct.pack("<d", value), "little"))
    if not _INTEGER.fullmatch(text):
        return None
    digits = text.rstrip("U")
    octal = digits.startswith("0") and digits.isdecimal() and len(digits) > 1
    if octal and not set(digits) <= set("01234567"):
        return None
    number = int(digits, 8) if octal else int(digits, 0)
    return Immediate(text, "int", number, number % 2**64)


class _Reader:
    """Recursive descent over the tokens of one operand list, at most ``_MAX_NESTING`` deep."""

    def __init__(self, tokens: list[str], resolve: Resolve) -> None:
        self.tokens, self.resolve, self.at = tokens, resolve, 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def expect(self, token: str) -> None:
        if self.next() != token:
            raise ValueError(token)

    def items(self, close: str, depth: int) -> tuple[Operand, ...]:
        """Operands up to ``close``, which is consumed; ``""`` is the end of the text."""
        found: list[Operand] = []
        if self.peek() == close:
            self.next()
            return ()
        while True:
            found.append(self.item(depth))
            token = self.next()
            if token == close:
                return tuple(found)
            if token != ",":
                raise ValueError(token)

    def item(self, depth: int) -> Operand:
        if depth > _MAX_NESTING:
            raise ValueError("nesting")
        first = self.single(depth)
        if self.peek() == "|":
            self.next()
            return Pair(first, self.single(depth))
        return first

    def single(self, depth: int) -> Operand:
        token = self.next()
        if token == "{":
            return Vector(self.items("}", depth + 1))
        if token == "(":
            return Group(self.items(")", depth + 1))
        if token == "[":
            return self.address(depth + 1)
        if token == "_":
            return Sink()
        if token == "!":
            operand = self.resolve(self.next())
            if not isinstance(operand, Register):
                raise ValueError(token)
            return Register(operand.name, operand.type, operand.member, True)
        if token in ("+", "-"):
            return self.signed(token)
        if token[:1].isdigit():
            return self.constant(token)
        if not _NAME.match(token):
            raise ValueError(token)
        operand = self.resolve(token)
        offset = self.offset()
        if offset and isinstance(operand, Symbol):
            return Symbol(operand.name, offset)
        if offset:
            raise ValueError(token)
        return operand

    def signed(self, sign: str) -> Immediate:
        constant = self.constant(self.next())
        if sign == "+":
            return constant
        if isinstance(constant.value, float):
            top = 1 << (31 if constant.kind == "f32" else 63)
            return Immediate("-" + constant.text, constant.kind, -constant.value, constant.bits ^ top)
        return Immediate("-" + constant.text, "int", -constant.value, -constant.value % 2**64)

    def constant(self, text: str) -> Immediate:
        constant = immediate(text)
        if constant is None:
            raise ValueError(text)
        return constant

    def offset(self) -> int:
        """The sum of ``+ n`` and ``- n`` (also ``+ -n``) that follow, in bytes."""
        total = 0
        while self.peek() in ("+", "-"):
            sign = 1
            while self.peek() in ("+", "-"):
                sign = -sign if self.next() == "-" else sign
            value = self.constant(self.next()).value
            if not isinstance(value, int):
                raise ValueError("offset")
            total += sign * value
        return total

    def address(self, depth: int) -> Address:
        token = self.next()
        if not token[:1].isdigit() and not _NAME.match(token):
            raise ValueError(token)
        base = self.constant(token) if token[:1].isdigit() else self.resolve(token)
        offset = self.offset()
        if self.peek() == ",":
            self.next()
            return Address(base, offset, self.items("]", depth))
        self.expect("]")
        return Address(base, offset)


def parse_operands(text: str, resolve: Resolve) -> tuple[Operand, ...]:
    """The operands of one instruction; ``text`` is what stands between opcode and semicolon."""
    if len(text) > MAX_OPERANDS:
        return (Opaque(text.strip()),)
    tokens: list[str] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            return (Opaque(text.strip()),)
        tokens.append(match[1] or match[2] or match[3])
        at = match.end()
    if not tokens:
        return ()
    try:
        return _Reader(tokens, resolve).items("", 0)
    except (ValueError, IndexError, OverflowError):
        return (Opaque(text.strip()),)
