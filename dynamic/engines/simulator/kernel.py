"""A decoded kernel: the functions generated for its blocks and what a launch needs to know of it.

Decoding takes 10 to 500 ms; decoded kernels are kept in memory by their PTX, and on disk (see ``cache``).
"""

from __future__ import annotations

import functools
import hashlib
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from kcontract.dynamic.engines.simulator import access, arith, cache, calls, registers, runtime, values, warps
from kcontract.dynamic.engines.simulator import emit as _emit
from kcontract.dynamic.engines.simulator.codegen import Gen
from kcontract.dynamic.engines.simulator.faults import Unsupported, located
from kcontract.dynamic.engines.simulator.strand import Strand
from kcontract.errors import InputError
from kcontract.ir.ptx import Function, Program, Variable, parse

#: Bytes of shared memory a CTA, of local memory a thread and of parameters a kernel (CUDA C++ Programming Guide 13,
#: "Technical Specifications per Compute Capability" and "__global__ Parameters").
_MOST_SHARED, _MOST_LOCAL, _MOST_PARAMETERS = 227 << 10, 512 << 10, 32764
#: How many instructions on registers take the time of one on memory, where there are few threads.
_MEMORY = 16
BlockFunction = Callable[[Strand], "int | None"]
_FILE = "<simulated {}>"


@dataclass(eq=False)
class Kernel:
    """``code[i]`` runs block i; ``live[i]`` are the registers live at its start; ``lines`` maps a line of the
    generated source to an instruction's index."""

    program: Program
    function: Function
    code: list[BlockFunction]
    live: list[tuple[int, ...]]
    widths: list[str]
    lines: list[int]
    file: str
    first: list[tuple[int, int]]
    shared: dict[str, int]
    shared_static: int
    local: dict[str, int]
    local_bytes: int

    def place(self, error: BaseException) -> int | None:
        """The instruction index during which an exception rose out of generated code."""
        found = None
        for frame, line in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_filename == self.file and line <= len(self.lines):
                found = self.lines[line - 1]
        return found

    def running(self) -> int | None:
        """The instruction index that the calling generated code stands at."""
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename == self.file:
                return self.lines[frame.f_lineno - 1]
            frame = frame.f_back  # type: ignore[assignment]
        return None

    def located(self, error: BaseException, index: int | None = None) -> BaseException:
        """The error with the place of an instruction: that given, else the one it rose at, else the kernel's own."""
        return located(error, self.function, self.place(error) if index is None else index)

    @functools.cached_property
    def uses_tensor_memory(self) -> bool:
        return any(i.opcode == "tcgen05" for i in self.function.instructions)

    @functools.cached_property
    def reads_clock(self) -> bool:
        """Whether it asks for the time, which no two turns of a loop find the same."""
        return any("clock" in i.text or "globaltimer" in i.text for i in self.function.instructions)

    @functools.cached_property
    def sizes(self) -> list[int]:
        """Instructions of each block."""
        return [b - a for a, b in self.first]

    @functools.cached_property
    def weights(self) -> list[int]:
        """What a run of each block takes beside one instruction on registers; at least 1."""
        instructions = self.function.instructions
        each = [_MEMORY if i.opcode in ("ld", "st", "atom", "red", "cp") else 1 for i in instructions]
        return [max(sum(each[a:b]), 1) for a, b in self.first]

    @functools.cached_property
    def early_reads(self) -> list[tuple[int, str]]:
        """Instructions that read registers in flight (see ``registers``)."""
        return registers.early_reads(self.function)

    @functools.cached_property
    def narrow(self) -> bool:
        """Whether single bytes or halves of shared memory are accessed."""
        return self._narrow("shared")

    @functools.cached_property
    def narrow_global(self) -> bool:
        """Whether single bytes or halves of global memory are accessed."""
        return self._narrow("global")

    def _narrow(self, space: str) -> bool:
        return any(
            i.opcode in ("ld", "st", "atom", "red") and space in i.name and re.search(r"[busf](?:8|16)$", i.name)
            for i in self.function.instructions
        )

    @functools.cached_property
    def histogram(self) -> list[Counter[str]]:
        """How often each opcode stands in each block."""
        instructions = self.function.instructions
        return [Counter(instructions[k].name for k in range(a, b)) for a, b in self.first]


_KERNELS: dict[str, Kernel] = {}


def decode(ptx: str) -> Kernel:
    """The kernel in a PTX text. Raises ``Unsupported`` (an ``InputError``) for what cannot be executed."""
    key = hashlib.sha256(ptx.encode("utf-8", "surrogateescape")).hexdigest()
    found = _KERNELS.get(key)
    if found is None:
        found = _KERNELS[key] = _decode(ptx, key[:12])
    return found


def _decode(ptx: str, name: str) -> Kernel:
    try:
        program = parse(ptx)
    except InputError as error:
        if error.line is None:
            raise
        raise InputError(f"PTX line {error.line}: {error.message}", line=error.line) from None
    if program.entry is None:
        raise InputError("the PTX holds no kernel with a body; give the .ptx of a compiled kernel")
    whole = calls.inlined(program, program.entry)
    shared, local = _lay_out(program, whole)
    decoded = cache.load(ptx)
    if decoded is None:
        decoded = generate(whole, _FILE.format(name))
        cache.store(ptx, decoded)
    space: dict[str, object] = {
        "np": np, "arith": arith, "values": values, "access": access, "warps": warps, "W": runtime.W,
        "pack": runtime.pack, "unpack": runtime.unpack, "unpack_nibbles": runtime.unpack_nibbles,
        **_emit.namespace(), **decoded.constants,
    }  # fmt: skip
    exec(decoded.code, space)
    code: list[BlockFunction] = [space[f"block{i}"] for i in range(len(decoded.live))]  # type: ignore[misc]
    return Kernel(
        program, whole.function, code, decoded.live, decoded.widths, decoded.lines, _FILE.format(name), decoded.first,
        shared.offsets, shared.bytes, local.offsets, local.bytes,
    )  # fmt: skip


def generate(whole: calls.Whole, file: str) -> cache.Decoded:
    """Generate and compile the Python code of a function; ``file`` names it in tracebacks."""
    gen = Gen(whole)
    bodies = [gen.body(i) for i in range(len(gen.blocks))]
    gen.liveness(bodies)
    text: list[str] = []
    lines: list[int] = []
    for i, body in enumerate(bodies):
        rows, places = gen.finish(i, body)
        text += [f"def block{i}(S):", "    R = S.regs", *("    " + row for row in rows)]
        lines += [gen.blocks[i].first] * 2 + places
    try:
        code = compile("\n".join(text) + "\n", file, "exec")
    except SyntaxError as error:
        raise located(error, gen.function, lines[(error.lineno or 1) - 1]) from error
    first = [(b.first, b.last) for b in gen.blocks]
    return cache.Decoded(code, gen.constants, [b.live for b in gen.blocks], gen.widths, lines, first)


@dataclass
class _Space:
    """Offsets of the variables of one space, and the bytes of all of them."""

    bytes: int = 0
    offsets: dict[str, int] = field(default_factory=dict)

    def add(self, v: Variable, most: int) -> None:
        align = max(v.align, 1)
        start = -(-self.bytes // align) * align
        end = start + (v.size or 0)
        if end > most:
            what = Unsupported(f"{v.space} variables of {end} bytes; a kernel has at most {most}")
            raise what.at(v.line, f".{v.space} {v.name}", None)
        self.offsets[v.name], self.bytes = start, end


def _lay_out(program: Program, whole: calls.Whole) -> tuple[_Space, _Space]:
    """Shared and local variables, in order of declaration; unsized shared ones come last at a 1024-aligned offset, and
    local memory begins with the parameters of called functions."""
    shared, local = _Space(), _Space(whole.bytes)
    unsized: list[str] = []
    for v in (*program.variables, *whole.function.variables):
        if v.space == "shared" and v.size is None:
            unsized.append(v.name)
        elif v.space == "shared":
            shared.add(v, _MOST_SHARED)
        elif v.space == "local":
            local.add(v, _MOST_LOCAL)
    shared.bytes = -(-shared.bytes // 1024) * 1024
    shared.offsets.update((name, shared.bytes) for name in unsized)
    size = sum(p.size for p in whole.function.parameters)
    if size > _MOST_PARAMETERS or any(p.align < 1 for p in whole.function.parameters):
        what = Unsupported(f"parameters of {size} bytes; a kernel has at most {_MOST_PARAMETERS}")
        raise what.at(whole.function.line, f".entry {whole.function.name}", None)
    return shared, local
