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

from kcontract.dynamic.engines.simulator import access, arith, cache, registers, runtime, values, warps
from kcontract.dynamic.engines.simulator import emit as _emit
from kcontract.dynamic.engines.simulator.codegen import Gen
from kcontract.dynamic.engines.simulator.faults import Fault, Unsupported
from kcontract.dynamic.engines.simulator.strand import Strand
from kcontract.errors import InputError
from kcontract.ir.ptx import Function, Program, parse

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
    shared: dict[str, int] = field(default_factory=dict)
    shared_static: int = 0
    local: dict[str, int] = field(default_factory=dict)
    local_bytes: int = 0

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

    def at(self, fault: Fault, index: int | None) -> Fault:
        """A fault with the place of an instruction."""
        if index is None or index >= len(self.function.instructions):
            return fault
        at = self.function.instructions[index]
        return fault.at(at.line, f"{at.name} {at.text}".strip()[:100], at.location)

    def explain(self, error: BaseException) -> BaseException:
        """The same error with the PTX and Python lines it rose at."""
        index = self.place(error)
        if isinstance(error, Fault):
            return self.at(error, index)
        if index is None or index >= len(self.function.instructions):
            return error
        at = self.function.instructions[index]
        text = f"{at.name} {at.text}".strip()[:100]
        if isinstance(error, Unsupported) and error.line is None:
            return Unsupported(f"the simulator cannot execute `{text}`: {error.message}", line=at.line)
        if isinstance(error, Exception) and not isinstance(error, InputError):
            error.args = (f"{error} [at PTX line {at.line}: {text}]",)
        return error

    def describe(self, block: int) -> tuple[int, str]:
        """PTX line and text of a block's first instruction."""
        start = self.first[block][0]
        instructions = self.function.instructions
        if start >= len(instructions):
            return 0, "the end"
        return instructions[start].line, f"{instructions[start].name} {instructions[start].text}"[:80]

    @functools.cached_property
    def uses_tensor_memory(self) -> bool:
        return any(i.opcode == "tcgen05" for i in self.function.instructions)

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
    program = parse(ptx)
    function = program.entry
    if function is None:
        raise InputError("the PTX holds no kernel with a body; give the .ptx of a compiled kernel")
    decoded = cache.load(ptx)
    if decoded is None:
        decoded = generate(program, function, _FILE.format(name))
        cache.store(ptx, decoded)
    space: dict[str, object] = {
        "np": np, "arith": arith, "values": values, "access": access, "warps": warps, "W": runtime.W,
        "pack": runtime.pack, "unpack": runtime.unpack, "unpack_nibbles": runtime.unpack_nibbles,
        **_emit.namespace(), **decoded.constants,
    }  # fmt: skip
    exec(decoded.code, space)
    code: list[BlockFunction] = [space[f"block{i}"] for i in range(len(decoded.live))]  # type: ignore[misc]
    kernel = Kernel(
        program, function, code, decoded.live, decoded.widths, decoded.lines, _FILE.format(name), decoded.first
    )
    _lay_out(kernel)
    return kernel


def generate(program: Program, function: Function, file: str) -> cache.Decoded:
    """Generate and compile the Python code of a function; ``file`` names it in tracebacks."""
    gen = Gen(program, function)
    bodies = [gen.body(i) for i in range(len(gen.blocks))]
    gen.liveness(bodies)
    text: list[str] = []
    lines: list[int] = []
    for i, body in enumerate(bodies):
        rows, places = gen.finish(i, body)
        text += [f"def block{i}(S):", "    R = S.regs", *("    " + row for row in rows)]
        lines += [gen.blocks[i].first] * 2 + places
    code = compile("\n".join(text) + "\n", file, "exec")
    first = [(b.first, b.last) for b in gen.blocks]
    return cache.Decoded(code, gen.constants, [b.live for b in gen.blocks], gen.widths, lines, first)


def _lay_out(kernel: Kernel) -> None:
    """Offsets of shared and local variables, in order of declaration; unsized shared ones come last at offset "
    "16-aligned."""
    at = 0
    unsized: list[str] = []
    for v in (*kernel.program.variables, *kernel.function.variables):
        if v.space == "shared":
            if v.size is None:
                unsized.append(v.name)
                continue
            at = -(-at // max(v.align, 1)) * max(v.align, 1)
            kernel.shared[v.name] = at
            at += v.size
        elif v.space == "local":
            start = -(-kernel.local_bytes // max(v.align, 1)) * max(v.align, 1)
            kernel.local[v.name] = start
            kernel.local_bytes = start + (v.size or 0)
    at = -(-at // 1024) * 1024 if at else 0
    for name in unsized:
        kernel.shared[name] = at
    kernel.shared_static = at
