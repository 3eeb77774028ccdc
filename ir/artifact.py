"""All the compiler made for one specialisation of one kernel."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kcontract.errors import InputError
from kcontract.ir.files import LIMITS, read_bytes, text_of
from kcontract.ir.target import Target

if TYPE_CHECKING:
    from kcontract.ir.ptx import Program
    from kcontract.ir.resources import Resources
    from kcontract.ir.ttgir import Module


@dataclass(frozen=True, eq=False)
class Artifact:
    """One compiled kernel. Texts are None where the compiler kept none; readers run at first use.

    ``metadata`` is Triton's own (the ``.json`` of the cache). ``origin`` says where it was read from, for
    messages.
    """

    kernel: str
    target: Target
    ttgir: str | None = None
    ptx: str | None = None
    cubin: bytes | None = None
    metadata: Mapping[str, object] = field(default_factory=dict)
    origin: str = ""

    @staticmethod
    def from_compiled(metadata: object, made: Mapping[str, object], origin: str = "") -> Artifact:
        """What a live compile left.

        ``metadata`` is the mapping that Triton's compilation listener gets, or a ``CompiledKernel``'s named tuple.
        ``made`` is the listener's ``metadata_group`` (file name → path) or a ``CompiledKernel``'s ``asm``
        (``"ptx"`` → text). For targets other than NVIDIA's nothing is read. Raises ``InputError`` where a file
        is gone or unreadable.
        """
        facts = metadata if isinstance(metadata, Mapping) else getattr(metadata, "_asdict", dict)()
        if "target" not in facts:
            raise InputError("the compiler's metadata names no target", path=origin or None)
        target = Target.parse(facts["target"])
        parts: dict[str, bytes] = {}
        if target.is_nvidia:
            for name, value in made.items():
                kind = name.rpartition(".")[2]
                if kind not in LIMITS or kind == "json":
                    continue
                if "." in name:
                    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else ""
                    parts[kind] = read_bytes(path, LIMITS[kind])
                    origin = origin or os.path.dirname(path)
                else:
                    parts[kind] = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
        return Artifact.from_parts(kernel_name(facts, "kernel"), target, parts, facts, origin)

    @staticmethod
    def from_parts(
        kernel: str, target: Target, parts: Mapping[str, bytes], metadata: Mapping[str, object], origin: str
    ) -> Artifact:
        """An artifact of file contents by kind (``ttgir``, ``ptx``, ``cubin``). Raises ``InputError``."""
        texts = {kind: text_of(parts[kind], f"{origin}.{kind}") for kind in ("ttgir", "ptx") if kind in parts}
        return Artifact(kernel, target, texts.get("ttgir"), texts.get("ptx"), parts.get("cubin"), metadata, origin)

    @functools.cached_property
    def module(self) -> Module | None:
        """The TTGIR as a graph, or None without TTGIR. Raises ``InputError``."""
        from kcontract.ir.ttgir import parse

        return None if self.ttgir is None else parse(self.ttgir)

    @functools.cached_property
    def program(self) -> Program | None:
        """The PTX as instructions, or None without PTX. Raises ``InputError``."""
        from kcontract.ir.ptx import parse

        return None if self.ptx is None else parse(self.ptx)

    @functools.cached_property
    def resources(self) -> Resources:
        """Registers, stack, shared memory, Tensor Memory, threads; unknown ones are None."""
        from kcontract.ir.resources import read

        return read(self)

    @functools.cached_property
    def key(self) -> str:
        """Hash of everything read, which names the specialisation."""
        digest = hashlib.sha256(f"{self.kernel}\0{self.target.name}\0".encode("utf-8", "surrogateescape"))
        for part in (self.ttgir, self.ptx):
            digest.update(b"\0" if part is None else part.encode("utf-8", "surrogateescape"))
        digest.update(self.cubin or b"")
        return digest.hexdigest()[:32]


def kernel_name(metadata: Mapping[str, object], fallback: str) -> str:
    """The kernel's name as metadata gives it, where that is printable; else ``fallback``."""
    name = metadata.get("name")
    return name if isinstance(name, str) and name.isprintable() and 0 < len(name) <= 1000 else fallback
