"""What ``#name`` stands for in one module: layouts, and places in the user's Python.

Not read before something asks. Chains of calls are cut at 64 places, so that a hostile text cannot make one that
doubles with each line.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import replace

from kcontract.errors import InputError
from kcontract.ir.location import Location
from kcontract.ir.ttgir.text import QUOTED, STRING, balanced_end, split_top, unquote

_ALIAS = re.compile(r"#[A-Za-z_][\w$]*")
_FILE = re.compile(rf"({QUOTED}):(\d{{1,9}}):(\d{{1,9}})")
_NAMED = re.compile(rf"({QUOTED})")
_MAX_CALLERS = 64
_MAX_NESTING = 100
_MAX_RESOLVED = 1 << 20


class Aliases:
    """The alias lines of one text, given as (line number, line)."""

    def __init__(self, lines: list[tuple[int, str]]) -> None:
        self._lines = lines
        self._known: dict[str, Location | None] = {}
        self._resolved: dict[str, str] = {}

    @functools.cached_property
    def _definitions(self) -> dict[str, str]:
        definitions = {}
        for number, line in self._lines:
            name, equals, value = line.partition(" = ")
            if not equals:
                raise InputError("an alias without a value; the text seems cut", line=number)
            definitions[name] = value.strip()
        return definitions

    @functools.cached_property
    def _column_shift(self) -> int:
        """Triton up to 3.6 counts columns from 0 and places every kernel's ``def`` in column 0; later ones from 1."""
        return int(any(value.endswith(":0)") and _FILE.search(value) for value in self._definitions.values()))

    @functools.cached_property
    def layouts(self) -> Mapping[str, str]:
        """Aliases that are no locations."""
        return {name: value for name, value in self._definitions.items() if not value.startswith("loc(")}

    def resolve(self, text: str) -> str:
        """``text`` with its aliases replaced, again and again until none is left or 1 MB was put in."""
        if "#" not in text:
            return text
        if (known := self._resolved.get(text)) is not None:
            return known
        result, layouts, budget = text, self.layouts, _MAX_RESOLVED

        def replacement(match: re.Match[str]) -> str:
            nonlocal budget
            found = layouts.get(match[0], match[0])
            budget -= len(found)
            return found if budget > 0 else match[0]

        for _ in range(_MAX_NESTING):
            replaced = _ALIAS.sub(replacement, result)
            if replaced == result:
                break
            result = replaced
        self._resolved[text] = result
        return result

    def location(self, text: str, line: int) -> Location | None:
        """Read what stands inside ``loc(…)`` on ``line``. Raises ``InputError`` for an alias nothing defines."""
        return self._location(text, line, 0)

    def _location(self, text: str, line: int, depth: int) -> Location | None:
        text = text.strip()
        if text in self._known:
            return self._known[text]
        if depth > _MAX_NESTING:
            return None
        self._known[text] = None
        self._known[text] = found = self._read(text, line, depth + 1)
        return found

    def _read(self, text: str, line: int, depth: int) -> Location | None:
        if text.startswith("#"):
            definition = self._definitions.get(text)
            if definition is None:
                raise InputError(f"location {text[:40]} is not defined; the text seems cut", line=line)
            return self._location(definition[4:-1], line, depth)
        if match := _FILE.match(text):
            return Location(unquote(match[1]), int(match[2]), int(match[3]) + self._column_shift)
        if text.startswith("callsite("):
            callee, caller = (self._location(part, line, depth) for part in _callsite(text[9:-1]))
            if callee is None or caller is None:
                return callee or caller
            return replace(callee, callers=(*callee.callers, *caller.chain())[:_MAX_CALLERS])
        if match := _NAMED.match(text):
            inner = self._location(text[match.end() + 1 : -1], line, depth) if match.end() < len(text) else None
            return None if inner is None else replace(inner, name=unquote(match[1]))
        if text.startswith("fused"):
            start = balanced_end(text, 5) if text.startswith("fused<") else 5
            parts = (self._location(part, line, depth) for part in split_top(text[start + 1 : -1]))
            return next((part for part in parts if part is not None), None)
        return None


def _callsite(text: str) -> tuple[str, str]:
    """Callee and caller of ``callee at caller``: the first ``at`` outside strings and brackets parts them."""
    plain = STRING.sub(lambda match: "_" * len(match[0]), text)
    depth = 0
    for match in re.finditer(r"[(\[<)\]>]| at ", plain):
        token = match[0]
        if token == " at ":
            if depth == 0:
                return text[: match.start()], text[match.end() :]
        else:
            depth += 1 if token in "([<" else -1
    return text, ""
