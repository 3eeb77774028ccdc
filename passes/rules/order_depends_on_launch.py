"""Sums whose order follows the grid, the device or a number of splits (ORD-02)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kcontract.ir.artifact import Artifact
from kcontract.ir.ttgir import Operation, Value
from kcontract.model import Confidence, Determinism, Finding, Level, Related
from kcontract.passes.analysis.accumulations import Ledger
from kcontract.passes.analysis.address import Addresses
from kcontract.passes.analysis.flow import LOOPS, MMAS, Flow, allocation, inside
from kcontract.passes.analysis.origin import place
from kcontract.passes.base import Facts, Rule

_NAMED = re.compile(
    r"(?:num|n|max)_?(?:sms?|sm_count|splits?|programs|workers|ctas|blocks_per_sm)$|sm_?count$|split_?k$|k_?splits?$"
    r"|(?:per|a)_(?:program|sm|split|worker|cta)$",
    re.I,
)


class OrderDependsOnLaunch(Rule):
    """Finds sums that are cut or walked by the grid's size, the number of SMs or a number of splits.

    ## Contract

    A row's result depends on that row's inputs alone: not on the batch it came in, the grid, or the device (part of
    gate ORD-02 where the contract says `determinism: bitwise`).

    ## Why it matters

    A host that chooses the number of splits by batch size, or a loop that strides by the number of programs, adds the
    same terms in another order for another batch or another GPU. Results then differ between serving and training,
    and between two batches of the same request.

    ## Fires on

    A loop that carries a sum and whose bounds depend on `tl.num_programs`, or on an argument whose name says that it
    counts SMs, splits or programs. A note; under `determinism: bitwise` a hazard.

    ## Silent on

    Persistent kernels: the loop over tiles strides by the number of programs, and each tile's sum is whole, also
    where both loops were fused and the sum starts afresh on a condition. Bounds made of program ids and sizes.

    ## Limits

    Numbers of splits that are compile-time constants are not in the IR. Arguments are known by their names. Another
    tile size, number of warps or Triton version changes orders too: the accumulation report shows the tree.

    ## Source

    Batch invariance: sgl-project/sgl-flash-attn issue 43 (splits by batch), vllm-project/vllm issue 55895.
    """

    slug = "order-depends-on-launch"
    gate = "ORD-02"
    since = "0.1"

    def check(self, artifact: Artifact, facts: Facts) -> Iterator[Finding]:
        """Look at the bounds of each loop that carries a sum."""
        module = artifact.module
        if module is None or not _may_depend(artifact):
            return
        level = Level.HAZARD if facts.contract.determinism is Determinism.BITWISE else Level.NOTE
        seen = set()
        for loop, row in _sums(facts):
            if loop in seen or _starts_afresh(loop, row, facts):
                continue
            cause = _cause(loop, facts)
            if cause is None:
                continue
            seen.add(loop)
            yield Finding(
                self.slug,
                self.gate,
                level,
                f"loop of a sum bounded by {cause}, wanted bounds made of sizes and program ids",
                place(loop),
                Confidence.READ if cause.startswith("the number") else Confidence.INFERRED,
                "the same terms are added in another order when it changes",
                "fix the number of splits, or make it a function of the reduced size alone",
                "run the same row in batches of 1, 2 and 64 and compare bits",
                related=(Related("the sum", place(row)),),
                evidence={"cause": cause},
            )


def _may_depend(artifact: Artifact) -> bool:
    module = artifact.module
    if module is None:
        return False
    arguments = (
        v for f in module.functions if f.regions and f.regions[0].blocks for v in f.regions[0].blocks[0].arguments
    )
    return bool(module.find("tt.get_num_programs")) or any(_NAMED.search(value.name) for value in arguments)


def _sums(facts: Facts) -> Iterator[tuple[Operation, Operation]]:
    """Each loop around a sum that it carries, with the sum."""
    flow = facts.get(Flow)
    for row in facts.get(Ledger).rows:
        operation = row.operation
        if operation is None or row.kind not in ("loop sum", "recurrence", "dot", "mma"):
            continue
        home = None if operation.name in MMAS else flow.component.get(operation.results[0])
        for outer in operation.ancestors():
            if outer.name not in LOOPS:
                continue
            arguments = outer.regions[0].blocks[0].arguments
            if home is not None and any(flow.component.get(value) == home for value in arguments):
                yield outer, operation
            elif operation.name in MMAS:
                if _begins_inside(outer, operation):
                    break
                yield outer, operation


def _begins_inside(loop: Operation, product: Operation) -> bool:
    """Whether an accumulator in Tensor Memory is made, written or first added to (flag false) on each trip."""
    home = allocation(product.operands[2])
    if inside(home, loop):
        return True
    for inner in loop.walk():
        if inner.name == "ttng.tmem_store" and allocation(inner.operands[1]) is home:
            return True
        if inner.name in MMAS and allocation(inner.operands[2]) is home and _first_false(inner, loop):
            return True
    return False


def _first_false(product: Operation, loop: Operation) -> bool:
    """Whether a product overwrites its accumulator: its flag is false, or false on the first trip of an inner loop."""
    flag = next((v for v in product.operands[3:] if v.type.element == "i1"), None)
    if flag is not None and flag.definition is None and flag.block.parent is not loop:
        inner = flag.block.parent
        flag = inner.operands[flag.index + 2] if inner.name == "scf.for" and flag.index > 0 else None
    made = flag.definition if flag is not None else None
    return made is not None and made.attributes.get("value", "").startswith("false")


def _starts_afresh(loop: Operation, row: Operation, facts: Facts) -> bool:
    """Whether the carried sum is set back inside the loop on a condition of its own: a tile's end."""
    if row.name in MMAS:
        flag = row.operands[3] if len(row.operands) > 3 and row.operands[3].type.element == "i1" else None
        return flag is not None and _made_by_comparison(flag, loop)
    flow = facts.get(Flow)
    home = flow.component.get(row.results[0])
    for inner in loop.walk():
        if inner.name == "arith.select" and flow.component.get(inner.results[0]) == home:
            return True
        if inner.name == "scf.if" and any(
            flow.component.get(result) == home and _constant_arm(inner, result.index) for result in inner.results
        ):
            return True
        if inner.name == "ttng.warp_group_dot" and inner is row and len(inner.operands) > 3:
            return _made_by_comparison(inner.operands[3], loop)
    return False


def _made_by_comparison(flag: Value, loop: Operation) -> bool:
    """Whether a flag is compared anew on each trip, and so more than "not the first trip"."""
    seen: set[Value] = set()
    todo = [flag]
    while todo:
        value = todo.pop()
        made = value.definition
        if value in seen:
            continue
        seen.add(value)
        if made is None:
            if value.block.parent is loop and value.index > 0:
                end = loop.regions[0].blocks[0].terminator
                todo += end.operands[value.index - 1 : value.index] if end else []
        elif made.name == "arith.cmpi":
            return True
        elif made.name in ("arith.select", "arith.xori", "arith.andi", "arith.ori"):
            todo += made.operands
    return False


def _constant_arm(branch: Operation, position: int) -> bool:
    for region in branch.regions:
        end = region.blocks[0].terminator if region.blocks else None
        if end is not None and position < len(end.operands):
            made = end.operands[position].definition
            if made is not None and made.name == "arith.constant":
                return True
    return False


def _cause(loop: Operation, facts: Facts) -> str | None:
    bounds = loop.operands[:3] if loop.name == "scf.for" else []
    addresses = facts.get(Addresses)
    for source in addresses.sources(*bounds):
        if source.kind == "programs":
            return f"the number of programs along {'xyz'[source.key]}"
    for value in _arguments(bounds):
        if _NAMED.search(value.name):
            return f"argument {value.name.lstrip('%')}"
    return None


def _arguments(values: list[Value]) -> Iterator[Value]:
    """Function arguments that integer values are computed from, not through memory."""
    seen: set[Value] = set()
    todo = list(values)
    while todo:
        value = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        made = value.definition
        if made is not None and not made.name.startswith(("tt.load", "tt.atomic")):
            todo += made.operands
        elif made is None and value.block.parent.name == "tt.func":
            yield value
        elif made is None and value.block.parent.name == "scf.for" and value.index == 0:
            todo += value.block.parent.operands[:3]
