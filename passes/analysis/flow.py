"""How floating-point values flow: an edge for "is computed from", and the cycles that make a value an accumulator.

Why: an accumulator is a value that is computed from its own earlier self. In TTGIR that loop is spread over iteration
arguments, yields, branches, partitions of a warp-specialised loop, and allocations that are stored to and loaded from
(on Blackwell the accumulator of a matmul never leaves Tensor Memory). Example: in

    %r = scf.for … iter_args(%a = %zero) { %h = arith.truncf %a; %w = arith.extf %h; %s = arith.addf %w, %x; yield %s }

``%s`` has type f32, yet every cycle through it passes ``%h``: the sum is kept in 16 bits.

A running value is carried by adds, products, selections, conversions and changes of shape. What a reduction, a
quotient, a function such as exp, or a matrix product makes of its factors is new data: a recurrence through those is
none of the accumulations looked for here.

Two addresses are the same when they are the same SSA value defined outside the loop, or views of one allocation.
Integers (but for packed pairs, where there is inline assembly) and pointers are no part of the graph. Elements are not
told apart: a value that moves between lanes (a rotation) looks like one that stays.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

from kcontract.ir.ttgir import Operation, Value
from kcontract.passes.base import Facts

#: what comes out is not the running value that went in
_NO_CARRIERS = ("tt.load", "tt.reduce", "tt.scan", "tt.extern_elementwise", "tt.atomic_rmw")
Node = TypeVar("Node", bound=Hashable)
_INTEGER = frozenset(
    "arith.addi arith.subi arith.muli arith.divsi arith.divui arith.remsi arith.remui arith.cmpi arith.cmpf "
    "arith.andi arith.ori arith.xori arith.shli arith.shrsi arith.shrui arith.extsi arith.extui arith.trunci "
    "arith.minsi arith.maxsi arith.constant tt.make_range tt.addptr tt.get_program_id tt.get_num_programs "
    "tt.return".split()
)
_VIEWS = frozenset(
    "ttg.memdesc_index ttg.memdesc_subview ttg.memdesc_subslice ttg.memdesc_trans ttg.memdesc_reshape "
    "ttg.memdesc_reinterpret ttng.tmem_subslice".split()
)
#: stores into an allocation: operand indices of the value and of the destination
STORES = {"ttng.tmem_store": (-2, 0), "ttg.local_store": (0, 1)}
_LOADS = {"ttng.tmem_load": 0, "ttg.local_load": 0}
LOOPS = ("scf.for", "scf.while")
ADDS = ("arith.addf", "arith.subf", "math.fma")
DOTS = ("tt.dot", "tt.dot_scaled", "ttng.warp_group_dot")
MMAS = ("ttng.tc_gen5_mma", "ttng.tc_gen5_mma_scaled")


def is_float(value: Value) -> bool:
    """Whether its elements are floating-point numbers, of 8 bits or more."""
    element = value.type.element
    return element.startswith(("f", "bf", "tf"))


def _is_float_or_packed(value: Value) -> bool:
    return is_float(value) or value.type.element == "i32"


def is_narrow(value: Value) -> bool:
    """Whether its elements are floating-point numbers of 16 bits or fewer."""
    return is_float(value) and (value.type.bits or 32) <= 16


def allocation(value: Value) -> Value:
    """The allocation a memory descriptor is a view of, through views, loop arguments and captures; or itself."""
    for _ in range(64):
        operation = value.definition
        if operation is not None and operation.name in _VIEWS and operation.operands:
            value = operation.operands[0]
            continue
        source = _entry(value) if operation is None else None
        if source is None:
            break
        value = source
    return value


def _entry(value: Value) -> Value | None:
    """What a block argument was first given: a loop's initial value, a partition's captured one."""
    parent = value.block.parent
    if parent.name == "scf.for" and value.index > 0:
        position = value.index + 2
        return parent.operands[position] if position < len(parent.operands) else None
    if parent.name in ("ttg.warp_specialize.partitions", "ttg.warp_specialize"):
        holder = parent if parent.operands else parent.parent
        return holder.operands[value.index] if value.index < len(holder.operands) else None
    return None


class Flow:
    """The graph of one module. ``facts.get(Flow)`` shares it among rules."""

    def __init__(self, facts: Facts) -> None:
        self.successors: dict[Value, list[Value]] = {}
        module = facts.artifact.module
        # inline assembly adds 16-bit floats packed in pairs, which Triton knows as 32-bit integers
        packed = bool(module and module.find("tt.elementwise_inline_asm"))
        flows = _is_float_or_packed if packed else is_float
        for operation in module.walk() if module else ():
            if operation.name in _INTEGER:
                continue
            for source, result in self._edges(operation):
                if flows(source) and flows(result):
                    self.successors.setdefault(source, []).append(result)
        self.component = components(self.successors)

    def carried(self, operation: Operation) -> list[Value]:
        """Operands that the operation's result (or the allocation it adds into) flows back to."""
        if operation.name in MMAS:
            return [operation.operands[2]]
        home = {self.component.get(result) for result in operation.results} - {None}
        return [operand for operand in operation.operands if self.component.get(operand) in home]

    def narrowest(self, result: Value) -> str | None:
        """The 16-bit type that every cycle through a value (an allocation, a sum) passes, though it is wider itself.

        None where it is narrow itself, on no cycle, or some cycle keeps more than 16 bits all the way round.
        """
        home = self.component.get(result)
        if is_narrow(result) or home is None:
            return None
        seen = {result}
        todo = [result]
        narrow: list[str] = []
        while todo:
            for follower in self.successors.get(todo.pop(), ()):
                if follower is result:
                    return None
                if follower in seen or self.component.get(follower) != home:
                    continue
                if is_narrow(follower):
                    narrow.append(follower.type.element)
                else:
                    seen.add(follower)
                    todo.append(follower)
        return max(narrow, key=lambda element: element == "bf16", default=None)

    def _edges(self, operation: Operation) -> Iterator[tuple[Value, Value]]:
        name, operands, results = operation.name, operation.operands, operation.results
        if name == "scf.for":
            arguments = operation.regions[0].blocks[0].arguments[1:]
            yield from zip(operands[3:], arguments, strict=False)
            yield from zip(operands[3:], results, strict=False)
        elif name == "scf.while":
            yield from zip(operands, operation.regions[0].blocks[0].arguments, strict=False)
        elif name == "scf.condition":
            loop = operation.parent
            after_arguments = loop.regions[1].blocks[0].arguments
            for passed, after, result in zip(operands[1:], after_arguments, loop.results, strict=False):
                yield passed, after
                yield passed, result
        elif name in ("scf.yield", "ttg.mask.return", "ttg.warp_yield"):
            yield from self._yield(operation)
        elif name in ("cf.br", "cf.cond_br"):
            for successor in operation.successors:
                yield from zip(successor.operands, successor.block.arguments, strict=False)
        elif name == "tt.call":
            yield from self._call(operation)
        elif name == "tt.store":
            yield from self._memory(operation)
        elif name in MMAS:
            return  # adds into its allocation: the ledger knows
        elif name in DOTS:  # what is multiplied is data; only the third operand is the sum so far
            yield operands[2], results[0]
        elif name in STORES:
            value, destination = STORES[name]
            yield operands[value], allocation(operands[destination])
        elif name in _LOADS:
            for result in results:
                yield allocation(operands[_LOADS[name]]), result
        elif (
            name in _VIEWS
            or name in _NO_CARRIERS
            or (name.startswith("math.") and name not in ("math.fma", "math.absf"))
        ):
            return
        elif name == "arith.divf":  # the numerator
            yield operands[0], results[0]
        elif name == "ttng.warp_group_dot_wait":  # hands each operand on
            yield from zip(operands, results, strict=False)
        else:
            for result in results:
                for operand in operands:
                    yield operand, result

    def _yield(self, operation: Operation) -> Iterator[tuple[Value, Value]]:
        parent = operation.parent
        if parent.name == "scf.while":  # its results come from scf.condition
            yield from zip(operation.operands, parent.regions[0].blocks[0].arguments, strict=False)
            return
        yield from zip(operation.operands, parent.results, strict=False)
        if parent.name == "scf.for":
            yield from zip(operation.operands, parent.regions[0].blocks[0].arguments[1:], strict=False)

    def _call(self, operation: Operation) -> Iterator[tuple[Value, Value]]:
        callee = operation.string("callee")
        for function in operation.module.functions:
            if function.string("sym_name") == callee and function.regions and function.regions[0].blocks:
                yield from zip(operation.operands, function.regions[0].blocks[0].arguments, strict=False)
                for inner in function.walk():
                    if inner.name == "tt.return":
                        yield from zip(inner.operands, operation.results, strict=False)

    def _memory(self, operation: Operation) -> Iterator[tuple[Value, Value]]:
        """A store reaches the loads through the same pointer in the same loop, where the pointer stays put."""
        pointer, value = operation.operands[:2]
        loop = next((outer for outer in operation.ancestors() if outer.name in LOOPS), None)
        if loop is None or inside(pointer, loop):
            return
        for user in pointer.users:
            if user.name == "tt.load" and user.operands[0] is pointer and user.results and loop in user.ancestors():
                yield value, user.results[0]


def inside(value: Value, operation: Operation) -> bool:
    """Whether a value is made in one of the operation's regions."""
    parent = value.block.parent
    return parent is operation or operation in parent.ancestors()


def components(successors: Mapping[Node, Sequence[Node]]) -> dict[Node, int]:
    """Strongly connected components with a cycle in them, numbered (Tarjan 1972, without recursion)."""
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    on_stack: set[Node] = set()
    stack: list[Node] = []
    component: dict[Node, int] = {}
    for root in successors:
        if root in index:
            continue
        work = [(root, iter(successors.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, followers = work[-1]
            for follower in followers:
                if follower not in index:
                    index[follower] = low[follower] = len(index)
                    stack.append(follower)
                    on_stack.add(follower)
                    work.append((follower, iter(successors.get(follower, ()))))
                    break
                if follower in on_stack:
                    low[node] = min(low[node], index[follower])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    members = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        members.append(member)
                        if member is node:
                            break
                    if len(members) > 1 or node in successors.get(node, ()):
                        component.update(dict.fromkeys(members, index[node]))
    return component
