"""Compiles what a launcher would launch, for a GPU that is not here: meta tensors in, compiled kernels out."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource
from triton.runtime.jit import JITFunction

TYPES = {
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.float32: "*fp32",
    torch.int32: "*i32",
    torch.int64: "*i64",
}


@dataclass(frozen=True)
class Compiled:
    name: str
    ptx: str = field(repr=False)
    ttgir: str = field(repr=False)
    shared: int
    """bytes a block"""
    tmem: int
    """columns of Tensor Memory"""
    registers: int
    spilled: int
    """bytes of local memory a thread"""

    def count(self, instruction: str) -> int:
        return len(re.findall(rf"^\s*(?:@\S+ )?{re.escape(instruction)}", self.ptx, re.MULTILINE))


def compile_one(kernel: JITFunction, args: tuple[Any, ...], options: dict[str, Any], capability: int) -> Compiled:
    names = kernel.arg_names
    values = dict(zip(names, args, strict=False)) | {k: v for k, v in options.items() if k in names}
    options = {k: v for k, v in options.items() if k not in names}
    signature, constants, attributes = {}, {}, {}
    for index, name in enumerate(names):
        value = values[name]
        if kernel.params[index].is_constexpr or (type(value) is int and value == 1):
            signature[name], constants[(index,)] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[name], attributes[(index,)] = TYPES[value.dtype], [["tt.divisibility", 16]]
        elif isinstance(value, int):
            signature[name] = "i32"
            if value % 16 == 0:
                attributes[(index,)] = [["tt.divisibility", 16]]
        else:
            signature[name] = "fp32"
    made_from = GluonASTSource if kernel.is_gluon() else ASTSource
    source = made_from(kernel, signature, constants, attributes)
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    registers, spilled = _resources(made.asm["cubin"])
    return Compiled(
        kernel.__name__,
        made.asm["ptx"],
        made.asm["ttgir"],
        made.metadata.shared,
        getattr(made.metadata, "tmem_size", 0) or 0,
        registers,
        spilled,
    )


def _resources(cubin: bytes) -> tuple[int, int]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        log = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(re.search(r"REG:(\d+)", log)[1]), int(re.search(r"STACK:(\d+)", log)[1])


@contextlib.contextmanager
def instead_of_launching(capability: int) -> Iterator[list[Compiled]]:
    """Within, each launch compiles its kernel for ``capability`` (90, 100, 120) and appends it to the list."""
    made: list[Compiled] = []

    def run(self: JITFunction, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        made.append(compile_one(self, args, options, capability))

    saved = JITFunction.run
    JITFunction.run = run
    try:
        yield made
    finally:
        JITFunction.run = saved


def refilled_in_flight(ttgir: str) -> list[str]:
    """Copies that refill a single-buffered stage of a loop while an unfinished wgmma may still be reading it.

    Triton 3.6 to 3.9 keep one buffer for a tile that a loop uses both as an operand and element by element, yet let the
    last product run on into the next iteration: on an H200 a gradient then changed from run to run.
    """
    root: dict[str, str] = {}
    single: set[str] = set()
    flying: set[str] = set()
    found = []
    for line in ttgir.splitlines():
        if made := re.match(r"\s*(%\w+) = ttg\.local_alloc : \(\) -> !ttg\.memdesc<(\d+)x", line):
            root[made[1]] = made[1]
            if made[2] == "1":
                single.add(made[1])
        elif view := re.match(r"\s*(%\w+) = ttg\.memdesc_\w+ (%\w+)", line):
            root[view[1]] = root.get(view[2], view[2])
        elif "warp_group_dot_wait" in line:
            if "pendings = 0" in line:
                flying.clear()
        elif "isAsync = true" in line and (product := re.search(r"warp_group_dot (%\w+), (%\w+),", line)):
            flying |= {root.get(x, x) for x in product.groups()}
        elif copy := re.search(r"async_copy_global_to_local %\w+, (%\w+)", line):
            target = root.get(copy[1], copy[1])
            if target in single & flying:
                found.append(line.strip())
    return found
