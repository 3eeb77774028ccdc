"""Types as Triton prints them, read once a spelling and cached.

A layout stays as printed, most often an alias such as ``#blocked``: only the module knows what it stands for
(``Module.resolve``), and the same spelling is another layout in the next module.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from kcontract.ir.ttgir.text import split_top

_SHAPED = re.compile(r"(tensor|vector|!ttg\.memdesc|!tt\.tensordesc)<")
_DIMENSIONS = re.compile(r"(?:(?:\d+|\?)x)*")
_SCALAR = re.compile(r"(?:si|ui|i|bf|tf|f)(\d+)\w*$|index$")
_KINDS = {"tensor": "tensor", "vector": "vector", "!ttg.memdesc": "memdesc", "!tt.tensordesc": "tensordesc"}


@dataclass(frozen=True, slots=True)
class Type:
    """One type.

    ``kind``: scalar, tensor, memdesc, ptr, tensordesc, token, function, tuple, vector, other (not understood) or
    unknown (the text does not say; its ``text`` is empty). ``element``: the element's spelling (``f16``,
    ``!tt.ptr<f16>``); of a scalar or pointer the type itself. ``shape``: elements a dimension, -1 where dynamic.
    ``encoding``, ``memory_space`` (memdesc) and ``allocation`` (the shape a memdesc was cut from) as printed.
    """

    text: str
    kind: str
    element: str = ""
    shape: tuple[int, ...] = ()
    encoding: str | None = None
    memory_space: str | None = None
    mutable: bool = False
    allocation: tuple[int, ...] | None = None

    def __str__(self) -> str:
        return self.text

    @property
    def is_pointer(self) -> bool:
        """A pointer or a tensor of pointers."""
        return self.element.startswith("!tt.ptr<")

    @property
    def pointee(self) -> Type | None:
        """What a pointer, or each element of a tensor of pointers, points to; None for ``!tt.ptr<>`` too."""
        inner = split_top(self.element[8:-1]) if self.is_pointer else []
        return parse_type(inner[0]) if inner else None

    @property
    def bits(self) -> int | None:
        """Bits of one element: 64 for pointers and index, None where the element is not understood."""
        return element_bits(self.element)

    @property
    def numel(self) -> int:
        """Elements in all; 1 for a scalar."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    def with_element(self, element: str) -> Type:
        """This scalar or tensor with another element type, the same shape and layout."""
        if self.kind not in ("tensor", "vector"):
            return parse_type(element)
        parts = ["".join(f"{'?' if extent < 0 else extent}x" for extent in self.shape) + element]
        parts += [self.encoding] if self.encoding else []
        return parse_type(f"{self.kind}<{', '.join(parts)}>")


UNKNOWN = Type("", "unknown")
MAX_CACHED = 2_000
"""Characters; longer texts are read each time, so that the caches stay small."""


@functools.lru_cache(maxsize=1024)
def element_bits(element: str) -> int | None:
    """Bits of an element type: ``bf16`` 16, ``f8E4M3FN`` 8, ``i1`` 1, pointers and ``index`` 64."""
    if element.startswith("!tt.ptr<"):
        return 64
    match = _SCALAR.match(element)
    if match is None:
        return None
    return int(match[1][:9]) if match[1] else 64


def parse_type(text: str) -> Type:
    """Read one type. Never fails: what is not understood has kind ``other``."""
    return (_read if len(text) < MAX_CACHED else _read.__wrapped__)(text.strip())


@functools.lru_cache(maxsize=4096)
def _read(text: str) -> Type:
    if not text:
        return UNKNOWN
    if match := _SHAPED.match(text):
        return _shaped(text, _KINDS[match[1]], text[match.end() : -1])
    if _SCALAR.match(text):
        return Type(text, "scalar", text)
    if text.startswith("!tt.ptr<"):
        return Type(text, "ptr", text)
    if text.endswith("async.token"):
        return Type(text, "token")
    if text.startswith("("):
        return Type(text, "function")
    return Type(text, "tuple" if text.startswith("tuple<") else "other", text)


def _shaped(text: str, kind: str, inner: str) -> Type:
    if kind == "tensordesc" and inner.startswith("tensor<"):
        block = parse_type(split_top(inner)[0])
        return Type(text, kind, block.element, block.shape, block.encoding)
    first, *rest = split_top(inner) or [""]
    match = _DIMENSIONS.match(first)
    end = match.end() if match else 0
    if kind != "memdesc":
        return Type(text, kind, first[end:], _extents(first[:end]), rest[0] if rest else None)
    sizes = [part for part in rest[2:] if part != "mutable"]
    return Type(
        text,
        kind,
        first[end:],
        _extents(first[:end]),
        rest[0] if rest else None,
        rest[1] if len(rest) > 1 else None,
        "mutable" in rest[2:],
        _extents(sizes[0] + "x") if sizes else None,
    )


def _extents(text: str) -> tuple[int, ...]:
    return tuple(int(part[:18]) if part.isdecimal() else -1 for part in text.split("x")[:-1])


def parse_types(text: str, prefix: str = "") -> tuple[Type, ...]:
    """Types of a list ``A, B`` or ``(A, B)``; ``prefix`` is put before those printed without it (``<f16>``)."""
    text = text.strip()
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    return tuple(parse_type(prefix + part if part.startswith("<") else part) for part in split_top(text))
