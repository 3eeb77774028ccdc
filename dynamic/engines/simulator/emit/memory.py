"""Loads, stores, atomics and fences (PTX ISA 9, "Data Movement", "Parallel Synchronization": atom, red, fence)."""

from __future__ import annotations

from kcontract.dynamic.engines.simulator.codegen import REPRESENTATION, Gen, Ins, form
from kcontract.ir.ptx.operands import Address, Operand, Sink, Symbol, Vector

SPACES = (
    "global",
    "shared",
    "shared::cta",
    "shared::cluster",
    "local",
    "param",
    "const",
    "param::entry",
    "param::func",
)
_SCOPES = ("cta", "cluster", "gpu", "sys")
_ORDERS = ("weak", "relaxed", "acquire", "release", "acq_rel", "volatile", "mmio", "sc")
_CACHE = ("ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "L1::evict_first", "L1::evict_last", "L1::no_allocate",
          "L1::evict_normal", "L1::evict_unchanged", "L2::cache_hint", "L2::64B", "L2::128B", "L2::256B",
          "L2::evict_first", "L2::evict_last", "L2::evict_normal")  # fmt: skip


def hints(i: Ins) -> None:
    """Take the modifiers that change no value: cache hints, memory order, scope."""
    for names in (_CACHE, _SCOPES, _ORDERS):
        while i.take(*names):
            pass


def space_of(i: Ins) -> str:
    found = i.take(*SPACES)
    return (found or "").partition("::")[0]


def count_of(i: Ins) -> int:
    found = i.take("v2", "v4", "v8")
    return int(found[1:]) if found else 1


def parts(x: Operand, count: int, i: Ins) -> tuple[Operand, ...]:
    elements = x.elements if isinstance(x, Vector) else (x,)
    if len(elements) != count:
        raise i.bad(f"{count} registers were expected")
    return elements


@form("ld", "ldu")
def load(g: Gen, i: Ins) -> None:
    kind = i.type()
    hints(i)
    space, count = space_of(i), count_of(i)
    dtype = REPRESENTATION[kind]
    name = g.temp()
    where = i.args[1]
    mask = g.guard()
    frame = g.frame(where) if space == "param" else None
    if frame is not None:
        g.emit(f"{name} = access.load(S, 'local', {frame}, '{dtype}', {count}, {mask})")
    elif space == "param" and isinstance(where, Address) and isinstance(where.base, Symbol):
        g.emit(
            f"{name} = S.machine.grid.parameter({where.base.name!r}, {where.offset + where.base.offset}, '{dtype}', "
            f"{count})"
        )
    else:
        g.emit(f"{name} = access.load(S, {space!r}, {g.address(where)}, '{dtype}', {count}, {mask})")
    for k, x in enumerate(parts(i.args[0], count, i)):
        if not isinstance(x, Sink):
            g.assign(x, kind if dtype[0] in "iuf" else f"b{8 * int(dtype[1:])}", f"{name}[{k}]")


@form("st")
def store(g: Gen, i: Ins) -> None:
    kind = i.type()
    hints(i)
    signals = i.flag("async")
    space, count = space_of(i), count_of(i)
    bits = "c16" if kind == "b128" else f"b{8 * int(REPRESENTATION[kind][1:])}"
    where = i.args[0]
    data = ", ".join(g.src(x, bits) for x in parts(i.args[1], count, i))
    if signals:
        i.need("mbarrier::complete_tx::bytes")
        g.emit(f"tensors.store_async(S, {g.address(where)}, [{data}], {g.address(i.args[2])}, {g.guard()})")
        return
    frame = g.frame(where) if space == "param" else None
    space, address = (space, g.address(where)) if frame is None else ("local", frame)
    g.emit(f"access.store(S, {space!r}, {address}, [{data}], {g.guard()})")


@form("atom", "red")
def atomic(g: Gen, i: Ins) -> None:
    kind = i.type()
    signals = i.flag("async")
    op = i.need("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
    i.flag("noftz")
    hints(i)
    space, count = space_of(i), count_of(i)
    if kind == "b128":
        raise i.bad("128-bit atomics are not known")
    size = int(REPRESENTATION[kind][1:])
    bits = f"b{8 * size}"
    returns = i.op == "atom"
    where = i.args[1] if returns else i.args[0]
    if signals:
        i.need("mbarrier::complete_tx::bytes")
        data = f"{g.address(where)}, {g.src(i.args[1], bits)}, {g.address(i.args[2])}"
        g.emit(f"tensors.reduce_async(S, {op!r}, {kind!r}, {data}, {g.guard()})")
        return
    rest = i.args[2:] if returns else i.args[1:]
    address = g.address(where)
    results = parts(i.args[0], count, i) if returns else ()
    mask = g.guard()
    names = []
    for k in range(count):
        operands = [g.src(parts(x, count, i)[k], bits) for x in (rest if op == "cas" else rest[:1])]
        offset = f" + {k * size}" if k else ""
        name = g.temp()
        wanted = returns and not isinstance(results[k], Sink)
        g.emit(
            f"{name} = access.atomic(S, {space!r}, {op!r}, {kind!r}, {address}{offset}, [{', '.join(operands)}], "
            f"{mask}, {wanted})"
        )
        names.append(name)
    for name, x in zip(names, results, strict=False):
        if not isinstance(x, Sink):
            g.assign(x, bits, name)


@form("prefetch", "prefetchu", "applypriority", "discard")
def prefetch(g: Gen, i: Ins) -> None:
    i.mods.clear()


@form("membar", "fence")
def fence(g: Gen, i: Ins) -> None:
    """All memory effects are immediate and in order; checked mode notes which proxies were joined."""
    words = i.raw.modifiers
    i.mods.clear()
    known = {"proxy", "async", "async::generic", "alias", "tensormap::generic", "sync_restrict::shared::cta",
             "sync_restrict::shared::cluster", "mbarrier_init", "sc", "acq_rel", "acquire", "release", "cta", "cluster",
             "gpu", "sys", "gl", "async.global", "global", "shared::cta", "shared::cluster"}  # fmt: skip
    for word in words:
        if word not in known:
            raise i.bad(f"modifier .{word} is not known here")
    g.emit(f"S.machine.fence(S, {words!r}, {g.guard()})")


@form("createpolicy")
def policy(g: Gen, i: Ins) -> None:
    """Cache policies are opaque and change no value."""
    i.mods.clear()
    g.assign(i.args[0], "b64", g.const(0, "u8"))
