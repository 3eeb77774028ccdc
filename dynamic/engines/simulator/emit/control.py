"""Control flow, barriers and the odd instructions around them (PTX ISA 9, "Control Flow", "Barriers", "Miscellaneous").

A branch ends a block and hands the next block's number to the scheduler; a barrier parks the strand there.
"""

from __future__ import annotations

import re

from kcontract.dynamic.engines.simulator import calls
from kcontract.dynamic.engines.simulator.codegen import Gen, Ins, form
from kcontract.ir.ptx.operands import Immediate


def following(g: Gen) -> int:
    return g.starts[g.index + 1] if g.index + 1 in g.starts else len(g.blocks) - 1


@form("bra")
def branch(g: Gen, i: Ins) -> None:
    i.flag("uni")
    targets = g.function.targets(i.raw)
    if len(targets) != 1:
        raise i.bad("its label is not in scope")
    taken = g.block_at(targets[0])
    guard = g.guard()
    polls, tight = polling(g, targets[0], i.raw.index) if taken <= g.number else (False, False)
    if guard is None:
        g.end(f"return S.machine.rest(S, {taken}, {tight})" if polls else f"return {taken}")
    elif polls:
        g.end(f"return S.machine.poll(S, {guard}, {taken}, {following(g)}, {tight})")
    else:
        g.end(f"return S.machine.branch(S, {guard}, {taken}, {following(g)})")


_POLLS = re.compile(r"mbarrier\.(try|test)_wait|atom\.|ld\.(volatile|relaxed|acquire)|nanosleep")
_QUIET = re.compile(r"(setp|and|or|xor|not|mov|bra|nanosleep|selp)\b")


def polling(g: Gen, start: int, end: int) -> tuple[bool, bool]:
    """Whether the loop from one instruction to another asks memory again and again, and whether it does nothing "
    "else."""
    names = [g.function.instructions[k].name for k in range(start, end + 1)]
    polls = [bool(_POLLS.match(name)) for name in names]
    return any(polls), any(polls) and all(p or _QUIET.match(n) for p, n in zip(polls, names, strict=True))


@form("brx")
def branch_indexed(g: Gen, i: Ins) -> None:
    i.need("idx")
    i.flag("uni")
    targets = g.function.targets(i.raw)
    blocks = ", ".join(str(g.block_at(t)) for t in targets)
    if not targets or g.guard() is not None:
        raise i.bad("its table is empty or it is guarded")
    g.end(f"return S.machine.branch_indexed(S, {g.src(i.args[0], 'b32')}, ({blocks},))")


@form("ret", "exit")
def leave(g: Gen, i: Ins) -> None:
    i.flag("uni")
    guard = g.guard()
    g.end("return S.retire()" if guard is None else f"return S.machine.leave(S, {guard}, {following(g)})")


@form("bar", "barrier")
def barrier(g: Gen, i: Ins) -> None:
    words = i.raw.modifiers
    if words[0] == "warp":
        i.mods.clear()
        g.src(i.args[0], "b32")
        return
    if words[0] == "cluster":
        cluster(g, i)
        return
    i.flag("cta")
    i.flag("aligned")
    kind = i.need("sync", "arrive")
    number = g.src(i.args[0], "b32")
    count = g.src(i.args[1], "b32") if len(i.args) > 1 else "None"
    if g.guard() is not None:
        raise i.bad("a guarded barrier is not known")
    g.end(f"return S.machine.barrier(S, {number}, {count}, {following(g)}, {kind == 'sync'})")


def cluster(g: Gen, i: Ins) -> None:
    i.need("cluster")
    kind = i.need("arrive", "wait")
    i.flag("aligned")
    i.take("release", "relaxed", "acquire")
    if g.guard() is not None:
        raise i.bad("a guarded barrier is not known")
    g.end(f"return S.machine.cluster_barrier(S, {following(g)}, {kind == 'wait'})")


@form("trap")
def trap(g: Gen, i: Ins) -> None:
    g.emit(f"S.machine.trap(S, {g.guard()})")


@form("brkpt", "pmevent", "nanosleep")
def nothing(g: Gen, i: Ins) -> None:
    i.mods.clear()


@form("setmaxnreg")
def registers(g: Gen, i: Ins) -> None:
    """Register counts change no value; checked mode holds the pool to 64 K."""
    direction = i.need("inc", "dec")
    i.need("sync")
    i.need("aligned")
    i.need("u32")
    count = i.args[0]
    if not isinstance(count, Immediate) or not 24 <= int(count.value) <= 256 or int(count.value) % 8:
        raise i.bad("the count must be a constant of 24 to 256 in steps of 8")
    g.emit(f"S.machine.set_registers(S, {direction!r}, {int(count.value)})")


@form("griddepcontrol")
def dependent(g: Gen, i: Ins) -> None:
    """Launches run one after the other, so a dependent grid finds its predecessor finished."""
    i.need("launch_dependents", "wait")


@form("call")
def call(g: Gen, i: Ins) -> None:
    """Calls of vprintf and of the assertion handler, the only external functions that Triton's code calls; a function
    with a body stands in the kernel's text (see ``calls``)."""
    i.flag("uni")
    name, *lists = calls.parts(i.raw)
    if name not in ("vprintf", "__assertfail", "__assert_fail"):
        raise i.bad("only functions with a body in this module, vprintf and __assertfail can be called")
    frames = [[g.whole.frame(x, i.raw.scope) for x in each] for each in lists]
    if any(frame is None for each in frames for frame in each):
        raise i.bad("an argument is not declared")
    g.emit(f"S.machine.call(S, {name!r}, {frames[0]}, {frames[1]}, {g.guard()})")
