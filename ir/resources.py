"""What a compiled kernel takes of the hardware, each figure with the part it was read from.

Why: no single part of an artifact knows all. Metadata knows shared and Tensor Memory, the cubin registers and stack,
the PTX threads, clusters and what the program itself keeps in local memory. A figure nobody knows is None, which
never means "fits"; whether one fits is a rule's business.

Example of what naive reading gets wrong: ``tl.sin`` keeps a 28-byte table in local memory, so its frame of 32 bytes
holds no spill; a frame of 208 bytes beside the same table holds 176 bytes of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kcontract.errors import InputError

if TYPE_CHECKING:
    from kcontract.ir.artifact import Artifact
    from kcontract.ir.cubin import Cubin
    from kcontract.ir.ptx import Function, Program

#: Stack frames are laid out in units of at most this many bytes; a program's own stack is rounded up to it, so that
#: padding is never called a spill.
_FRAME_UNIT = 16
_MODULE_LINE = re.compile(r"^module[^\n]{0,100000}", re.MULTILINE)
_LARGEST = 2**31


@dataclass(frozen=True, slots=True)
class Resources:
    """Figures of one kernel. None: unknown. ``sources`` names for each known field the part it came from:
    "metadata", "cubin", "ptx" or "ttgir". ``problems`` are sentences on parts that could not be read.

    - ``registers``: 32-bit registers per thread; ``maxnreg``: the bound put on them by the launch directive.
    - ``frame``: stack bytes per thread; ``local``: bytes the program itself declares in local memory, per thread.
    - ``spill_bytes``: stack bytes per thread beyond ``local``, a lower bound where ``local`` > 0.
    - ``spill_stores``, ``spill_loads``: bytes moved per thread by spills, each instruction counted once, as
      ``ptxas -v`` prints them; None where the program's own local accesses cannot be told from them.
    - ``static_shared``, ``dynamic_shared``, ``shared``: bytes per block, and their sum.
    - ``tmem_columns``: columns of Tensor Memory that the kernel needs.
    - ``threads``: threads per block, all warps of warp specialisation included; ``cluster``: blocks per cluster.
    - ``setmaxnreg``: the (``"inc"`` or ``"dec"``, registers per thread) of each such instruction, in written order.
    """

    registers: int | None = None
    maxnreg: int | None = None
    frame: int | None = None
    local: int | None = None
    spill_bytes: int | None = None
    spill_stores: int | None = None
    spill_loads: int | None = None
    static_shared: int | None = None
    dynamic_shared: int | None = None
    shared: int | None = None
    tmem_columns: int | None = None
    threads: int | None = None
    cluster: tuple[int, int, int] | None = None
    setmaxnreg: tuple[tuple[str, int], ...] | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def read(artifact: Artifact) -> Resources:
    """The figures of ``artifact``. A damaged part makes its figures None and adds a problem; nothing is raised."""
    gathered = _Gathered()
    program, cubin = None, None
    if artifact.target.is_nvidia:
        try:
            program = artifact.program
        except InputError as error:
            gathered.problems.append(f"the PTX cannot be read: {error}")
        if artifact.cubin is not None:
            from kcontract.ir.cubin import read as read_cubin

            try:
                cubin = read_cubin(artifact.cubin)
            except InputError as error:
                gathered.problems.append(f"the cubin cannot be read: {error}")
    gathered.from_metadata(artifact.metadata)
    if cubin is not None:
        gathered.from_cubin(cubin, artifact.kernel)
    if program is not None and program.entry is not None:
        gathered.from_ptx(program, program.entry)
    if artifact.ttgir is not None:
        gathered.from_ttgir(artifact.ttgir)
    if cubin is not None:
        gathered.spills(cubin)
    return gathered.result()


class _Gathered:
    """Figures so far. Of two parts that know the same, the first asked is believed."""

    def __init__(self) -> None:
        self.values: dict[str, object] = {}
        self.sources: dict[str, str] = {}
        self.problems: list[str] = []

    def put(self, name: str, value: object, source: str) -> None:
        if value is not None and name not in self.values:
            self.values[name] = value
            self.sources[name] = source

    def number(self, name: str) -> int | None:
        value = self.values.get(name)
        return value if isinstance(value, int) else None

    def from_metadata(self, metadata: Mapping[str, object]) -> None:
        self.put("dynamic_shared", _count(metadata.get("shared")), "metadata")
        self.put("tmem_columns", _count(metadata.get("tmem_size")), "metadata")
        self.put("maxnreg", _count(metadata.get("maxnreg")), "metadata")
        warps, lanes = _count(metadata.get("num_warps")), _count(metadata.get("warp_size", 32))
        if warps is not None and lanes is not None:
            self.put("threads", warps * lanes, "metadata")
        blocks, shape = _count(metadata.get("num_ctas")), metadata.get("cluster_dims")
        if isinstance(shape, (list, tuple)) and len(shape) == 3:
            sizes = [_count(size) for size in shape]
            if blocks != 1 and None not in sizes:
                self.put("cluster", tuple(sizes), "metadata")
        if blocks is not None:
            self.put("cluster", (blocks, 1, 1), "metadata")

    def from_cubin(self, cubin: Cubin, kernel: str) -> None:
        code = cubin.functions.get(kernel)
        if code is None and len(cubin.functions) == 1:
            (code,) = cubin.functions.values()
        if code is None:
            self.problems.append(f"the cubin holds no function {kernel}")
            return
        self.put("registers", code.registers, "cubin")
        self.put("frame", code.frame, "cubin")
        self.put("static_shared", code.static_shared, "cubin")

    def from_ptx(self, program: Program, entry: Function) -> None:
        directives = entry.directives
        threads = directives.get("reqntid")
        if threads:
            # The launch itself obeys this directive, so it overrides what metadata says.
            self.values.pop("threads", None)
            self.put("threads", _product(threads), "ptx")
        cluster = directives.get("reqnctapercluster")
        if cluster:
            self.values.pop("cluster", None)
            self.put("cluster", (*cluster, 1, 1)[:3], "ptx")
        self.put("maxnreg", next(iter(directives.get("maxnreg", ())), None), "ptx")
        local = [variable.size or 0 for f in program.functions for variable in f.variables if variable.space == "local"]
        self.put("local", sum(local), "ptx")
        static = [variable for variable in (*program.variables, *entry.variables) if variable.space == "shared"]
        self.put("static_shared", sum(variable.size or 0 for variable in static), "ptx")
        names = {row[0].partition(".")[0] for row in entry.rows}
        self.put("setmaxnreg", tuple(_register_moves(entry)) if "setmaxnreg" in names else (), "ptx")
        if "tcgen05" not in names:
            self.put("tmem_columns", 0, "ptx")

    def from_ttgir(self, text: str) -> None:
        match = _MODULE_LINE.search(text)
        line = match[0] if match else ""
        self.put("dynamic_shared", _attribute(line, "ttg.shared"), "ttgir")
        self.put("tmem_columns", _attribute(line, "ttg.tensor_memory_size"), "ttgir")
        warps = _attribute(line, "ttg.total-num-warps") or _attribute(line, "ttg.num-warps")
        if warps is not None:
            self.put("threads", warps * 32, "ttgir")
        blocks = _attribute(line, "ttg.num-ctas")
        if blocks is not None:
            self.put("cluster", (blocks, 1, 1), "ttgir")

    def spills(self, cubin: Cubin) -> None:
        """Tells spills from the program's own stack, which only the PTX shows."""
        frame, local = self.number("frame"), self.number("local")
        loads = sum(code.local_loads for code in cubin.functions.values())
        stores = sum(code.local_stores for code in cubin.functions.values())
        if frame is not None and local is not None:
            own = -(-local // _FRAME_UNIT) * _FRAME_UNIT
            self.put("spill_bytes", max(0, frame - own), "cubin")
        elif frame == 0:
            self.put("spill_bytes", 0, "cubin")
        if local == 0 or loads == stores == 0:
            self.put("spill_stores", stores, "cubin")
            self.put("spill_loads", loads, "cubin")

    def result(self) -> Resources:
        static, dynamic = self.number("static_shared"), self.number("dynamic_shared")
        if static is not None and dynamic is not None:
            self.put("shared", static + dynamic, self.sources["dynamic_shared"])
        return Resources(**self.values, sources=self.sources, problems=tuple(self.problems))  # type: ignore[arg-type]


def _count(value: object) -> int | None:
    """``value`` where it is a plausible count."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST else None


def _product(sizes: tuple[int, ...]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def _attribute(line: str, name: str) -> int | None:
    match = re.search(rf"\"?{re.escape(name)}\"? = (\d{{1,9}}) : i32", line)
    return int(match[1]) if match else None


def _register_moves(entry: Function) -> list[tuple[str, int]]:
    from kcontract.ir.ptx import Immediate

    found = []
    for instruction in entry.instructions:
        if instruction.opcode == "setmaxnreg" and instruction.modifiers:
            operand = next(iter(instruction.operands), None)
            if isinstance(operand, Immediate) and isinstance(operand.value, int):
                found.append((instruction.modifiers[0], operand.value))
    return found
