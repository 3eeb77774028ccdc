"""Cutting MLIR text at its top level: brackets and strings are respected, nothing is understood.

Every function is linear in its input and never recurses, so that hostile text costs time, not a crash.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# A string that nothing closes reaches to the end, and a backslash always takes what follows it: there is one way to
# match, so no text makes a pattern that goes on after it slow.
QUOTED = r'"[^"\\]*(?:\\(?:[\s\S]|\Z)[^"\\]*)*"?'
STRING = re.compile(QUOTED)
USE = re.compile(r"%[\w$.-]+(?:#\d+)?")

CONTINUES = (",", "(", "[", "=", "*", ":", "->")
"""What the last line of a printed operation never ends with."""

_TOKEN = re.compile(rf"->|{QUOTED}|[(<\[{{)>\]}},]")
_OPEN, _CLOSE = frozenset("(<[{"), frozenset(")>]}")
_ESCAPE = re.compile(r'((?:\\[0-9A-Fa-f]{2})+)|\\(["\\nt])')


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


def _top_spans(text: str, bracket: str) -> Iterator[tuple[int, int]]:
    """Start and end of what stands inside each top-level ``bracket``."""
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
                yield inside, match.start()
                inside = -1


def top_groups(text: str, bracket: str) -> list[str]:
    """What stands inside each top-level ``bracket`` (one of ``( < [ {``) of ``text``, in order."""
    return [text[start:end] for start, end in _top_spans(text, bracket)]


def without_groups(text: str, bracket: str) -> str:
    """``text`` without its top-level brackets of one kind and what stands in them."""
    pieces, position = [], 0
    for start, end in _top_spans(text, bracket):
        pieces.append(text[position : start - 1])
        position = end + 1
    return "".join((*pieces, text[position:]))


def type_end(text: str, start: int) -> int:
    """The position after the type that begins at ``start``: a word such as ``i32`` or ``!tt.ptr``, and its brackets."""
    while True:
        end = start
        while end < len(text) and (text[end].isalnum() or text[end] in "!._"):
            end += 1
        if end < len(text) and (text[end] == "<" or (end == start and text[end] == "(")):
            end = balanced_end(text, end)
        if text[start : start + 1] != "(" or not text.startswith(" -> ", end):
            return end
        start = end + 4


def unquote(text: str) -> str:
    """The characters of an MLIR string literal, whose other characters than ASCII are printed as UTF-8 bytes."""
    if len(text) < 2 or text[0] != '"':
        return text
    inner = text[1:-1]
    return _ESCAPE.sub(_unescape, inner) if "\\" in inner else inner


def _unescape(match: re.Match[str]) -> str:
    if match[1]:
        return bytes.fromhex(match[1].replace("\\", "")).decode("utf-8", "replace")
    return {"n": "\n", "t": "\t"}.get(match[2], match[2])


def cut_location(line: str) -> tuple[int, str]:
    """Where the text before a trailing ``loc(…)`` ends, and what stands inside; (length, "") without one."""
    start = line.rfind(" loc(")
    if start < 0:
        return (0, line[4:-1]) if line.startswith("loc(") else (len(line), "")
    loc = line[start + 5 : -1]
    if loc[:1] != "#" or ")" in loc:
        blank = plain(line)
        start = blank.rfind(" loc(")
        if start < 0 or balanced_end(blank, start + 4) != len(line):
            return len(line), ""
        loc = line[start + 5 : -1]
    return start, loc


def plain(line: str) -> str:
    """The line with every string blanked out, at the same length."""
    return STRING.sub(lambda match: "_" * len(match[0]), line) if '"' in line else line


def without_comment(line: str) -> str:
    """The line up to a ``//`` outside strings."""
    start = plain(line).find("//")
    return line if start < 0 else line[:start].rstrip()


def join_lines(line: str, numbered: Iterator[tuple[int, str]]) -> str:
    """An operation printed over several lines, in one."""
    parts = [line]
    open_lists = line.count("[") - line.count("]")
    for _, more in numbered:
        more = without_comment(more.strip())
        parts.append(more)
        open_lists += more.count("[") - more.count("]")
        if not more.endswith(CONTINUES) and open_lists <= 0:
            break
    return " ".join(parts)
