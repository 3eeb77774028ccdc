"""Kernels that do not fit the hardware they were compiled for (RES-02)."""

from __future__ import annotations

from collections.abc import Iterator

from kcontract.ir.artifact import Artifact
from kcontract.ir.resources import Resources
from kcontract.ir.target import Target
from kcontract.ir.ttgir import Operation
from kcontract.model import Confidence, Finding, Level, Place, Related, Settled
from kcontract.passes.base import Facts, Rule

#: obligation -> the operations that take the most of it, for the place of the finding
_TAKERS = {"shared memory": "ttg.local_alloc", "tensor memory": "ttng.tmem_alloc"}


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

    A violation for each limit of the compiled target that is exceeded: registers of all threads of a block, bytes of
    shared memory (the opt-in limit, which Triton uses), Tensor Memory columns, threads of a block, blocks of a
    cluster, registers that warp groups ask for together with `setmaxnreg`. Figures are those of the last pass:
    metadata, cubin and PTX.

    ## Silent on

    A resource whose figure or whose limit is unknown: it stays unsettled and RES-02 undecided. Stack that the program
    itself declares (the slow path of sine and cosine). Spills, which cost time and fit.

    ## Limits

    Dynamic shared memory and cluster sizes set by a launcher other than Triton's are not seen. Grid extents belong to
    a launch and are judged where one is seen.

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
        resources, target = artifact.resources, artifact.target
        for obligation, found, limit, unit, remedy in _figures(resources, target):
            if found is None or limit is None:
                continue
            source = resources.sources.get(_FIELDS[obligation], "ptx")
            if found <= limit:
                yield Settled(self.gate, obligation, source, f"{found} of {limit} {unit}")
                continue
            places = _places(artifact, obligation, source)
            yield Finding(
                self.slug,
                self.gate,
                Level.VIOLATION,
                f"{found} {unit} needed, wanted at most {limit} on {target.name}",
                places[0].place,
                Confidence.READ,
                f"{target.name} has {limit} {unit}; the kernel compiles, and fails when it is loaded",
                remedy,
                related=tuple(places[1:]),
                evidence={"resource": obligation, "found": found, "limit": limit, "unit": unit, "source": source},
            )


_FIELDS = {
    "registers": "registers",
    "shared memory": "dynamic_shared",
    "tensor memory": "tmem_columns",
    "threads": "threads",
    "cluster": "cluster",
    "register pool": "setmaxnreg",
}


def _figures(found: Resources, target: Target) -> Iterator[tuple[str, int | None, int | None, str, str]]:
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
    pool = None if found.setmaxnreg is None or found.threads is None else register_pool(found)
    yield (
        "register pool",
        pool,
        target.registers_per_block,
        "registers after setmaxnreg",
        "ask for fewer registers in the compute partitions, or let the others give more back",
    )


def block_registers(registers: int | None, threads: int | None, target: Target) -> int | None:
    """Registers that a block takes: a warp's are rounded up to the allocation unit."""
    unit = target.register_granularity
    if registers is None or threads is None or unit is None:
        return None
    warps = -(-threads // 32)
    return warps * (-(-registers * 32 // unit) * unit)


def register_pool(found: Resources) -> int:
    """Registers of the block once each warp group that raises its share has done so; 0 without setmaxnreg.

    The PTX says what each partition asks for, not how many warps it has: each request is counted for one warp group
    of 128 threads, and at most as many groups as the block has.
    """
    moves = found.setmaxnreg or ()
    groups = (found.threads or 0) // 128
    asked = sorted((count for kind, count in moves if kind == "inc"), reverse=True)[:groups]
    given = [count for kind, count in moves if kind == "dec"][: max(groups - len(asked), 0)]
    return 128 * (sum(asked) + sum(given))


def _places(artifact: Artifact, obligation: str, source: str) -> list[Related]:
    """The place to show first (the largest taker, else the kernel itself), then the other takers."""
    module = artifact.module
    kernel = next(iter(module.functions), None) if module else None
    takers = module.find(_TAKERS[obligation]) if module and obligation in _TAKERS else []
    takers.sort(key=_bits, reverse=True)
    places = [Related("allocated here", _place(operation)) for operation in takers[:4]]
    if kernel is not None:
        places.append(Related("the kernel", _place(kernel)))
    return places or [Related("", Place(None, source))]


def _place(operation: Operation) -> Place:
    return Place(operation.location, "ttgir", operation.line)


def _bits(operation: Operation) -> int:
    kind = operation.results[0].type if operation.results else None
    return kind.numel * (kind.bits or 8) if kind else 0
