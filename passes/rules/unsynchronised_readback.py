"""Values read back from global memory that another thread wrote, without a barrier (ORD-02)."""

from __future__ import annotations

from collections.abc import Iterator

from kcontract.ir.artifact import Artifact
from kcontract.ir.ttgir import Operation, Value
from kcontract.model import Confidence, Finding, Level, Related, Settled
from kcontract.passes.analysis.address import Addresses, Poly, pointer_argument
from kcontract.passes.analysis.origin import place
from kcontract.passes.base import Facts, Rule

_BARRIERS = frozenset("ttg.barrier gpu.barrier ttng.cluster_barrier ttng.cluster_arrive".split())
_SHARED = frozenset("tt.reduce tt.scan ttg.local_alloc ttg.local_store ttg.convert_layout tt.gather".split())


class UnsynchronisedReadback(Rule):
    """Finds loads of what the same kernel has just stored, in another layout and without a barrier.

    ## Contract

    A result does not depend on how far other threads of the block have come (gate ORD-02).

    ## Why it matters

    The compiler gives a store and a load the layouts that suit each. One thread then reads what another wrote, and
    nothing makes it wait: Triton orders accesses to shared memory, not to global memory. The kernel is right as long
    as all warps run in step, and wrong some times in a thousand.

    ## Fires on

    A store and a later load of the same elements through one pointer argument, where the two have different layouts
    or run through the elements in another order (a transposition), with no `tl.debug_barrier` between them. It is a
    hazard; a note where shared memory is used in between, since that usually brings a barrier of its own.

    ## Silent on

    The same elements in the same layout, which each thread reads back itself; a barrier in between; different
    arguments, which are taken not to overlap.

    ## Limits

    Accesses at other offsets of one argument (a neighbour's element) are not compared. Other programs' stores are no
    part of this rule: no barrier of one block orders them.

    ## Source

    Reported case: triton-lang/triton issue 10924; the author's duty is documented in triton-lang/triton PR 11872.
    """

    slug = "unsynchronised-readback"
    gate = "ORD-02"
    since = "0.1"

    def check(self, artifact: Artifact, facts: Facts) -> Iterator[Finding | Settled]:
        """Compare each store with the loads after it; settle the obligation where none reads it back."""
        module = artifact.module
        if module is None:
            return
        addresses = facts.get(Addresses)
        stores = [store for store in module.find("tt.store") if store.operands[0].type.shape]
        loads = _by_pointer(module.find("tt.load")) if stores else {}
        clean = True
        for store in stores:
            base = pointer_argument(store.operands[0])
            for load in loads.get(base, ()) if base is not None else ():
                if not _reads_back(store, load, addresses):
                    continue
                level = _ordered(store, load)
                if level is None:
                    continue
                clean = clean and level is not Level.HAZARD
                name = base.name.lstrip("%") if base is not None else ""
                yield Finding(
                    self.slug,
                    self.gate,
                    level,
                    f"elements of {name} read back in another layout than stored in, wanted a barrier between",
                    place(load),
                    Confidence.READ,
                    "another thread wrote them, and nothing orders the two in global memory",
                    "put tl.debug_barrier() between, or keep the value in registers",
                    "run it a thousand times with many warps and compare bits" if level is Level.HAZARD else "",
                    related=(Related("stored here", place(store)),),
                )
        if clean:
            yield Settled(self.gate, "readback", "ttgir", "no store is read back across threads")


def _by_pointer(loads: list[Operation]) -> dict[Value, list[Operation]]:
    found: dict[Value, list[Operation]] = {}
    for load in loads:
        base = pointer_argument(load.operands[0]) if load.operands[0].type.shape else None
        if base is not None:
            found.setdefault(base, []).append(load)
    return found


def _reads_back(store: Operation, load: Operation, addresses: Addresses) -> bool:
    """Whether a load reads the elements of a store that ran before it, through other threads."""
    if load.line < store.line or not _runs_after(store, load):
        return False
    written, read = store.operands[0], load.operands[0]
    target = addresses.of(written)
    if written.type.shape == read.type.shape and addresses.of(read) == target:
        return written.layout != read.layout
    rank = len(read.type.shape)
    swapped = tuple(reversed(range(rank)))
    turned: Poly | None = addresses.of(read, swapped) if rank == 2 else None
    return turned == target and tuple(reversed(read.type.shape)) == written.type.shape


def _runs_after(store: Operation, load: Operation) -> bool:
    """Whether the load's block is the store's or inside a later operation of it."""
    return load.block is store.block or store.block in (outer.block for outer in load.ancestors() if outer is not store)


def _ordered(store: Operation, load: Operation) -> Level | None:
    """None where a barrier stands between, a note where shared memory is used between, else a hazard."""
    between = [o for o in store.module.walk() if store.line < o.line < load.line]
    if any(operation.name in _BARRIERS for operation in between):
        return None
    return Level.NOTE if any(operation.name in _SHARED for operation in between) else Level.HAZARD
