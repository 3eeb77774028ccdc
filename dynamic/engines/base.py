"""What every engine answers: one launch of one compiled kernel, and the same record of it.

Gates run a candidate through an ``Engine`` and read the ``Record``; they do not care whether a GPU or the simulator
did the work. An engine counts what it can count: None is "not counted", never zero.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Union

import numpy as np

from kcontract.ir.artifact import Artifact
from kcontract.ir.launch import Launch
from kcontract.ir.location import Location

#: A kernel argument: an array for a pointer, a number for a scalar.
Argument = Union["np.ndarray[Any, np.dtype[Any]]", int, float]


@dataclass(frozen=True, slots=True)
class Access:
    """What a launch did to one buffer: numbers of thread accesses and bytes, masked-out threads not counted."""

    buffer: str
    reads: int
    writes: int
    bytes_read: int
    bytes_written: int


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Something undefined that the launch did. ``kind`` is a slug, ``line`` a line of the PTX, 0 if unknown."""

    kind: str
    message: str
    line: int = 0
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One launch. ``counters`` maps an opcode with modifiers to executions by threads; ``seconds`` is wall time."""

    engine: str
    seconds: float
    accesses: tuple[Access, ...] | None = None
    counters: Mapping[str, int] | None = None
    diagnoses: tuple[Diagnosis, ...] = ()
    output: tuple[str, ...] = field(default=())


class Engine(abc.ABC):
    """Runs launches. ``name`` is as written on the command line (``gpu``, ``sim:sm_90``)."""

    name: str

    @abc.abstractmethod
    def run(self, artifact: Artifact, launch: Launch, buffers: Mapping[str, Argument]) -> Record:
        """Run the kernel once over ``launch.grid``; ``buffers`` holds its arguments in order of its parameters,
        arrays are read and written in place. A launch that stops on a diagnosis leaves them half written.

        Raises ``InputError`` where the artifact cannot be run by this engine.
        """
