"""Reads the few facts of a cubin that nothing else holds: registers, stack frame, static shared memory, spills.

Why: ``cuobjdump`` answers the same in 2 – 9 ms a kernel and is not on every machine. A cubin is a 64-bit ELF file;
``.nv.info`` holds attributes per function, code is in ``.text.NAME``. Of the code only local loads and stores are
looked at (opcodes 0x983 LDL and 0x387 STL, the low 12 bits of the 16-byte instructions that sm_70 to sm_121 share).

Layouts and attribute numbers: ELF-64 specification; ``nvdisasm`` and ``cuobjdump`` outputs on Triton's cubins.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kcontract.errors import InputError

_EM_CUDA = 190
_ABI_NEW = 0x41  # e_ident[7]: from CUDA 13 on, the capability stands in the second byte of e_flags
_ATTRIBUTE_REGISTERS, _ATTRIBUTE_FRAME, _ATTRIBUTE_REQNTID = 0x2F, 0x11, 0x10
_FORMAT_SIZED = 4
_SHT_NULL, _SHT_NOBITS = 0, 8
_SYMBOL_BYTES = 24
_MAX_SECTIONS = 4096  # Triton's cubins have about 40
_MAX_ATTRIBUTES = 100_000
_RESERVED_SHARED = 1024
_INSTRUCTION_BYTES = 16
_LOAD_LOCAL, _STORE_LOCAL = 0x983, 0x387
_WIDTHS = (1, 1, 2, 2, 4, 8, 16, 16)


@dataclass(frozen=True, slots=True)
class Code:
    """One function of a cubin. All figures in bytes but ``registers`` (32-bit, per thread); None: not recorded.

    ``static_shared`` leaves out the KiB a block that the system keeps from sm_90 on, which the file's section counts.
    ``local_loads`` and ``local_stores`` sum the widths of the local accesses in the code, each instruction counted
    once however often it runs, as ``ptxas -v`` counts spills.
    """

    name: str
    registers: int | None
    frame: int | None
    static_shared: int
    local_loads: int
    local_stores: int
    threads: tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class Cubin:
    """A cubin: its compute capability (10 × major + minor) and its functions by name."""

    capability: int
    functions: Mapping[str, Code] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    start: int
    size: int


def read(content: bytes) -> Cubin:
    """The cubin in ``content``. Raises ``InputError`` for anything else, and for one that is cut off."""
    if len(content) < 64 or content[:6] != b"\x7fELF\x02\x01":
        raise InputError("this is not a cubin: it is no 64-bit little-endian ELF file")
    if struct.unpack_from("<H", content, 18)[0] != _EM_CUDA:
        raise InputError("this is an ELF file of another machine, not a cubin")
    try:
        sections = _sections(content)
        return _facts(content, sections)
    except (struct.error, LookupError, UnicodeDecodeError) as error:
        raise InputError("the cubin is damaged or cut off") from error


def _text(content: bytes, start: int, offset: int, size: int) -> str:
    if offset >= size:
        raise IndexError(offset)
    end = content.find(b"\0", start + offset, start + size)
    if end < 0 or end - start - offset > 4096:
        raise IndexError(end)
    return content[start + offset : end].decode()


def _sections(content: bytes) -> list[_Section]:
    (table,) = struct.unpack_from("<Q", content, 40)
    size, count, names = struct.unpack_from("<HHH", content, 58)
    if size != 64 or not names < count <= _MAX_SECTIONS or table + size * count > len(content):
        raise IndexError(table)
    rows = [struct.unpack_from("<IIQQQQ", content, table + size * index) for index in range(count)]
    _, _, _, _, name_start, name_size = rows[names]
    if name_start + name_size > len(content):
        raise IndexError(name_start)
    sections = []
    for name, kind, _, _, start, length in rows:
        if kind not in (_SHT_NULL, _SHT_NOBITS) and start + length > len(content):
            raise IndexError(start)
        sections.append(_Section(_text(content, name_start, name, name_size) if name_size else "", kind, start, length))
    read = sum(section.size for section in sections if section.name.startswith((".text.", ".nv.info")))
    if read > len(content):
        raise IndexError(read)
    return sections


def _symbol(content: bytes, table: _Section, strings: _Section, index: int) -> str:
    """The name of one entry of the symbol table."""
    if index >= table.size // _SYMBOL_BYTES:
        raise IndexError(index)
    (offset,) = struct.unpack_from("<I", content, table.start + _SYMBOL_BYTES * index)
    return _text(content, strings.start, offset, strings.size)


def _attributes(content: bytes, section: _Section) -> Iterator[tuple[int, bytes]]:
    """The (number, payload) pairs of one ``.nv.info`` section."""
    at, end = section.start, section.start + section.size
    for _ in range(_MAX_ATTRIBUTES):
        if at + 4 > end:
            return
        form, number, size = struct.unpack_from("<BBH", content, at)
        payload_end = at + 4 + (size if form == _FORMAT_SIZED else 0)
        if payload_end > end:
            raise IndexError(payload_end)
        yield number, content[at + 4 : payload_end] if form == _FORMAT_SIZED else content[at + 2 : at + 4]
        at = payload_end
    raise IndexError(at)


def _local_bytes(code: bytes, opcode: int) -> int:
    """Bytes moved by the instructions in ``code`` whose low 12 bits are ``opcode``, each counted once."""
    whole = len(code) // _INSTRUCTION_BYTES * _INSTRUCTION_BYTES
    lowest, total = code[0:whole:_INSTRUCTION_BYTES], 0
    at = lowest.find(opcode & 0xFF)
    while at >= 0:
        start = at * _INSTRUCTION_BYTES
        if code[start + 1] & 0xF == opcode >> 8:
            total += _WIDTHS[code[start + 9] >> 1 & 7]
        at = lowest.find(opcode & 0xFF, at + 1)
    return total


def _facts(content: bytes, sections: list[_Section]) -> Cubin:
    (flags,) = struct.unpack_from("<I", content, 48)
    capability = flags >> 8 & 0xFF if content[7] == _ABI_NEW else flags & 0xFF
    registers: dict[str, int] = {}
    frames: dict[str, int] = {}
    threads: dict[str, tuple[int, int, int]] = {}
    shared: dict[str, int] = {}
    by_name = {section.name: section for section in sections}
    for section in sections:
        if section.name == ".nv.info":
            for number, payload in _attributes(content, section):
                if number in (_ATTRIBUTE_REGISTERS, _ATTRIBUTE_FRAME):
                    symbol, value = struct.unpack("<II", payload)
                    name = _symbol(content, by_name[".symtab"], by_name[".strtab"], symbol)
                    (registers if number == _ATTRIBUTE_REGISTERS else frames)[name] = value
        elif section.name.startswith(".nv.info."):
            for number, payload in _attributes(content, section):
                if number == _ATTRIBUTE_REQNTID:
                    threads[section.name[len(".nv.info.") :]] = struct.unpack("<III", payload)
        elif section.name.startswith(".nv.shared.") and not section.name.startswith(".nv.shared.reserved"):
            reserved = _RESERVED_SHARED if capability >= 90 else 0
            shared[section.name[len(".nv.shared.") :]] = max(0, section.size - reserved)
    functions = {}
    for section in sections:
        if section.name.startswith(".text."):
            name = section.name[len(".text.") :]
            code = content[section.start : section.start + section.size]
            loads, stores = _local_bytes(code, _LOAD_LOCAL), _local_bytes(code, _STORE_LOCAL)
            functions[name] = Code(
                name, registers.get(name), frames.get(name), shared.get(name, 0), loads, stores, threads.get(name)
            )
    return Cubin(capability, functions)
