"""Calls every reader of kcontract on one input and touches all that it offers, lazy parts included."""

import os
import shutil
import tempfile
from collections.abc import Callable

from kcontract.errors import InputError
from kcontract.ir import cubin, ptx, ttgir
from kcontract.ir.artifact import Artifact, kernel_name
from kcontract.ir.files import object_of, text_of
from kcontract.ir.loaders import Problem, load_cache
from kcontract.ir.target import Target


def read_ttgir(content: bytes) -> None:
    module = ttgir.parse(text_of(content))
    for operation in module.walk():
        _ = (operation.attributes, operation.location, operation.successors)
        for value in (*operation.operands, *operation.results):
            _ = (value.type.kind, value.type.element, value.type.shape, value.type.bits, value.layout, value.uses)
    _ = (module.attributes, module.layouts, module.functions)


def read_ptx(content: bytes) -> None:
    program = ptx.parse(text_of(content))
    program.opcodes()
    for function in program.functions:
        _ = function.blocks
        for instruction in function.instructions:
            _ = (instruction.operands, instruction.modifiers, str(instruction.location), function.targets(instruction))


def read_json(content: bytes) -> None:
    metadata = object_of(content)
    kernel_name(metadata, "kernel").encode()
    target = Target.parse(metadata.get("target"))
    _ = Artifact("kernel", target, metadata=metadata).resources


def read_cubin(content: bytes) -> None:
    cubin.read(content)


def read_cache(content: bytes) -> None:
    """``content`` is a pack of files; see ``pack``."""
    folder = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    try:
        for name, body in unpack(content):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(body)
        for found in load_cache(folder):
            if isinstance(found, Problem):
                str(found).encode("utf-8", "surrogateescape")
            else:
                _ = (found.resources, found.key)
    finally:
        shutil.rmtree(folder)


def pack(files: dict[str, bytes]) -> bytes:
    """Files of a cache entry in one input."""
    return b"\n====".join(name.encode() + b"\n" + body for name, body in files.items())


def unpack(content: bytes) -> list[tuple[str, bytes]]:
    """What ``pack`` made, as far as mutation left names that a file system takes."""
    files = []
    for part in content.split(b"\n===="):
        name, _, body = part.partition(b"\n")
        word = "".join(c for c in name.decode("utf-8", "replace") if c.isprintable() and c not in "/\\")[:60]
        files.append((word if word.strip(".") else "empty", body))
    return files


READERS: dict[str, Callable[[bytes], None]] = {
    "ttgir": read_ttgir,
    "ptx": read_ptx,
    "json": read_json,
    "cubin": read_cubin,
    "cache": read_cache,
}


def accepted(reader: str, content: bytes) -> bool:
    """Whether the reader took the input. ``InputError`` is the only refusal; anything else that it raises escapes."""
    try:
        READERS[reader](content)
    except InputError as error:
        message = str(error)
        assert message and "\n" not in message and len(message) < 1000, f"not one sentence: {message[:200]!r}"
        return False
    return True
