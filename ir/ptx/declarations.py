"""Declarations of PTX: parameters, variables, registers, function headers.

Why: these few statements have a grammar of their own; the scanner hands over their text. Numbers of absurd length
raise ``InputError``; unknown words are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kcontract.errors import InputError
from kcontract.ir.ptx.program import TYPE_BYTES, Parameter, Registers, Variable

_SPACES = ("shared", "global", "const", "local", "param", "reg")
_COMMENT = re.compile(r"//[^\n]*|/\*[^*]*(?:\*(?!/)[^*]*){0,4096}\*/", re.ASCII)
_WORD = re.compile(r"\.([A-Za-z]\w*)(::\w+)?|([%$\w]+)|\[\s*(\d*)\s*\]|<\s*(\d+)\s*>|(=)|(,)|(\S)", re.ASCII)
_HEADER = re.compile(r"\s*(?:\(([^()]*)\)\s*)?([%$\w]+)\s*(?:\(([^()]*)\))?([^()]*(?:\([^()]*\)[^()]*){0,8})", re.ASCII)
_DIRECTIVE = re.compile(r"\.([A-Za-z]\w*)(?:[ \t]+(\d[\d \t,]*))?", re.ASCII)
_REFERENCE_BYTES = 8
_MAX_NAMES = 10_000


@dataclass(frozen=True, slots=True)
class Header:
    """What stands between ``.entry`` or ``.func`` and the body."""

    name: str
    parameters: tuple[Parameter, ...]
    returns: tuple[Parameter, ...]
    directives: dict[str, tuple[int, ...]]


def number(text: str, line: int) -> int:
    """A decimal number of at most 18 digits."""
    if len(text) > 18:
        raise InputError(f"PTX has a number of {len(text)} digits; the text is damaged", line=line)
    return int(text)


def without_comments(text: str) -> str:
    """``text`` with its comments blanked."""
    return _COMMENT.sub(" ", text) if "/" in text else text


@dataclass(slots=True)
class _Declared:
    """One name with all that was said about it."""

    space: str = ""
    type: str = ""
    vector: str = ""
    align: int | None = None
    pointer: str | None = None
    pointee_align: int | None = None
    name: str = ""
    elements: int | None = 1
    count: int | None = None
    initializer: str = ""

    @property
    def element_bytes(self) -> int:
        lanes = int(self.vector[1:]) if self.vector else 1
        return TYPE_BYTES.get(self.type, _REFERENCE_BYTES) * lanes

    @property
    def size(self) -> int | None:
        return None if self.elements is None else self.element_bytes * self.elements


def _declared(text: str, line: int, is_statement: bool = True) -> Iterator[_Declared]:
    """The names declared by one statement or parameter list; a type holds for the names after a comma until another
    is given, an alignment in statements only."""
    text = without_comments(text)
    entry, is_pointer, wants_align, dimensions, names = _Declared(), False, False, 0, 0
    for match in _WORD.finditer(text):
        word, plain, length, count = match[1], match[3], match[4], match[5]
        if word is not None:
            wants_align = word == "align"
            if word == "ptr":
                is_pointer, entry.pointer = True, "generic"
            elif word in _SPACES and is_pointer:
                entry.pointer = word
            elif word in _SPACES:
                entry.space = word
            elif word in ("v2", "v4", "v8"):
                entry.vector = word
            elif word in TYPE_BYTES or word.endswith("ref"):
                entry.type = word
        elif plain is not None and wants_align:
            wants_align = False
            if is_pointer:
                entry.pointee_align = number(plain, line) if plain.isdecimal() else None
            else:
                entry.align = number(plain, line) if plain.isdecimal() else None
        elif plain is not None:
            entry.name, dimensions = plain, 0
        elif length is not None:
            if length == "":
                entry.elements = None
            elif entry.elements is not None:
                entry.elements = entry.elements * number(length, line) if dimensions < 8 else None
            dimensions += 1
        elif count is not None:
            entry.count = number(count, line)
        elif match[6] is not None:
            entry.initializer = text[match.end() :].strip()
            break
        elif match[7] is not None:
            names += 1
            if names > _MAX_NAMES:
                raise InputError(f"PTX declares over {_MAX_NAMES} names at once; the text is damaged", line=line)
            yield entry
            entry = _Declared(entry.space, entry.type, entry.vector, entry.align if is_statement else None)
            is_pointer = wants_align = False
    if entry.name:
        yield entry


def registers(text: str, scope: int, line: int) -> Iterator[Registers]:
    """The names of one ``.reg`` statement; ``text`` is what follows ``.reg``."""
    for entry in _declared(text, line):
        kind = f"{entry.vector}.{entry.type}" if entry.vector else entry.type
        yield Registers(entry.name, kind, entry.count, scope)


def variables(space: str, linkage: str, text: str, scope: int, line: int) -> Iterator[Variable]:
    """The names of one variable statement of state space ``space``; ``text`` is what follows it."""
    for entry in _declared(text, line):
        align = entry.align if entry.align is not None else entry.element_bytes
        yield Variable(
            entry.name,
            entry.space or space,
            entry.type,
            align,
            entry.elements,
            entry.size,
            linkage,
            entry.initializer,
            scope,
            line,
        )


def _parameters(text: str | None, line: int) -> tuple[Parameter, ...]:
    if not text or not text.strip():
        return ()
    made = []
    for entry in _declared(text, line, is_statement=False):
        align = entry.align if entry.align is not None else entry.element_bytes
        made.append(Parameter(entry.name, entry.type, entry.size or 0, align, entry.pointer, entry.pointee_align))
    return tuple(made)


def header(text: str, line: int) -> Header:
    """Name, parameters, results and tuning directives; ``text`` is what follows ``.entry`` or ``.func``."""
    match = _HEADER.match(without_comments(text))
    if match is None:
        raise InputError("PTX has a function without a name; the text is damaged", line=line)
    directives = {
        found[1]: tuple(number(part.strip(), line) for part in (found[2] or "").split(",") if part.strip().isdecimal())
        for found in _DIRECTIVE.finditer(match[4])
    }
    return Header(match[2], _parameters(match[3], line), _parameters(match[1], line), directives)
