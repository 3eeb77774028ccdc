"""Instructions in which the threads of a warp take part together (PTX ISA 9: shfl, vote, match, redux, elect, mapa)."""

from __future__ import annotations

from kcontract.dynamic.engines.simulator.codegen import Gen, Ins, form
from kcontract.ir.ptx.operands import Immediate, Operand, Pair, Sink


def two(x: Operand) -> tuple[Operand, Operand | None]:
    return (x.first, x.second) if isinstance(x, Pair) else (x, None)


def assign(g: Gen, x: Operand | None, kind: str, text: str) -> None:
    if x is not None and not isinstance(x, Sink):
        g.assign(x, kind, text)


@form("shfl")
def shuffle(g: Gen, i: Ins) -> None:
    i.need("sync")
    mode = i.need("up", "down", "bfly", "idx")
    i.need("b32")
    value, flag = two(i.args[0])
    a, b, c = g.src(i.args[1], "b32"), i.args[2], i.args[3]
    name = g.temp()
    if isinstance(b, Immediate) and isinstance(c, Immediate):
        lanes, inside = f"LANES{g.temp()}", f"INSIDE{g.temp()}"
        from kcontract.dynamic.engines.simulator.warps import sources

        g.constants[lanes], g.constants[inside] = sources(mode, int(b.value), int(c.value))
        g.emit(f"{name} = warps.permute(S, {a}, {lanes})")
        flag_text = f"warps.by_lane(S, {inside})"
    else:
        g.emit(f"{name}, {name}_p = warps.shuffle(S, {mode!r}, {a}, {g.src(b, 'b32')}, {g.src(c, 'b32')})")
        flag_text = f"{name}_p"
    assign(g, value, "b32", name)
    if flag is not None:
        assign(g, flag, "pred", flag_text)


@form("vote")
def vote(g: Gen, i: Ins) -> None:
    i.need("sync")
    mode = i.need("all", "any", "uni", "ballot")
    i.need("pred", "b32")
    text = f"warps.vote(S, {mode!r}, {g.src(i.args[1], 'pred')}, {g.src(i.args[2], 'b32')}, {g.guard()})"
    g.assign(i.args[0], "b32" if mode == "ballot" else "pred", text)


@form("match")
def match(g: Gen, i: Ins) -> None:
    mode = i.need("any", "all")
    i.need("sync")
    kind = i.type()
    value, flag = two(i.args[0])
    name = g.temp()
    g.emit(f"{name} = warps.match(S, {mode!r}, {g.src(i.args[1], kind)}, {g.src(i.args[2], 'b32')})")
    assign(g, value, "b32", f"{name}[0]")
    assign(g, flag, "pred", f"{name}[1]")


@form("redux")
def reduce(g: Gen, i: Ins) -> None:
    i.need("sync")
    op = i.need("add", "min", "max", "and", "or", "xor")
    kind = i.type()
    absolute, nan = i.flag("abs"), i.flag("NaN")
    a = g.src(i.args[1], kind)
    text = f"warps.reduce(S, {op!r}, {a}, {g.src(i.args[2], 'b32')}, absolute={absolute}, nan={nan})"
    g.assign(i.args[0], kind, text)


@form("activemask")
def active(g: Gen, i: Ins) -> None:
    i.need("b32")
    g.assign(i.args[0], "b32", "warps.active(S)")


@form("elect")
def elect(g: Gen, i: Ins) -> None:
    i.need("sync")
    value, flag = two(i.args[0])
    name = g.temp()
    g.emit(f"{name} = warps.elect(S, {g.src(i.args[1], 'b32')})")
    assign(g, value, "b32", f"{name}[0]")
    assign(g, flag, "pred", f"{name}[1]")


@form("mapa")
def map_address(g: Gen, i: Ins) -> None:
    kind = i.type()
    space = i.take("shared::cluster")
    g.assign(
        i.args[0],
        kind,
        f"S.machine.map_address({g.src(i.args[1], kind)}, {g.src(i.args[2], 'b32')}, {space is not None})",
    )


@form("getctarank")
def rank(g: Gen, i: Ins) -> None:
    kind = i.type()
    i.take("shared::cluster")
    g.assign(i.args[0], "b32", f"S.machine.address_rank({g.src(i.args[1], kind)})")
