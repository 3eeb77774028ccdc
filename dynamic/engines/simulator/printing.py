"""Device printf and assertions: what `call` to vprintf and __assertfail does, and initial values of module "
"variables."""

from __future__ import annotations

import re

import numpy as np

from kcontract.dynamic.engines.simulator import access
from kcontract.dynamic.engines.simulator.faults import Fault, Unsupported
from kcontract.dynamic.engines.simulator.machine import Machine
from kcontract.dynamic.engines.simulator.strand import Strand
from kcontract.dynamic.engines.simulator.values import Array
from kcontract.ir.ptx import Variable

#: Where a parameter begins in a thread's local memory, and its bytes.
Frame = tuple[int, int]
_SPEC = re.compile(r"%(%|[-+ #0]*\d*(?:\.\d+)?(hh|h|ll|l)?([diuxXofFeEgGcsp]))")


def initial(variable: Variable) -> Array:
    """Bytes of a module variable: a list of integers, a string, or zeros; shape (size,)."""
    data = np.zeros(variable.size or 0, "u1")
    text = variable.initializer.strip()
    if not text:
        return data
    if text.startswith('"'):
        raw = text.strip('"').encode().decode("unicode_escape").encode("latin-1")
        data[: len(raw)] = np.frombuffer(raw, "u1")
        return data
    items = [x.strip() for x in text.strip("{} \n").split(",") if x.strip()]
    width = (variable.size or 0) // (variable.elements or 1)
    for k, item in enumerate(items):
        if item[:2].lower() in ("0f", "0d"):
            value = int(item[2:], 16)
        elif re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)", item):
            value = int(item, 0)
        else:
            raise Unsupported(f"the initial value {item} of {variable.name} is not simulated")
        data[k * width : (k + 1) * width] = np.frombuffer((value % (1 << (8 * width))).to_bytes(width, "little"), "u1")
    return data


def _string(machine: Machine, address: int) -> str:
    out = bytearray()
    while True:
        byte = int(machine_byte(machine, address + len(out)))
        if not byte:
            return out.decode("utf-8", "replace")
        out.append(byte)


def machine_byte(machine: Machine, address: int) -> int:
    from kcontract.dynamic.engines.simulator import memory

    place = np.full((1, 1), address, "i8")
    machine.memory.check(place, 1, 1, write=False, width=1)
    return int(memory.load_global(place, "u1")[0, 0])


def call(
    strand_machine: Machine, strand: Strand, name: str, arguments: list[Frame], results: list[Frame], mask: Array | None
) -> None:
    """`vprintf(format, arguments)` prints into the grid's output, a text a thread; `__assertfail` is a Fault."""
    full = strand.full(np.ones((1, 1), bool) if mask is None else mask)
    if not full.any():
        return
    if len(arguments) < (2 if name == "vprintf" else 4):
        raise Unsupported(f"{name} is called with {len(arguments)} arguments")
    frames = [
        access.load(strand, "local", np.full((1, 1), offset, "i8"), f"u{min(size, 8)}", 1, mask)[0]
        for offset, size in arguments
    ]
    if name != "vprintf":
        message, file, line, function = frames[:4]
        first = np.argwhere(full)[0]
        where = (int(strand_machine.ctas[strand.cta[first[0], 0]]), int(strand.full(strand.tid)[tuple(first)]))
        text, source, caller = (
            _string(strand_machine, int(strand.full(x)[tuple(first)])) for x in (message, file, function)
        )
        place = f"{source}:{int(strand.full(line)[tuple(first)])} in {caller}"
        raise Fault(
            "assertion", f"{text} ({place}) in CTA {where[0]}, thread {where[1]}; {int(full.sum())} threads fail it"
        )
    fmt = _string(strand_machine, int(strand.full(frames[0])[tuple(np.argwhere(full)[0])]))
    data = frames[1].astype("i8")
    specs = [m for m in _SPEC.finditer(fmt) if m[1] != "%"]
    columns: list[Array] = []
    offset = 0
    for m in specs:
        kind, dtype = m[3], "i4"
        if kind in "fFeEgG":
            dtype = "f8"
        elif kind in "ps" or m[2] in ("ll", "l"):
            dtype = "u8" if kind in "uxXps" else "i8"
        elif kind in "uxXo":
            dtype = "u4"
        size = np.dtype(dtype).itemsize
        offset = -(-offset // size) * size
        space, where_to = access.generic(data + offset)
        columns.append(strand.full(access.load(strand, space, where_to, dtype, 1, mask)[0]))
        offset += size
    pieces = (
        re.sub(r"(%[-+ #0]*\d*(?:\.\d+)?)(?:hh|h|ll|l)([diuxXo])", r"\1\2", fmt)
        .replace("%p", "0x%016x")
        .replace("%u", "%d")
    )
    for row, column in np.argwhere(full):
        values: list[object] = []
        for m, c in zip(specs, columns, strict=True):
            item = c[row, column].item()
            values.append(_string(strand_machine, item) if m[3] == "s" else item)
        strand_machine.grid.output.append(pieces % tuple(values))
    for offset, _ in results:
        access.store(strand, "local", np.full((1, 1), offset, "i8"), [np.zeros((1, 1), "u4")], mask)
