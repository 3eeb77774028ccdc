"""Compiles what a launcher would launch, for a GPU that is not here: meta tensors in, compiled kernels out."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
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
    ptx: str
    ttgir: str
    shared: int
    """bytes a block"""
    tmem: int
    """columns of Tensor Memory"""
    registers: int
    spilled: int
    """bytes stored to local memory"""

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
    source = ASTSource(kernel, signature, constants, attributes)
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    registers, spilled = _assemble(made.asm["ptx"], capability)
    return Compiled(
        kernel.__name__,
        made.asm["ptx"],
        made.asm["ttgir"],
        made.metadata.shared,
        getattr(made.metadata, "tmem_size", 0) or 0,
        registers,
        spilled,
    )


def _assemble(ptx: str, capability: int) -> tuple[int, int]:
    from triton.backends.nvidia.compiler import get_ptxas, sm_arch_from_capability

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "k.ptx")
        path.write_text(ptx)
        command = [
            get_ptxas(capability).path,
            "-v",
            f"-arch={sm_arch_from_capability(capability)}",
            str(path),
            "-o",
            f"{folder}/k.cubin",
        ]
        if capability >= 100:
            command.insert(1, "--regAllocOptLevel=2")
        log = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return int(re.search(r"Used (\d+) registers", log)[1]), int(re.search(r"(\d+) bytes spill stores", log)[1])


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
