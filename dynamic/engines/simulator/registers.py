"""Registers that asynchronous instructions fill: which are read before anybody waited.

Why: `tcgen05.ld` and `wgmma.mma_async` return before their result registers hold anything; the program may read them
after `tcgen05.wait::ld` or `wgmma.wait_group` only. The simulator fills them at once, so it looks for early reads in
the program text: a forward walk over the basic blocks that carries the registers in flight. A register counts as in
flight where some path says so. A plain `mov` hands the state on, since compilers copy accumulators between loop turns
and the assembler removes those copies.

Not reported: a read of what `tcgen05.ld` fills where the wait comes later on the same way. Triton 3.9 emits such code,
and the assembler orders the registers by a scoreboard, as it does where no wait follows at all. Not looked for:
operands of wgmma that are overwritten too early.
"""

from __future__ import annotations

from collections.abc import Iterator

from kcontract.ir.ptx.operands import Address, Group, Immediate, Operand, Pair, Register, Vector
from kcontract.ir.ptx.program import Function, Instruction

#: The registers in flight: -1 - i for the load from Tensor Memory at instruction i, else the groups committed since the
#: product.
State = dict[tuple[int, str], int]
#: Groups are not counted further than this.
_OLDEST = 9
#: Instructions whose first operand is no result.
_NO_RESULT = frozenset(
    ("st red bar barrier bra brx ret exit trap cp fence membar mbarrier prefetch prefetchu stmatrix setmaxnreg call "
     "griddepcontrol nanosleep tensormap tcgen05 wgmma").split()
)  # fmt: skip


def early_reads(function: Function) -> list[tuple[int, str]]:
    """Instruction indices that read a register in flight, each with a sentence on what was not waited for."""
    blocks = function.blocks
    before: list[State | None] = [None] * len(blocks)
    if not blocks:
        return []
    before[0] = {}
    work = [0]
    while work:
        number = work.pop()
        state = dict(before[number] or {})
        for _ in _walk(function, blocks[number].start, blocks[number].end, state):
            pass
        for follow in blocks[number].successors:
            known = before[follow]
            joined = dict(state) if known is None else _join(known, state)
            if joined != known:
                before[follow] = joined
                work.append(follow)
    found: list[tuple[int, int, str]] = []
    for block, known in zip(blocks, before, strict=True):
        if known is not None:
            found += _walk(function, block.start, block.end, dict(known))
    return sorted((index, text) for index, age, text in found if age >= 0 or not _waited(function, -1 - age))


def _waited(function: Function, load: int) -> bool:
    """Whether a wait for loads from Tensor Memory can follow an instruction."""
    blocks = function.blocks
    at = next(b for b in blocks if b.start <= load < b.end)
    spans, seen = [(load, at.end)], set[int]()
    work = list(at.successors)
    while work:
        number = work.pop()
        if number not in seen:
            seen.add(number)
            spans.append((blocks[number].start, blocks[number].end))
            work += blocks[number].successors
    return any(
        function.instructions[k].name.startswith("tcgen05.wait::ld") for start, end in spans for k in range(start, end)
    )


def _join(a: State, b: State) -> State:
    """In flight on either path, by the newest product."""
    return {**b, **{k: min(v, b.get(k, v)) for k, v in a.items()}}


def _walk(function: Function, start: int, end: int, state: State) -> Iterator[tuple[int, int, str]]:
    """Carry the state through some instructions; yields the early reads."""
    for index in range(start, end):
        i = function.instructions[index]
        name = i.name
        if name.startswith("tcgen05.ld."):
            state.update((key, -1 - index) for key in keys(function, i, i.operands[:1]))
        elif name.startswith("wgmma.mma_async"):
            results = list(keys(function, i, i.operands[:1]))
            yield from _read(index, state, [k for k in keys(function, i, i.operands[1:]) if k not in results])
            state.update((key, 0) for key in results)
        elif not state:
            continue
        elif name.startswith("tcgen05.wait::ld"):
            _drop(state, [k for k, age in state.items() if age < 0])
        elif name.startswith("wgmma.commit_group"):
            state.update((k, min(v + 1, _OLDEST)) for k, v in state.items() if v >= 0)
        elif name.startswith("wgmma.wait_group"):
            count = i.operands[0]
            kept = int(count.value) if isinstance(count, Immediate) else 0
            _drop(state, [k for k, age in state.items() if age > kept])
        else:
            yield from _other(function, i, state)


def _drop(state: State, done: list[tuple[int, str]]) -> None:
    for key in done:
        del state[key]


def _other(function: Function, i: Instruction, state: State) -> Iterator[tuple[int, int, str]]:
    operands = i.operands
    results = operands[:1] if i.opcode not in _NO_RESULT else ()
    sources = list(keys(function, i, operands[len(results) :]))
    written = list(keys(function, i, results))
    if i.opcode == "mov" and i.guard is None and len(sources) == len(written) == 1 and sources[0] in state:
        state[written[0]] = state[sources[0]]
        return
    if i.guard is not None:
        sources += keys(function, i, (i.guard,))
    yield from _read(i.index, state, sources)
    for key in written:
        state.pop(key, None)


def _read(index: int, state: State, keys: list[tuple[int, str]]) -> Iterator[tuple[int, int, str]]:
    for scope, name in keys:
        age = state.get((scope, name))
        if age is not None:
            what = ("tcgen05.ld", "tcgen05.wait::ld") if age < 0 else ("wgmma", "wgmma.wait_group")
            text = f"register {name} is read while {what[0]} may not have filled it: there is no {what[1]} between"
            yield index, age, text
            return


def keys(function: Function, i: Instruction, operands: tuple[Operand, ...]) -> Iterator[tuple[int, str]]:
    """The registers in some operands of an instruction, by scope of declaration and name."""
    for x in operands:
        if isinstance(x, Register):
            declared = function.register(x.name, i.scope)
            yield (declared.scope if declared else -1, x.name)
        elif isinstance(x, (Vector, Group)):
            yield from keys(function, i, x.elements)
        elif isinstance(x, Pair):
            yield from keys(function, i, (x.first, x.second))
        elif isinstance(x, Address):
            yield from keys(function, i, (x.base, *x.coordinates))
