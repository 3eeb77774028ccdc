"""Attributes of operations as text, whichever way they are printed.

Besides dictionaries the pretty form prints attributes as bare words (``arith.cmpi sle, …``), strings, symbols and
``word = value`` pairs. They get the names of the operation definitions, so that ``attributes["predicate"]`` works.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kcontract.ir.ttgir.text import QUOTED, STRING, split_top, top_groups, without_groups

if TYPE_CHECKING:
    from kcontract.ir.ttgir.graph import Operation

_LEADING: dict[str, tuple[str, ...]] = {
    "arith.cmpf": ("predicate",),
    "arith.cmpi": ("predicate",),
    "gpu.block_id": ("dimension",),
    "gpu.thread_id": ("dimension",),
    "tt.assert": ("message",),
    "tt.atomic_cas": ("sem", "scope"),
    "tt.atomic_load": ("sem", "scope"),
    "tt.atomic_poll": ("sem", "scope"),
    "tt.atomic_store": ("sem", "scope"),
    "tt.atomic_rmw": ("atomic_rmw_op", "sem", "scope"),
    "tt.call": ("callee",),
    "tt.descriptor_reduce": ("kind",),
    "tt.elementwise_inline_asm": ("asm_string",),
    "tt.experimental_descriptor_reduce": ("kind",),
    "tt.get_num_programs": ("axis",),
    "tt.get_program_id": ("axis",),
    "tt.print": ("prefix",),
    "ttng.async_tma_reduce": ("kind",),
}
_LEADING_WORD = re.compile(rf"\s*,?\s*({QUOTED}|@[\w$.-]+|@{QUOTED}|[A-Za-z_]\w*)")
_PAIR = re.compile(r"(?:^|[\s,(])([A-Za-z_]\w*) = ([A-Za-z_]\w*|-?\d+|\[[^\[\]]*\])")
_FLAGS = re.compile(r" (fastmath|overflow)<([^<>]*)>")
_FLAG_NAMES = {"fastmath": "fastmath", "overflow": "overflowFlags"}
_FUNCTION = re.compile(rf"\s*(?:(public|private|nested) )?@({QUOTED}|[\w$.-]+)")


def parse_dictionary(text: str) -> dict[str, str]:
    """The first ``{name = value, unit}`` of ``text``; a unit attribute's value is ``unit``."""
    found: dict[str, str] = {}
    for group in top_groups(text, "{")[:1]:
        _read_entries(group, found)
    return found


def _read_entries(group: str, found: dict[str, str]) -> None:
    for entry in split_top(group):
        name, equals, value = entry.partition(" = ")
        if name := name.strip().strip('"'):
            found[name] = value.strip() if equals else "unit"


def operation_attributes(operation: Operation) -> Mapping[str, str]:
    """Every attribute the text of one operation shows."""
    name, body = operation.name, operation.body
    found: dict[str, str] = {}
    if name == "arith.constant":
        return _constant(body)
    if name in ("tt.func", "func.func", "llvm.func"):
        _function(body, found)
    elif words := _LEADING.get(name):
        _leading(body, words, found)
    for text in (body, operation.tail or ""):
        if "{" in text:
            _dictionaries(text, found)
        if " = " in text and not name.startswith(("scf.", "tt.func")):
            found.update((pair[1], pair[2]) for pair in _PAIR.finditer(_before_types(text)))
        for flag in _FLAGS.finditer(text):
            found[_FLAG_NAMES[flag[1]]] = flag[2]
    return found


def _dictionaries(text: str, found: dict[str, str]) -> None:
    if " <{" in text:
        for properties in top_groups(text, "<"):
            if properties.startswith("{"):
                _read_entries(properties[1:-1], found)
    for group in top_groups(text, "{"):
        _read_entries(group, found)


def _before_types(text: str) -> str:
    """What stands before the colon of the types, without dictionaries and strings."""
    return STRING.sub('""', without_groups(text, "{")).partition(" : ")[0]


def _leading(body: str, words: tuple[str, ...], found: dict[str, str]) -> None:
    position = 0
    if words == ("message",):
        match = STRING.search(body)
        if match:
            found["message"] = match[0]
        return
    for word in words:
        match = _LEADING_WORD.match(body, position)
        if match is None:
            return
        found[word] = match[1]
        position = match.end()


def _constant(body: str) -> dict[str, str]:
    found: dict[str, str] = {}
    body = body.strip()
    if body.startswith("{"):
        _dictionaries(body, found)
        body = body[body.rfind("}") + 1 :] if "dense" not in body else body[body.index("dense") :]
    value, _, _ = body.rpartition(" : ")
    found["value"] = value.strip() or body.strip()
    return found


def _function(body: str, found: dict[str, str]) -> None:
    if match := _FUNCTION.match(body):
        found["sym_name"] = match[2]
        found["sym_visibility"] = match[1] or "public"
