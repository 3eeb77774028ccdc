"""Conversions between types and address spaces (PTX ISA 9, "Data Movement and Conversion": cvt, cvta, isspacep)."""

from __future__ import annotations

from kcontract.dynamic.engines.simulator.codegen import REPRESENTATION, Gen, Ins, form
from kcontract.dynamic.engines.simulator.emit import floating
from kcontract.ir.ptx.operands import Operand, Register, Symbol

_INTEGERS = {f"{s}{n}" for s in "us" for n in (8, 16, 32, 64)}
_FLOATS = ("f16", "bf16", "f32", "f64")
_NARROW = ("e4m3x2", "e5m2x2", "e2m1x2", "e2m3x2", "e3m2x2", "ue8m0x2", "f16x2", "bf16x2", "e4m3x4", "e5m2x4",
           "e2m1x4", "e2m3x4", "e3m2x4", "tf32")  # fmt: skip
_TYPES = (*_INTEGERS, *_FLOATS, *_NARROW)


def shape(kind: str) -> tuple[str, int]:
    """Element type and how many are packed."""
    stem, _, count = kind.partition("x")
    return (stem, int(count)) if count else (kind, 1)


@form("cvt")
def convert(g: Gen, i: Ins) -> None:
    if i.flag("pack"):
        pack(g, i)
        return
    kinds = [m for m in i.mods if m in _TYPES]
    if len(kinds) != 2:
        raise i.bad("two types were expected")
    for kind in kinds:
        i.mods.remove(kind)
    target, source = kinds
    ftz, sat = i.flag("ftz"), i.flag("sat")
    if source in _INTEGERS and target in _INTEGERS:
        integers(g, i, target, source, sat)
    elif target in _INTEGERS:
        to_integer(g, i, target, source, ftz)
    elif source in _INTEGERS:
        from_integer(g, i, target, source, sat)
    elif source in ("f32", "f64") and target in ("f32", "f64", "tf32") and not (source == "f64" and target == "tf32"):
        between_wide(g, i, target, source, ftz, sat)
    else:
        narrow(g, i, target, source, ftz, sat)


def integers(g: Gen, i: Ins, target: str, source: str, sat: bool) -> None:
    a = g.src(i.args[1], source)
    if sat:
        a = f"arith.clamp({a}, '{REPRESENTATION[target]}')"
    g.assign(i.args[0], target, f"{a}.astype('{REPRESENTATION[target]}')")


def to_integer(g: Gen, i: Ins, target: str, source: str, ftz: bool) -> None:
    mode = i.need("rni", "rzi", "rmi", "rpi")
    a = floating.flushed(floating.load(g, i.args[1], source), ftz)[0]
    g.assign(i.args[0], target, f"arith.to_integer({a}, '{REPRESENTATION[target]}', '{mode}')")


def from_integer(g: Gen, i: Ins, target: str, source: str, sat: bool) -> None:
    mode = i.need(*floating.ROUNDINGS)
    a = g.src(i.args[1], source)
    if target in ("f16", "bf16"):
        text = f"values.encode({a}.astype('f8'), '{target}', '{mode}')"
    elif mode == "rn" or target == "f64":
        text = f"{a}.astype('{REPRESENTATION[target]}')"
    elif source[1:] == "64":
        raise i.bad("directed rounding of 64-bit integers is not known")
    else:
        text = f"values.to_f32({a}.astype('f8'), '{mode}')"
    if sat:
        raise i.bad(".sat from an integer is not known")
    g.assign(i.args[0], target, text)


def between_wide(g: Gen, i: Ins, target: str, source: str, ftz: bool, sat: bool) -> None:
    a = floating.flushed([g.src(i.args[1], source)], ftz and source == "f32")[0]
    if target == "tf32":
        mode = i.need("rna", "rn", "rz")
        relu, finite = i.flag("relu"), i.flag("satfinite")
        g.assign(i.args[0], "b32", f"values.encode({a}, 'tf32', '{mode}', finite={finite}, relu={relu})")
        return
    if source == target:
        whole = i.take("rni", "rzi", "rmi", "rpi")
        text = (
            f"{ {'rni': 'np.rint', 'rzi': 'np.trunc', 'rmi': 'np.floor', 'rpi': 'np.ceil'}[whole] }({a})"
            if whole
            else f"({a} + 0)"
        )
    elif target == "f64":
        text = f"{a}.astype('f8')"
    else:
        text = f"values.to_f32({a}, '{i.need(*floating.ROUNDINGS)}')"
    if sat:
        text = f"arith.saturate({text})"
    g.assign(i.args[0], target, floating.flushed([text], ftz and target == "f32")[0])


def narrow(g: Gen, i: Ins, target: str, source: str, ftz: bool, sat: bool) -> None:
    """All conversions with a 16-bit, 8-bit or smaller float on one side."""
    element, count = shape(target)
    mode = i.take("rn", "rna", "rz", "rm", "rp", "rs")
    finite, relu = i.flag("satfinite"), i.flag("relu")
    if mode == "rs":
        raise i.bad("stochastic rounding is not known")
    if sat:
        raise i.bad(".sat to a narrow type is not known")
    if i.take("scaled::n2::ue8m0"):
        raise i.bad("scaled conversions are not known")
    inputs = elements(g, i, source, count)
    inputs = floating.flushed(inputs, ftz and source == "f32")
    if element in ("f32", "f64"):
        text = floating.flushed([inputs[0]], ftz)[0]
        g.assign(i.args[0], target, text if element == "f32" else f"{text}.astype('f8')")
        return
    if element == "ue8m0":
        parts = [f"values.encode_scale({x}, '{mode}')" for x in inputs]
    else:
        parts = [f"values.encode({x}, '{element}', '{mode or 'rn'}', finite={finite}, relu={relu})" for x in inputs]
    if count == 1:
        g.assign(i.args[0], target, parts[0])
    elif element in ("f16", "bf16"):
        g.assign(i.args[0], target, g.pack(parts, "u4"))
    elif element == "e2m1":
        nibbles(g, i, parts)
    else:
        g.assign(i.args[0], "b16" if count == 2 else "b32", g.pack(parts, "u2" if count == 2 else "u4"))


def elements(g: Gen, i: Ins, source: str, count: int) -> list[str]:
    """Expressions of the values to convert, lowest part of the result first."""
    stem, packed = shape(source)
    operands = i.args[1:]
    if packed == 1:
        # cvt d, a, b packs a above b; with four sources the last is the lowest.
        if len(operands) != count and not (count == 4 and len(operands) == 1):
            raise i.bad(f"{count} sources were expected")
        flat = [e for x in operands for e in getattr(x, "elements", (x,))]
        return [floating.load(g, x, stem)[0] for x in reversed(flat)]
    if source in ("f16x2", "bf16x2"):
        return floating.load(g, operands[0], source)
    name = g.temp()
    if stem == "e2m1":
        g.emit(f"{name} = unpack_nibbles({g.src(operands[0], 'b8' if is_byte(g, operands[0]) else 'b16')}, {packed})")
    else:
        g.emit(f"{name} = unpack({g.src(operands[0], 'b16' if packed == 2 else 'b32')}, 'u1', {packed})")
    return [f"values.decode({name}[{k}], '{stem}')" for k in range(packed)]


def is_byte(g: Gen, x: Operand) -> bool:
    return isinstance(x, Register) and g.widths[g.register(x)] == "u1"


def nibbles(g: Gen, i: Ins, parts: list[str]) -> None:
    dtype = "u1" if len(parts) == 2 else "u2"
    text = " | ".join(f"({p}.astype('{dtype}') << {4 * k})" for k, p in enumerate(parts))
    g.assign(i.args[0], dtype, f"({text})")


def pack(g: Gen, i: Ins) -> None:
    """`cvt.pack.sat.convertType.abType{.cType} d, a, b {, c}`."""
    i.need("sat")
    kinds = [m for m in i.mods if m in _INTEGERS or m in ("b32", "s4", "u4", "s2", "u2")]
    for kind in kinds:
        i.mods.remove(kind)
    target, source = kinds[0], kinds[1]
    width = int(target[1:])
    if width not in (8, 16):
        raise i.bad("only packing to 8 and 16 bits is known")
    a, b = (f"arith.clamp({g.src(x, source)}, '{REPRESENTATION[target]}')" for x in i.args[1:3])
    mask = (1 << width) - 1
    text = f"((({a}).astype('u4') & {mask}) << {width} | (({b}).astype('u4') & {mask}))"
    if len(kinds) == 3:
        text = f"({text} | ({g.src(i.args[3], 'b32')} << {2 * width}))"
    g.assign(i.args[0], "b32", text)


@form("cvta")
def address_space(g: Gen, i: Ins) -> None:
    kind = i.type()
    back = i.flag("to")
    space = i.need("global", "shared", "shared::cta", "shared::cluster", "local", "param", "const")
    x = i.args[1]
    text = f"S.symbol({x.name!r}, {x.offset})" if isinstance(x, Symbol) else f"{g.src(x, kind)}.astype('i8')"
    function = "from_generic" if back else "to_generic"
    g.assign(
        i.args[0], kind, f"access.{function}({text}, {space.partition('::')[0]!r}).astype('{REPRESENTATION[kind]}')"
    )


@form("isspacep")
def is_space(g: Gen, i: Ins) -> None:
    space = i.need("global", "shared", "shared::cta", "shared::cluster", "local", "param", "const")
    g.assign(
        i.args[0], "pred", f"access.is_space({g.src(i.args[1], 'b64')}.astype('i8'), {space.partition('::')[0]!r})"
    )
