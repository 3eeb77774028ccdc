"""One launch of a decoded kernel: parameters, special registers, and the batches of CTAs it runs in.

About ``LANES`` threads are simulated at once: numpy needs long arrays, caches short ones. Batches run one after the
other; where all CTAs of a batch wait for memory to change, the next batch is started beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from kcontract.dynamic.engines.simulator import memory
from kcontract.dynamic.engines.simulator.asynchronous import Asynchronous
from kcontract.dynamic.engines.simulator.checked import Checker
from kcontract.dynamic.engines.simulator.clocks import OWN
from kcontract.dynamic.engines.simulator.faults import Fault, Unsupported, place
from kcontract.dynamic.engines.simulator.kernel import Kernel
from kcontract.dynamic.engines.simulator.machine import Machine
from kcontract.dynamic.engines.simulator.options import Options
from kcontract.dynamic.engines.simulator.shadow import GlobalShadow
from kcontract.dynamic.engines.simulator.strand import Strand
from kcontract.dynamic.engines.simulator.tensor_memory import COLUMNS, TensorMemory
from kcontract.dynamic.engines.simulator.tensor_memory import LANES as TENSOR_LANES
from kcontract.dynamic.engines.simulator.values import Array
from kcontract.dynamic.engines.simulator.waiting import waiting
from kcontract.errors import KContractError

#: Bytes that the CTAs simulated at once may take, by estimate; at least one cluster always runs.
MEMORY = 1 << 29
_MOST_THREADS = 1024
#: Other contents of unwritten Tensor Memory than zeros: a NaN in float32, bfloat16 and float16, and large numbers.
_FILLS = (0x7FFF7FFF, 0x4B4B4B4B)
_AXES = {"x": 0, "y": 1, "z": 2}


@dataclass
class Grid:
    """One launch. ``extent`` counts CTAs, ``block`` threads, ``cluster`` CTAs of a cluster, along x, y, z.

    ``reported`` are faults that do not stop the launch: registers read before a wait, which the text of the program
    shows and which change nothing in what the simulator computes. ``fill`` is what unwritten Tensor Memory holds.
    """

    kernel: Kernel
    extent: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared_bytes: int
    memory: memory.Global
    parameters: bytearray
    options: Options = field(default_factory=Options)
    output: list[str] = field(default_factory=list)
    fill: int = 0

    def __post_init__(self) -> None:
        self.threads = self.block[0] * self.block[1] * self.block[2]
        self.cluster_size = self.cluster[0] * self.cluster[1] * self.cluster[2]
        self.dynamic_bytes = self.shared_bytes
        self.shared_bytes += self.kernel.shared_static
        self.random = None if self.options.seed is None else np.random.default_rng(self.options.seed)
        self.shadow: GlobalShadow | None = None
        self.notes: set[str] = set()
        self.reported: list[Fault] = []
        self.unwritten: list[Fault] = []
        self.visits = np.zeros(len(self.kernel.code), "i8")
        self._offsets = self._parameter_offsets()
        self._globals: dict[str, int] = {}
        self._cache: dict[tuple[str, int, str, int], list[Array]] = {}
        self.bytes = np.frombuffer(self.parameters, "u1")

    def _parameter_offsets(self) -> dict[str, int]:
        offsets: dict[str, int] = {}
        at = 0
        for p in self.kernel.function.parameters:
            at = -(-at // p.align) * p.align
            offsets[p.name] = at
            at += p.size
        if len(self.parameters) < at:
            self.parameters.extend(b"\0" * (at - len(self.parameters)))
        return offsets

    def run(self) -> None:
        """Run all CTAs. Raises ``Fault`` and ``Unsupported`` with their place."""
        look = self.options.checked and self.kernel.uses_tensor_memory
        before = self.memory.contents() if look else {}
        try:
            self._run()
        except KContractError:
            self.reported += self.unwritten
            raise
        if self.unwritten and any(self._depends(before, fill) for fill in _FILLS):
            fault = self.unwritten[0]
            fault.message += "; what the launch writes depends on it"
            raise fault

    def _depends(self, before: dict[int, Array], fill: int) -> bool:
        """Whether the launch writes something else where unwritten Tensor Memory holds ``fill``.

        Triton's pipeliner loads Tensor Memory ahead of a loop that may not run, and drops what it has computed with
        the value: that is no fault, and only another run can tell.
        """
        made = self.memory.contents()
        self.memory.restore(before)
        again = Grid(
            self.kernel, self.extent, self.block, self.cluster, self.dynamic_bytes, self.memory.fresh(),
            bytearray(self.parameters), self.options, fill=fill,
        )  # fmt: skip
        try:
            again._run()
        except KContractError:
            return True
        finally:
            other = self.memory.contents()
            self.memory.restore(made)
        return not all(np.array_equal(made[start], other[start]) for start in before)

    def _run(self) -> None:
        total = self.extent[0] * self.extent[1] * self.extent[2]
        if any(e % c for e, c in zip(self.extent, self.cluster, strict=True)):
            raise self._bad_launch(f"the grid {self.extent} is no multiple of the cluster {self.cluster}")
        if not 1 <= self.threads <= _MOST_THREADS:
            raise self._bad_launch(f"a CTA has {self.threads} threads; 1 to {_MOST_THREADS} are allowed")
        if self.options.checked:
            for index, message in self.kernel.early_reads[:1]:
                fault = Fault("missing-wait", message)
                self.kernel.located(fault, index)
                self.reported.append(fault)
        ctas = min(self.options.lanes // self.threads, MEMORY // self.bytes_per_cta())
        per = max(ctas // self.cluster_size, 1) * self.cluster_size
        order = self._cluster_order(total)
        active: list[Machine] = []
        start = 0
        with np.errstate(all="ignore"):
            while start < total or active:
                try:
                    if start < total:
                        active.append(Machine(self, order[start : start + per]))
                        start += per
                    self._advance(active)
                except Exception as error:
                    explained = self.kernel.located(error)
                    if explained is error:
                        raise
                    raise explained from error
                if active and start >= total:
                    raise self._stuck(active)

    def _bad_launch(self, message: str) -> BaseException:
        return self.kernel.located(Fault("bad-launch", message))

    def note(self, fault: Fault, index: int | None) -> None:
        """A load of Tensor Memory that nobody has written, once an instruction."""
        self.kernel.located(fault, index)
        if fault.line not in [f.line for f in self.unwritten]:
            self.unwritten.append(fault)

    def bytes_per_cta(self) -> int:
        """An upper estimate of what one CTA in execution takes: memories, registers, and in checked mode its shadow."""
        kernel = self.kernel
        registers = max((len(live) for live in kernel.live), default=0)
        total = 1 + self.shared_bytes + self.threads * (kernel.local_bytes + 8 * registers)
        if kernel.uses_tensor_memory:
            total += 4 * COLUMNS * TENSOR_LANES
        if self.options.checked:
            units = len(OWN) * -(-self.threads // 32) + 1
            total += self.shared_bytes // (1 if kernel.narrow else 4) * (11 + 4 * units)
        return total

    def _advance(self, active: list[Machine]) -> None:
        """Run machines in turn as long as one of them gets anywhere; drop those that are done."""
        moved = True
        while moved:
            moved = False
            for machine in list(active):
                before = machine.steps
                done = machine.run()
                if done:
                    machine.finish()
                    self.visits += machine.visits
                    machine.checker = machine.tensor = None  # large, and in cycles that only the collector would free
                    active.remove(machine)
                if (done and active) or (machine.steps != before and len(active) > 1):
                    moved = True
                    for other in active:
                        if other is not machine:
                            other.version += 1

    def _cluster_order(self, total: int) -> Array:
        """Linear CTA numbers with the CTAs of a cluster next to each other, in order of rank."""
        linear = np.arange(total)
        if self.cluster_size == 1:
            return linear
        x, y, z = self.extent
        cx, cy, cz = self.cluster
        grid = linear.reshape(z // cz, cz, y // cy, cy, x // cx, cx)
        return np.ascontiguousarray(grid.transpose(0, 2, 4, 1, 3, 5)).reshape(-1)

    def _stuck(self, active: list[Machine]) -> BaseException:
        """Nobody can go on: who waits for what."""
        groups = [group for machine in active for group in waiting(machine)]
        told = []
        for group in groups[:8]:
            at = self.kernel.function.instructions[group.index]
            told.append(f"{group.who} {group.what} ({place(at.line, at.location)})")
        shown = "; ".join(told) + (f"; and {len(groups) - 8} more" if len(groups) > 8 else "")
        kind = "endless-loop" if all(group.spins for group in groups) else "deadlock"
        return self.kernel.located(Fault(kind, f"no thread can go on: {shown}"), groups[0].index)

    # ---- what machines ask for

    def make_asynchronous(self, machine: Machine) -> Asynchronous:
        return Asynchronous(machine)

    def make_tensor_memory(self, machine: Machine) -> TensorMemory | None:
        return TensorMemory(machine) if self.kernel.uses_tensor_memory else None

    def make_checker(self, machine: Machine) -> Checker | None:
        return Checker(machine) if self.options.checked else None

    def special(self, machine: Machine, strand: Strand, name: str) -> Array:
        """Value of a special register as uint32 or uint64, of the smallest shape that holds it."""
        stem, _, axis = name.lstrip("%").partition(".")
        a = _AXES.get(axis, -1)
        if stem == "tid":
            bx, by, _ = self.block
            parts = (strand.tid % bx, strand.tid // bx % by, strand.tid // (bx * by))
            return parts[a].astype("u4")
        if stem in ("ctaid", "clusterid", "cluster_ctaid"):
            linear = machine.ctas[strand.cta]
            ex, ey, _ = self.extent
            place = (linear % ex, linear // ex % ey, linear // (ex * ey))[a]
            if stem == "clusterid":
                place = place // self.cluster[a]
            elif stem == "cluster_ctaid":
                place = place % self.cluster[a]
            return place.astype("u4")
        fixed = {"ntid": self.block, "nctaid": self.extent, "cluster_nctaid": self.cluster}.get(stem)
        if fixed is not None:
            return _constant(fixed[a])
        if stem == "nclusterid":
            return _constant(self.extent[a] // self.cluster[a])
        lane = (strand.tid & 31).astype("u4")
        one = np.uint32(1)
        simple: Callable[[], Array] | None = {
            "laneid": lambda: lane,
            "warpid": lambda: (strand.tid >> 5).astype("u4"),
            "nwarpid": lambda: _constant(-(-self.threads // 32)),
            "cluster_ctarank": lambda: machine.rank_of(strand.cta).astype("u4"),
            "cluster_nctarank": lambda: _constant(self.cluster_size),
            "is_explicit_cluster": lambda: np.full((1, 1), self.cluster_size > 1),
            "smid": lambda: (machine.ctas[strand.cta] % 132).astype("u4"),
            "nsmid": lambda: _constant(132),
            "gridid": lambda: np.zeros((1, 1), "u8"),
            "lanemask_eq": lambda: one << lane,
            "lanemask_lt": lambda: (one << lane) - one,
            "lanemask_le": lambda: ((one << lane) - one) | (one << lane),
            "lanemask_gt": lambda: ~(((one << lane) - one) | (one << lane)),
            "lanemask_ge": lambda: ~((one << lane) - one),
            "dynamic_smem_size": lambda: _constant(self.shared_bytes - self.kernel.shared_static),
            "total_smem_size": lambda: _constant(self.shared_bytes),
        }.get(stem)
        if simple is not None:
            return simple()
        if stem in ("clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi"):
            return _clock(machine, stem)
        raise Unsupported(f"special register {name} is not simulated")

    def address(self, name: str, offset: int) -> Array:
        """Address of a variable or parameter within its own space, int64 of shape (1, 1)."""
        kernel = self.kernel
        for table in (kernel.shared, kernel.local, self._offsets):
            if name in table:
                return np.full((1, 1), table[name] + offset, "i8")
        return np.full((1, 1), self._module_variable(name) + offset, "i8")

    def _module_variable(self, name: str) -> int:
        found = self._globals.get(name)
        if found is None:
            from kcontract.dynamic.engines.simulator.printing import initial

            variable = next((v for v in self.kernel.program.variables if v.name == name), None)
            if variable is None or variable.size is None:
                raise Unsupported(f"symbol {name} is not declared in the module")
            found = self._globals[name] = self.memory.allocate(name, initial(variable))
        return found

    def parameter(self, name: str, offset: int, dtype: str, count: int) -> list[Array]:
        key = (name, offset, dtype, count)
        found = self._cache.get(key)
        if found is None:
            if name not in self._offsets:
                raise Unsupported(f"parameter {name} is not declared")
            size = np.dtype(dtype).itemsize
            start = self._offsets[name] + offset
            data = self.bytes[start : start + size * count].view(dtype)
            found = self._cache[key] = [data[k].reshape(1, 1).copy() for k in range(count)]
        return found

    def parameter_bytes(self, address: Array, dtype: str, count: int) -> list[Array]:
        size = np.dtype(dtype).itemsize
        if int(address.min()) < 0 or int(address.max()) + size * count > len(self.bytes):
            raise Fault("out-of-bounds", f"parameter space holds {len(self.bytes)} bytes")
        place = address[..., None] + np.arange(size)
        return [np.ascontiguousarray(self.bytes[place + size * k]).view(dtype)[..., 0] for k in range(count)]


def _constant(value: int) -> Array:
    return np.full((1, 1), value, "u4")


def _clock(machine: Machine, stem: str) -> Array:
    """Simulated cycles: the blocks run so far; it only grows."""
    ticks = machine.steps * 100
    if stem.endswith("_hi"):
        return _constant(ticks >> 32)
    if stem in ("clock", "globaltimer_lo"):
        return _constant(ticks & 0xFFFFFFFF)
    return np.full((1, 1), ticks, "u8")
