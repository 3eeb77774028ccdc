"""Cutting MLIR text at its top level: brackets and strings are respected, nothing is understood.

Every function is linear in its input and never recurses, so that hostile text costs time, not a crash.
"""

from __future__ import annotations

import re

NAME = r"%[\w$.-]+(?:#\d+)?"
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
USE = re.compile(NAME)

_TOKEN = re.compile(r'->|"(?:[^"\\]|\\.)*"|[(<\[{)>\]},]')
_OPEN, _CLOSE = frozenset("(<[{"), frozenset(")>]}")
_ESCAPE = re.compile(r'\\(?:([0-9A-Fa-f]{2})|(["\\nt]))')


def split_top(text: str) -> list[str]:
    """The pieces of ``text`` between commas outside brackets and strings, stripped; empty text has none."""
    if "," not in text:
        text = text.strip()
        return [text] if text else []
    pieces: list[str] = []
    depth = start = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in _OPEN:
            depth += 1
        elif token in _CLOSE:
            depth -= 1
        elif token == "," and depth <= 0:
            pieces.append(text[start : match.start()].strip())
            start = match.end()
    pieces.append(text[start:].strip())
    return pieces


def balanced_end(text: str, start: int) -> int:
    """The position after the bracket that closes the one at ``start``; ``len(text)`` where none does."""
    depth = 0
    for match in _TOKEN.finditer(text, start):
        token = match[0]
        if token in _OPEN:
            depth += 1
        elif token in _CLOSE:
            depth -= 1
            if depth <= 0:
                return match.end()
    return len(text)


def top_groups(text: str, bracket: str) -> list[str]:
    """What stands inside each top-level ``bracket`` (one of ``( < [ {``) of ``text``, in order."""
    groups: list[str] = []
    depth, inside = 0, -1
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in _OPEN:
            if depth == 0 and token == bracket:
                inside = match.end()
            depth += 1
        elif token in _CLOSE:
            depth -= 1
            if depth == 0 and inside >= 0:
                groups.append(text[inside : match.start()])
                inside = -1
    return groups


def type_end(text: str, start: int) -> int:
    """The position after the type that begins at ``start``: a word such as ``i32`` or ``!tt.ptr``, and its brackets."""
    end = start
    while end < len(text) and (text[end].isalnum() or text[end] in "!._"):
        end += 1
    if end < len(text) and (text[end] == "<" or (end == start and text[end] == "(")):
        end = balanced_end(text, end)
        if text.startswith(" -> ", end) and text[start] == "(":
            return type_end(text, end + 4)
    return end


def unquote(text: str) -> str:
    """The characters of an MLIR string literal (``"a\\0Ab"`` gives two lines)."""
    if len(text) < 2 or text[0] != '"':
        return text
    inner = text[1:-1]
    if "\\" not in inner:
        return inner
    named = {"n": "\n", "t": "\t"}
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else named.get(m[2], m[2]), inner)
