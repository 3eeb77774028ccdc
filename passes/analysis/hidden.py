"""Where a 16-bit sum may hide from the ledger: reasons not to call a kernel proved.

Why: a pass must mean that nothing was overlooked. The ledger follows values of floating-point type; a running value
that is carried as bits, through memory, through a function it cannot see into, or from one short sum into the next
escapes it. None of this is a finding: honest kernels do it too. It keeps the gate undecided.
"""

from __future__ import annotations

from collections.abc import Iterator

from kcontract.ir.ttgir import Module, Operation, Value
from kcontract.passes.analysis.accumulations import Ledger
from kcontract.passes.analysis.flow import ADDS, LOOPS, is_float, is_narrow
from kcontract.passes.base import Facts

#: what may keep a carried 16-bit value as it is, or choose among values
_CHOICES = frozenset(
    "arith.maxnumf arith.minnumf arith.maximumf arith.minimumf arith.select arith.cmpf arith.extf "
    "arith.truncf tt.splat tt.broadcast tt.expand_dims tt.reshape tt.trans ttg.convert_layout tt.unsplat "
    "scf.if scf.yield scf.for".split()
)
_BITS = ("tt.bitcast", "arith.bitcast")
_UNSEEN = ("tt.extern_elementwise", "tt.elementwise_inline_asm", "tt.call")


def hidden_sums(facts: Facts) -> list[str]:
    """Why the module's sums may not all be known; empty where they are."""
    module = facts.artifact.module
    if module is None:
        return _in_ptx(facts)
    return list(dict.fromkeys(_reasons(module, facts)))


def _reasons(module: Module, facts: Facts) -> Iterator[str]:
    for operation in module.find(*_BITS):
        source, result = operation.operands[0], operation.results[0]
        if is_float(source) != is_float(result) and (is_narrow(source) or is_narrow(result)):
            yield "a 16-bit value is taken apart as bits"
    for operation in module.find("tt.atomic_cas"):
        if (operation.operands[-1].type.bits or 32) <= 16:
            yield "a 16-bit value is exchanged atomically"
    for operation in module.find(*_UNSEEN):
        if any(is_narrow(value) for value in operation.results) and _in_loop(operation):
            yield "a function that is not seen into makes 16-bit values in a loop"
    for loop in module.find(*LOOPS):
        if any(is_narrow(value) and _computes(value) for value in loop.regions[0].blocks[0].arguments):
            yield "a 16-bit value is carried round a loop and changed"
    stored = {_base(op.operands[0]) for op in module.find("tt.store") if is_narrow(op.operands[1]) and _adds(op)}
    if stored & {_base(op.operands[0]) for op in module.find("tt.load")}:
        yield "a 16-bit buffer is read, added to and written"
    rows = [row for row in facts.get(Ledger).sums() if row.narrow and row.operation is not None]
    made = {row.operation for row in rows}
    if any(_reaches(row.operation, made) for row in rows if row.operation):
        yield "one 16-bit sum is added into another"


def _in_ptx(facts: Facts) -> list[str]:
    program = facts.artifact.program
    names = program.opcodes() if program else ()
    types = ("f16", "f16x2", "bf16", "bf16x2")
    if any(set(name.split(".")[1:]) & set(types) and name.partition(".")[0] in _ROUNDING for name in names):
        return ["PTX alone does not tell which 16-bit values are sums"]
    return []


_ROUNDING = ("add", "sub", "fma", "mul", "cvt", "red", "atom", "ex2", "tanh")


def _in_loop(operation: Operation) -> bool:
    return any(outer.name in LOOPS or outer.name in ("tt.reduce", "tt.scan") for outer in operation.ancestors())


def _computes(argument: Value) -> bool:
    """Whether a loop's argument comes back changed by more than a choice."""
    loop = argument.block.parent
    seen: set[Value] = set()
    todo: list[tuple[Value, bool]] = [(argument, False)]
    while todo and len(seen) < 2000:
        value, changed = todo.pop()
        for user in value.users:
            if user.name in ("scf.yield", "scf.condition") and user.parent is loop:
                if changed:
                    return True
                continue
            results = user.parent.results if user.name == "scf.yield" else user.results
            for result in results:
                if is_float(result) and result not in seen and not user.name.startswith("tt.dot"):
                    seen.add(result)
                    todo.append((result, changed or user.name not in _CHOICES))
    return False


def _adds(store: Operation) -> bool:
    value = store.operands[1]
    for _ in range(8):
        made = value.definition
        if made is None:
            return False
        if made.name in ADDS:
            return True
        if made.name not in _CHOICES or not made.operands:
            return False
        value = made.operands[-1] if made.name == "arith.select" else made.operands[0]
    return False


def _base(pointer: Value) -> Value:
    """The argument a pointer is computed from."""
    for _ in range(64):
        made = pointer.definition
        if made is None or not made.operands:
            break
        pointer = made.operands[0]
    return pointer


def _reaches(operation: Operation, sums: set[Operation | None]) -> bool:
    """Whether the result of a sum is a term of another one, through elementwise operations in 16 bits."""
    todo, seen = list(operation.results), set[Value]()
    while todo and len(seen) < 200:
        for user in todo.pop().users:
            if user is not operation and user in sums:
                return True
            for result in user.results:
                if is_narrow(result) and result not in seen and user.name not in LOOPS:
                    seen.add(result)
                    todo.append(result)
    return False
