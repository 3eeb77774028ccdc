"""Kernels that do not fit the hardware they were compiled for (RES-02)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from kcontract.ir.artifact import Artifact
from kcontract.ir.resources import Resources
from kcontract.ir.target import Target
from kcontract.ir.ttgir import Module, Operation
from kcontract.model import Confidence, Finding, Level, Place, Related, Settled
from kcontract.passes.analysis.occupancy import block_registers, occupancy
from kcontract.passes.base import Facts, Rule

#: obligation -> the operations that take the most of it, for the place of the finding
_TAKERS = {
    "shared memory": ("ttg.local_alloc",),
    "tensor memory": ("ttng.tmem_alloc",),
    "register pool": ("tt.elementwise_inline_asm", "ttg.warp_specialize"),
}


class OverBudget(Rule):
    """Finds kernels that need more registers, shared memory, Tensor Memory, threads or cluster blocks than there are.

    ## Contract

    The compiled kernel loads and launches on its target (gate RES-02).

    ## Why it matters

    Such a kernel compiles without complaint. It fails when it is loaded, on the first machine of that kind, often at
    the first request in production, with an error that names neither the configuration nor what would fit. Tensor
    Memory is the newest case: a pass that promotes the left operand of a product may add to it after the author
    counted the accumulators.

    ## Fires on

    A violation for each limit of the compiled target that is exceeded (a hazard, where the kernel was compiled for
    that target only because somebody asked how it would do there): registers of all threads of a block, bytes of
    shared memory (the opt-in limit, which Triton uses), Tensor Memory columns, threads of a block, blocks of a
    cluster, registers that warp groups ask for together with `setmaxnreg`, and, where a launch is seen, programs
    along an axis of the grid. Figures are those of the last pass: metadata, cubin and PTX. A note where registers
    were spilled: the stack frame is larger than what the program itself declares in local memory.

    ## Silent on

    A resource whose figure or whose limit is unknown: it stays unsettled and RES-02 undecided. Stack that the program
    itself declares (the slow path of sine and cosine keeps a table there: triton-lang/triton issue 1756).

    ## Limits

    Dynamic shared memory and cluster sizes set by a launcher other than Triton's are not seen. A register pool is
    judged where the PTX shows at most one request a warp group, or TTGIR shows the partitions.

    ## Source

    Limits: ir/target.py, each with its source. Register allocation a warp in units of 256: CUDA Occupancy Calculator.
    Reported cases: pytorch/helion PR 3007 (544 columns), vllm-project/vllm-omni issue 7176 (528 columns),
    vllm-project/vllm issue 36802 (shared memory on sm_120), pytorch/helion issue 3620 (register pool).
    """

    slug = "over-budget"
    gate = "RES-02"
    since = "0.1"

    def check(self, artifact: Artifact, facts: Facts) -> Iterator[Finding | Settled]:
        """Compare each figure with its limit; settle the known ones that fit."""
        in_scope = not facts.asked or artifact.target.name in facts.contract.targets
        for fact in self._compare(artifact, facts):
            if isinstance(fact, Finding) and fact.level is Level.VIOLATION and not in_scope:
                fact = replace(fact, level=Level.HAZARD)
            yield fact

    def _compare(self, artifact: Artifact, facts: Facts) -> Iterator[Finding | Settled]:
        resources, target = artifact.resources, artifact.target
        for obligation, found, limit, unit, remedy in _figures(resources, target, artifact.module):
            if found is None or limit is None:
                continue
            source = resources.sources.get(_FIELDS[obligation], "ptx")
            if found > limit:
                yield self._finding(artifact, obligation, found, limit, unit, remedy, source)
                continue
            reason = f"{found} of {limit} {unit}" if found else ""
            if obligation == "threads" and (fits := occupancy(resources, target)):
                reason += f", {fits.blocks} blocks a multiprocessor (limited by {fits.limiter})"
            yield Settled(self.gate, obligation, source, reason)
        if resources.spill_bytes:
            yield self._spill(artifact, resources)
        for launch in facts.launches:
            for axis, extent, limit in zip("xyz", launch.grid, target.grid or (), strict=False):
                if extent > limit:
                    unit = f"programs along {axis}"
                    remedy = f"launch fewer along {axis}: only x takes more than 65535, or loop inside the kernel"
                    yield self._finding(artifact, "grid", extent, limit, unit, remedy, "launch")

    def _spill(self, artifact: Artifact, found: Resources) -> Finding:
        moved = f" ({found.spill_stores} bytes stored, {found.spill_loads} loaded)" if found.spill_stores else ""
        bound = f"; maxnreg is {found.maxnreg}" if found.maxnreg else ""
        return Finding(
            self.slug,
            self.gate,
            Level.NOTE,
            f"{found.spill_bytes} bytes a thread spilled to memory{moved}, wanted none",
            _places(artifact, "registers", "cubin")[0].place,
            why=f"{found.registers} registers a thread in {found.threads} threads{bound}; it fits, and is slower",
            remedy="use a smaller tile, fewer stages or more warps, or raise maxnreg",
            evidence={"resource": "registers", "spilled": found.spill_bytes, "unit": "bytes a thread"},
        )

    def _finding(
        self, artifact: Artifact, obligation: str, found: int, limit: int, unit: str, remedy: str, source: str
    ) -> Finding:
        places = _places(artifact, obligation, source)
        return Finding(
            self.slug,
            self.gate,
            Level.VIOLATION,
            f"{found} {unit} needed, wanted at most {limit} on {artifact.target.name}",
            places[0].place,
            Confidence.READ,
            _WHY.get(obligation, "the kernel compiles, and fails when it is loaded"),
            remedy,
            related=tuple(places[1:]),
            evidence={"resource": obligation, "found": found, "limit": limit, "unit": unit, "source": source},
        )


_WHY = {
    "register pool": "a block shares out what it was launched with; a request beyond that waits for ever",
    "grid": "the launch fails with 'invalid argument'",
}
_FIELDS = {
    "registers": "registers",
    "shared memory": "dynamic_shared",
    "tensor memory": "tmem_columns",
    "threads": "threads",
    "cluster": "cluster",
    "register pool": "setmaxnreg",
}


def _figures(
    found: Resources, target: Target, module: Module | None
) -> Iterator[tuple[str, int | None, int | None, str, str]]:
    """(obligation, found, limit, unit, remedy) of each resource."""
    yield (
        "registers",
        block_registers(found.registers, found.threads, target),
        target.registers_per_block,
        "registers a block",
        "use fewer warps, or bound the registers of a thread with maxnreg",
    )
    yield (
        "shared memory",
        found.shared if found.shared is not None else found.dynamic_shared,
        target.shared_per_block,
        "bytes of shared memory",
        "use fewer stages (num_stages) or a smaller tile",
    )
    yield (
        "tensor memory",
        found.tmem_columns,
        target.tmem_columns,
        "Tensor Memory columns",
        "halve the tile's width or height, or keep the left operand in shared memory; stages and warps do not help",
    )
    yield "threads", found.threads, target.threads_per_block, "threads a block", "use fewer warps (num_warps)"
    blocks = None if found.cluster is None else found.cluster[0] * found.cluster[1] * found.cluster[2]
    yield (
        "cluster",
        blocks,
        target.cluster_max or target.cluster_portable,
        "blocks a cluster",
        "use fewer blocks a cluster (num_ctas)",
    )
    needed, available = register_pool(found, module)
    yield (
        "register pool",
        needed,
        available,
        "registers a thread of all warp groups together",
        "ask for fewer registers in the compute groups, or let the others give more back",
    )


def register_pool(found: Resources, module: Module | None) -> tuple[int | None, int | None]:
    """Registers a thread that warp groups (128 threads) hold together after ``setmaxnreg``, and the pool they share.

    The pool is what the block was launched with; a request beyond it waits for ever. What Triton's warp specialisation
    asks for stands in TTGIR, one number a partition, and its compiler leaves the rest to the default partition, 24 at
    least. Of other PTX only the least possible is known: each request is made by one group at least.
    """
    if found.setmaxnreg == ():
        return 0, 0
    launched = found.registers or found.maxnreg
    if found.setmaxnreg is None or found.threads is None or launched is None:
        return None, None
    groups = found.threads // 128
    pool = launched * groups
    specialised = module.find("ttg.warp_specialize") if module else []
    if specialised:
        requests = [_requested(operation) for operation in specialised]
        warps = (module.integer("ttg.num-warps") if module else None) or 4
        default = _LEAST_REGISTERS * warps // 4
        return max(default + request for request in requests), pool
    values = [count for _, count in found.setmaxnreg]
    if len(values) > groups:
        return None, None
    return sum(values) + (groups - len(values)) * min(values), pool


#: the least that setmaxnreg takes (PTX ISA 9, setmaxnreg)
_LEAST_REGISTERS = 24


def _requested(operation: Operation) -> int:
    """Registers a thread of all partitions of one ``ttg.warp_specialize``, weighted by their warp groups."""
    counts = [int(n) for n in re.findall(r"\d+", operation.attributes.get("requestedRegisters", "").partition(":")[2])]
    holder = next((o for region in operation.regions for b in region.blocks for o in b.operations if o.regions), None)
    headers = [region.header for region in (holder.regions if holder else ())]
    warps = [int(m[1]) if (m := re.search(r"num_warps\((\d+)\)", header)) else 4 for header in headers]
    return sum(count * w // 4 for count, w in zip(counts, warps or [4] * len(counts), strict=False))


def _places(artifact: Artifact, obligation: str, source: str) -> list[Related]:
    """The place to show first (the largest taker, else the kernel itself), then the other takers."""
    module = artifact.module
    kernel = next(iter(module.functions), None) if module else None
    takers = module.find(*_TAKERS[obligation]) if module and obligation in _TAKERS else []
    takers = [
        taker for taker in takers if "asm" not in taker.name or "setmaxnreg" in (taker.string("asm_string") or "")
    ]
    takers.sort(key=_bits, reverse=True)
    word = "asked for here" if obligation == "register pool" else "allocated here"
    places = [Related(word, _place(operation)) for operation in takers[:4]]
    if kernel is not None:
        places.append(Related("the kernel", _place(kernel)))
    return places or [Related("", Place(None, source))]


def _place(operation: Operation) -> Place:
    return Place(operation.location, "ttgir", operation.line)


def _bits(operation: Operation) -> int:
    kind = operation.results[0].type if operation.results else None
    return kind.numel * (kind.bits or 8) if kind else 0
