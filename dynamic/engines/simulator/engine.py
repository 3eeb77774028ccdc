"""The simulator as an engine: arrays in, a record out, no Triton needed."""

from __future__ import annotations

import struct
import time
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from kcontract.dynamic.engines.base import Access, Argument, Diagnosis, Engine, Record
from kcontract.dynamic.engines.simulator import memory
from kcontract.dynamic.engines.simulator.faults import Fault
from kcontract.dynamic.engines.simulator.kernel import Kernel, decode
from kcontract.dynamic.engines.simulator.launch import Grid
from kcontract.dynamic.engines.simulator.options import Options
from kcontract.errors import InputError
from kcontract.ir.artifact import Artifact
from kcontract.ir.launch import Launch
from kcontract.ir.ptx import Parameter


class SimulatorEngine(Engine):
    """Runs an artifact's PTX on the CPU."""

    def __init__(self, target: str, options: Options | None = None) -> None:
        self.name = f"sim:{target}"
        self.options = options or Options()

    def run(self, artifact: Artifact, launch: Launch, buffers: Mapping[str, Argument]) -> Record:
        """See ``Engine.run``. Scratch parameters of Triton's (the last two) may be left out of ``buffers``."""
        if artifact.ptx is None:
            raise InputError(f"{artifact.kernel}: there is no PTX to simulate; keep it in the compiler's cache")
        kernel = decode(artifact.ptx)
        ctas = _number(artifact, "num_ctas", 1)
        grid = prepare(
            kernel, (launch.grid[0] * ctas, *launch.grid[1:]), buffers, _number(artifact, "shared", 0),
            options=self.options, cluster=(ctas, 1, 1), warps=_number(artifact, "num_warps", 4),
            scratch=_number(artifact, "global_scratch_size", 0),
        )  # fmt: skip
        start = time.perf_counter()
        stopped: list[Fault] = []
        try:
            grid.run()
        except Fault as fault:
            stopped.append(fault)
        seconds = time.perf_counter() - start
        found = (Diagnosis(f.kind, f.message, f.line or 0, f.location) for f in (*grid.reported, *stopped))
        return record(self.name, grid, seconds, tuple(found))


def _number(artifact: Artifact, name: str, default: int) -> int:
    value = artifact.metadata.get(name, default)
    return value if isinstance(value, int) and value else default


def prepare(
    kernel: Kernel, extent: tuple[int, int, int], buffers: Mapping[str, Argument], shared: int, *,
    options: Options | None = None, cluster: tuple[int, int, int] = (1, 1, 1), warps: int = 4, scratch: int = 0,
) -> Grid:  # fmt: skip
    """A launch ready to run. ``shared`` is bytes of dynamic shared memory, ``scratch`` of global scratch a CTA."""
    parameters = kernel.function.parameters
    admitted = memory.Global()
    values: list[bytes] = []
    for p, (name, value) in zip(parameters, buffers.items(), strict=False):
        if isinstance(value, np.ndarray):
            start = int(value.__array_interface__["data"][0])
            admitted.add(name, start, value.nbytes)
            values.append(struct.pack("<Q", start))
        elif p.type in ("f32", "f64") or isinstance(value, float):
            values.append(struct.pack("<d" if p.size == 8 else "<f", value))
        else:
            values.append((int(value) % (1 << (8 * p.size))).to_bytes(p.size, "little"))
    if len(values) < len(parameters):
        size = scratch * extent[0] * extent[1] * extent[2]
        address = admitted.allocate("global_scratch", np.zeros(size + 256, "u1")) if size else 0
        values.append(struct.pack("<Q", -(-address // 128) * 128))
        values += [bytes(p.size) for p in parameters[len(values) :]]
    if len(values) != len(parameters):
        raise InputError(f"{kernel.function.name} has {len(parameters)} parameters, {len(buffers)} were given")
    threads = kernel.function.directives.get("reqntid") or (32 * warps,)
    block = block_of(threads)
    return Grid(kernel, extent, block, cluster, shared, admitted, lay_out(parameters, values), options or Options())


def block_of(threads: tuple[int, ...]) -> tuple[int, int, int]:
    """Threads of a CTA along x, y, z."""
    x, y, z = (*threads, 1, 1)[:3]
    return x, y, z


def lay_out(parameters: Sequence[Parameter], values: Sequence[bytes]) -> bytearray:
    """Parameter space: each value, cut or zero-filled to its parameter's size, at its parameter's offset."""
    out = bytearray()
    for p, data in zip(parameters, values, strict=True):
        out.extend(b"\0" * (-len(out) % p.align))
        out.extend(data[: p.size].ljust(p.size, b"\0"))
    return out


def record(name: str, grid: Grid, seconds: float, found: tuple[Diagnosis, ...] = ()) -> Record:
    """The record of a launch that has run."""
    counters: Counter[str] = Counter()
    for visits, opcodes in zip(grid.visits.tolist(), grid.kernel.histogram, strict=True):
        for opcode, count in opcodes.items():
            counters[opcode] += visits * count
    accesses = tuple(Access(r.name, r.reads, r.writes, r.read, r.written) for r in grid.memory.regions)
    return Record(name, seconds, accesses, dict(counters), found, tuple(grid.output))
