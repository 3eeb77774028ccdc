"""cp.async, bulk and tensor copies, mbarriers, tensor maps (PTX ISA 9, "Asynchronous copy", "mbarrier", "
""tensormap")."""

from __future__ import annotations

from kcontract.dynamic.engines.simulator.codegen import Gen, Ins, form
from kcontract.dynamic.engines.simulator.emit.memory import hints
from kcontract.dynamic.engines.simulator.tensor_map import FIELDS
from kcontract.ir.ptx.operands import Address, Immediate, Operand, Sink, Vector

_REDUCTIONS = ("add", "min", "max", "and", "or", "xor", "inc", "dec")
_SHARED = ("shared", "shared::cta", "shared::cluster")


def number(i: Ins, x: Operand) -> int:
    if not isinstance(x, Immediate):
        raise i.bad("a constant was expected")
    return int(x.value)


@form("cp")
def copy(g: Gen, i: Ins) -> None:
    reduction = i.flag("reduce")
    i.need("async")
    if i.flag("bulk"):
        bulk(g, i, reduction)
    elif i.take("commit_group"):
        g.emit(f"S.machine.asynchronous.commit(S.machine.asynchronous.copies, S, {g.guard()})")
    elif i.take("wait_group"):
        g.emit(f"S.machine.asynchronous.wait(S.machine.asynchronous.copies, S, {number(i, i.args[0])}, {g.guard()})")
    elif i.take("wait_all"):
        g.emit(f"S.machine.asynchronous.commit(S.machine.asynchronous.copies, S, {g.guard()})")
        g.emit(f"S.machine.asynchronous.wait(S.machine.asynchronous.copies, S, 0, {g.guard()})")
    elif i.take("mbarrier"):
        i.need("arrive")
        noinc = i.flag("noinc")
        i.need(*_SHARED)
        i.need("b64")
        g.emit(f"tensors.arrive_after_copies(S, {g.address(i.args[0])}, {g.guard()}, {noinc})")
    else:
        copy_async(g, i)


def copy_async(g: Gen, i: Ins) -> None:
    i.need("ca", "cg")
    i.need("shared", "shared::cta")
    i.need("global")
    policy = "L2::cache_hint" in i.mods
    hints(i)
    size = number(i, i.args[2])
    if size not in (4, 8, 16):
        raise i.bad("4, 8 or 16 bytes are allowed")
    extra = i.args[3:-1] if policy else i.args[3:]
    given = g.src(extra[0], "u32") if extra else "None"
    g.emit(f"copies.copy_async(S, {g.address(i.args[0])}, {g.address(i.args[1])}, {size}, {given}, {g.guard()})")


def bulk(g: Gen, i: Ins, reduction: bool) -> None:
    groups = "S.machine.asynchronous.bulk"
    if i.take("commit_group"):
        g.emit(f"S.machine.asynchronous.commit({groups}, S, {g.guard()})")
        return
    if i.take("wait_group"):
        i.flag("read")
        g.emit(f"S.machine.asynchronous.wait({groups}, S, {number(i, i.args[0])}, {g.guard()})")
        return
    if i.take("prefetch"):
        i.mods.clear()
        return
    if i.flag("tensor"):
        tensor(g, i, reduction)
        return
    op = i.need(*_REDUCTIONS) if reduction else ""
    kind = i.type() if reduction else ""
    i.flag("noftz")
    spaces = [m for m in i.mods if m in (*_SHARED, "global")]
    for space in spaces:
        i.mods.remove(space)
    i.need("bulk_group", "mbarrier::complete_tx::bytes")
    policy = "L2::cache_hint" in i.mods
    hints(i)
    multicast = i.flag("multicast::cluster")
    form = "out" if spaces[0] == "global" else "in" if spaces[1] == "global" else "across"
    if reduction and form != "out":
        raise i.bad("bulk reductions into shared memory are not known")
    args = i.args[:-1] if policy else i.args
    barrier = "None" if form == "out" else g.address(args[3])
    casts = g.src(args[4], "u16") if multicast else "None"
    text = f"{g.address(args[0])}, {g.address(args[1])}, {g.src(args[2], 'u32')}, {barrier}"
    g.emit(f"tensors.bulk(S, {text}, {g.guard()}, {form!r}, {casts}, {(op, kind)})")


def tensor(g: Gen, i: Ins, reduction: bool) -> None:
    i.need("1d", "2d", "3d", "4d", "5d")
    op = i.need(*_REDUCTIONS) if reduction else ""
    i.flag("tile")
    gather, scatter = i.flag("tile::gather4"), i.flag("tile::scatter4")
    if any(m.startswith("im2col") for m in i.mods):
        raise i.bad("im2col tensor copies are not known")
    pair = i.take("cta_group::1", "cta_group::2") == "cta_group::2"
    policy = "L2::cache_hint" in i.mods
    hints(i)
    multicast = i.flag("multicast::cluster")
    args = list(i.args[:-1] if policy else i.args)
    if i.take("bulk_group"):
        i.need("global")
        i.need(*_SHARED)
        where, parts = coordinates(g, i, args[0])
        g.emit(f"tensors.store(S, {where}, {parts}, {g.address(args[1])}, {g.guard()}, {op!r}, {scatter})")
        return
    i.need("mbarrier::complete_tx::bytes")
    i.need(*_SHARED)
    i.need("global")
    where, parts = coordinates(g, i, args[1])
    casts = g.src(args[3], "u16") if multicast else "None"
    g.emit(
        f"tensors.load(S, {g.address(args[0])}, {where}, {parts}, {g.address(args[2])}, {g.guard()}, {casts}, "
        f"{gather}, {pair})"
    )


def coordinates(g: Gen, i: Ins, x: Operand) -> tuple[str, str]:
    """Expressions of the tensor map's address and of the list of coordinates."""
    if not isinstance(x, Address) or len(x.coordinates) != 1 or not isinstance(x.coordinates[0], Vector):
        raise i.bad("a tensor map and a vector of coordinates were expected")
    parts = ", ".join(g.src(e, "b32") for e in x.coordinates[0].elements)
    return g.address(Address(x.base, x.offset)), f"[{parts}]"


@form("mbarrier")
def mbarrier(g: Gen, i: Ins) -> None:
    what = i.need(
        "init", "inval", "arrive", "arrive_drop", "expect_tx", "complete_tx", "try_wait", "test_wait", "pending_count"
    )
    if what == "pending_count":
        raise i.bad("pending counts are not known")
    extra = i.flag("expect_tx") or what == "expect_tx"
    parity = i.flag("parity")
    if i.take("noComplete"):
        raise i.bad(".noComplete is not known")
    hints(i)
    i.take(*_SHARED)
    i.need("b64")
    guard = g.guard()
    if what == "init":
        g.emit(f"tensors.init(S, {g.address(i.args[0])}, {g.src(i.args[1], 'u32')}, {guard})")
    elif what == "inval":
        g.emit(f"tensors.invalidate(S, {g.address(i.args[0])}, {guard})")
    elif what == "complete_tx":
        g.emit(f"tensors.complete(S, {g.address(i.args[0])}, {g.src(i.args[1], 'u32')}, {guard})")
    elif what in ("try_wait", "test_wait"):
        phase = g.src(i.args[2], "u32") if parity else f"({g.src(i.args[2], 'u64')} >> np.uint64(63))"
        g.assign(i.args[0], "pred", f"tensors.passed(S, {g.address(i.args[1])}, {phase}, {guard})")
    else:
        arrive(g, i, what, extra, guard)


def arrive(g: Gen, i: Ins, what: str, extra: bool, guard: str | None) -> None:
    args = list(i.args)
    result: Operand | None = None
    if what != "expect_tx" and not isinstance(args[0], Address):
        result = args.pop(0)
    address = g.address(args[0])
    rest = args[1:]
    expected = g.src(rest.pop(), "u32") if extra else "None"
    count = g.const(0, "i8") if what == "expect_tx" else g.src(rest[0], "u32") if rest else "None"
    name = g.temp()
    g.emit(f"{name} = tensors.arrive(S, {address}, {count}, {expected}, {guard}, {what == 'arrive_drop'})")
    if result is not None and not isinstance(result, Sink):
        g.assign(result, "b64", name)


@form("tensormap")
def tensormap(g: Gen, i: Ins) -> None:
    if i.take("cp_fenceproxy"):
        i.mods.clear()
        g.emit(
            f"tensors.publish(S, {g.address(i.args[0])}, {g.address(i.args[1])}, {number(i, i.args[2])}, {g.guard()})"
        )
        return
    i.need("replace")
    i.need("tile")
    name = i.need(*FIELDS)
    space = i.need("global", "shared::cta").partition("::")[0]
    i.need("b1024")
    kind = i.need("b32", "b64")
    ordinal = number(i, i.args[1]) if FIELDS[name][2] > 1 else 0
    value = g.src(i.args[-1], kind)
    g.emit(f"tensors.replace(S, {space!r}, {g.address(i.args[0])}, {name!r}, {ordinal}, {value}, {g.guard()})")
