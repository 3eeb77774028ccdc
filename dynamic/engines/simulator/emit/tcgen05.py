"""tcgen05 (PTX ISA 9, "TensorCore 5th Generation Family Instructions")."""

from __future__ import annotations

from kcontract.dynamic.engines.simulator.codegen import Gen, Ins, form
from kcontract.dynamic.engines.simulator.emit.asynchronous import number
from kcontract.ir.ptx.operands import Address, Operand, Vector

_SHAPES = ("32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2")
_PER = {"32x32b": 1, "16x64b": 1, "16x32bx2": 1, "16x128b": 2, "16x256b": 4}
_SCALE_VECTORS = {
    ("mxf8f6f4", "scale_vec::1X"): 1, ("mxf8f6f4", "block32"): 1, ("mxf8f6f4", None): 1,
    ("mxf4", "scale_vec::2X"): 2, ("mxf4", "block32"): 2, ("mxf4", None): 2,
    ("mxf4nvf4", "scale_vec::2X"): 2, ("mxf4nvf4", "block32"): 2, ("mxf4nvf4", "scale_vec::4X"): 4,
    ("mxf4nvf4", "block16"): 4,
}  # fmt: skip
_TENSOR = "S.machine.tensor"


@form("tcgen05")
def tcgen05(g: Gen, i: Ins) -> None:
    what = i.mods.pop(0)
    group = i.take("cta_group::1", "cta_group::2")
    count = int(group[-1]) if group else 1
    if what in ("wait::ld", "wait::st"):
        i.need("sync")
        i.need("aligned")
        g.emit(f"S.machine.tensor_wait(S, {what[-2:]!r})")
    elif what in ("fence::before_thread_sync", "fence::after_thread_sync"):
        g.emit(f"S.machine.tensor_fence(S, {what[7:].partition('_')[0]!r})")
    elif what == "alloc":
        finish(i, "sync", "aligned", "b32")
        i.take("shared::cta")
        g.emit(f"{_TENSOR}.allocate(S, {g.address(i.args[0])}, {g.src(i.args[1], 'u32')}, {g.guard()})")
    elif what == "dealloc":
        finish(i, "sync", "aligned", "b32")
        g.emit(f"{_TENSOR}.release(S, {g.src(i.args[0], 'u32')}, {g.src(i.args[1], 'u32')}, {g.guard()})")
    elif what == "relinquish_alloc_permit":
        finish(i, "sync", "aligned")
        g.emit(f"{_TENSOR}.relinquish(S, {g.guard()})")
    elif what in ("ld", "st"):
        move(g, i, what)
    elif what == "commit":
        finish(i, "mbarrier::arrive::one", "b64")
        i.take("shared::cluster")
        casts = g.src(i.args[1], "u16") if i.flag("multicast::cluster") else "None"
        g.emit(f"tcgen05.commit(S, {g.address(i.args[0])}, {casts}, {count}, {g.guard()})")
    elif what == "cp":
        shape = i.need("128x256b", "4x256b", "128x128b", "64x128b", "32x128b")
        warps = i.take("warpx4", "warpx2::02_13", "warpx2::01_23") or ""
        text = f"{shape!r}, {warps!r}, {g.address(i.args[0])}, {g.src(i.args[1], 'u64')}"
        g.emit(f"tcgen05.copy(S, {text}, {count}, {g.guard()})")
    elif what == "shift":
        i.need("down")
        g.emit(f"tcgen05.shift(S, {g.address(i.args[0])}, {count}, {g.guard()})")
    elif what == "mma":
        mma(g, i, count)
    else:
        raise i.bad(f"tcgen05.{what} is not known")


def finish(i: Ins, *names: str) -> None:
    for name in names:
        i.need(name)


def move(g: Gen, i: Ins, what: str) -> None:
    finish(i, "sync", "aligned", "b32")
    shape = i.need(*_SHAPES)
    repeat = int(i.need(*(f"x{1 << k}" for k in range(8)))[1:])
    packed = i.flag("pack::16b" if what == "ld" else "unpack::16b")
    x, where = (i.args[0], i.args[1]) if what == "ld" else (i.args[-1], i.args[0])
    split = 0
    if shape == "16x32bx2":
        split = number(i, i.args[2] if what == "ld" else i.args[1])
    registers = x.elements if isinstance(x, Vector) else (x,)
    if len(registers) != repeat * _PER[shape]:
        raise i.bad(f"{repeat * _PER[shape]} registers were expected")
    address = g.address(where)
    if what == "ld":
        if g.guard() is not None:
            raise i.bad("a guarded load is not known")
        name = g.temp()
        g.emit(f"{name} = {_TENSOR}.load(S, {address}, {shape!r}, {len(registers)}, {packed}, {split})")
        for k, r in enumerate(registers):
            g.assign(r, "b32", f"{name}[{k}]")
        return
    data = ", ".join(g.src(r, "b32") for r in registers)
    g.emit(f"{_TENSOR}.store(S, {address}, [{data}], {shape!r}, {packed}, {split}, {g.guard()})")


def mma(g: Gen, i: Ins, group: int) -> None:
    ws = i.flag("ws")
    kind = i.need(*(f"kind::{k}" for k in ("f16", "tf32", "i8", "f8f6f4", "mxf8f6f4", "mxf4", "mxf4nvf4")))[6:]
    scaled = i.flag("block_scale")
    size = i.take("scale_vec::1X", "scale_vec::2X", "scale_vec::4X", "block16", "block32")
    for m in list(i.mods):
        if m.startswith("collector::"):
            i.mods.remove(m)
    vectors = 0
    if scaled:
        if (kind, size) not in _SCALE_VECTORS:
            raise i.bad("this block size is not known for this kind")
        vectors = _SCALE_VECTORS[kind, size]
    d, a, b, idesc = i.args[:4]
    rest = list(i.args[4:])
    scales = ("None", "None")
    if scaled:
        scales = (g.address(rest.pop(0)), g.address(rest.pop(0)))
    disabled: tuple[Operand, ...] = ()
    if rest and isinstance(rest[0], Vector):
        vector = rest.pop(0)
        assert isinstance(vector, Vector)
        disabled = vector.elements
    enable = g.src(rest.pop(0), "pred")
    shrink = number(i, rest.pop(0)) if rest and not ws else 0
    if rest:
        raise i.bad("its last operands are not understood")
    in_memory = isinstance(a, Address)
    left = g.address(a) if in_memory else g.src(a, "u64")
    off = ", ".join(g.src(x, "u32") for x in disabled)
    g.emit(
        f"tcgen05.mma(S, ({kind!r}, {group}, {vectors}, {ws}), {g.address(d)}, {left}, {in_memory}, {g.src(b, 'u64')}, "
        f"{g.src(idesc, 'u32')}, {enable}, {scales[0]}, {scales[1]}, {shrink}, [{off}], {g.guard()})"
    )
