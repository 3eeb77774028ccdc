"""All the compiler made for one specialisation of one kernel."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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
        digest = hashlib.sha256(f"{self.kernel}\0{self.target.name}\0".encode())
        for part in (self.ttgir, self.ptx):
            digest.update(b"\0" if part is None else part.encode("utf-8", "surrogateescape"))
        digest.update(self.cubin or b"")
        return digest.hexdigest()[:32]
