"""Floating-point arithmetic (PTX ISA 9, "Floating Point Instructions", "Half Precision", "Mixed Precision").

16-bit types are computed in float32 and rounded once; that is one rounding for +, -, ×, since 24 bits are at least
2p + 2; fused multiply-add of 16-bit types goes through float64. Packed types do the same to each part.
"""

from __future__ import annotations

from kcontract.dynamic.engines.simulator.codegen import Gen, Ins, form
from kcontract.ir.ptx.operands import Operand

ROUNDINGS = ("rn", "rz", "rm", "rp")
_ELEMENT = {"f16x2": "f16", "bf16x2": "bf16", "f32x2": "f32"}


def load(g: Gen, x: Operand, kind: str) -> list[str]:
    """Expressions of the one or two elements of an operand, as float32 (float64 for f64)."""
    if kind in _ELEMENT:
        name = g.temp()
        if kind == "f32x2":
            g.emit(f"{name} = unpack({g.src(x, kind)}, 'u4', 2)")
            return [f"{name}[{k}].view('f4')" for k in range(2)]
        g.emit(f"{name} = unpack({g.src(x, kind)}, 'u2', 2)")
        return [f"values.decode({name}[{k}], '{_ELEMENT[kind]}')" for k in range(2)]
    if kind in ("f16", "bf16"):
        return [f"values.decode({g.src(x, kind)}, '{kind}')"]
    return [g.src(x, kind)]


def store(g: Gen, x: Operand, kind: str, parts: list[str]) -> None:
    """Round elements to ``kind`` and assign them."""
    element = _ELEMENT.get(kind, kind)
    if element in ("f16", "bf16"):
        parts = [f"values.encode({p}, '{element}')" for p in parts]
    if kind in _ELEMENT:
        if element == "f32":
            parts = [f"({p}).view('u4')" for p in parts]
        g.assign(x, kind, g.pack(parts, "u8" if kind == "f32x2" else "u4"))
    else:
        g.assign(x, kind, parts[0])


def flushed(parts: list[str], ftz: bool) -> list[str]:
    return [f"values.flush({p})" for p in parts] if ftz else parts


def mixed(i: Ins) -> tuple[str, str]:
    """Result type and type of the first source: `add.rn.f32.f16` adds a half to a float32."""
    kind = i.mods.pop()
    if kind in ("f16", "bf16") and i.mods and i.mods[-1] == "f32":
        i.mods.pop()
        return "f32", kind
    return kind, kind


def arithmetic(g: Gen, i: Ins) -> None:
    """add, sub, mul."""
    kind, first = mixed(i)
    mode = i.take(*ROUNDINGS) or "rn"
    ftz, sat = i.flag("ftz"), i.flag("sat")
    i.flag("noftz")
    a = flushed(load(g, i.args[1], first), ftz)
    b = flushed(load(g, i.args[2], kind), ftz)
    sign = {"add": "+", "sub": "-", "mul": "*"}[i.op]
    if mode == "rn":
        parts = [f"{x} {sign} {y}" for x, y in zip(a, b, strict=True)]
    elif kind not in ("f32", "f32x2"):
        raise i.bad("only .rn is known for this type")
    elif i.op == "mul":
        parts = [f"values.to_f32({x}.astype('f8') * {y}, '{mode}')" for x, y in zip(a, b, strict=True)]
    else:
        minus = "-" if i.op == "sub" else ""
        parts = [f"arith.add32({x}, {minus}{y}, '{mode}')" for x, y in zip(a, b, strict=True)]
    finish(g, i, kind, parts, ftz, sat)


def finish(g: Gen, i: Ins, kind: str, parts: list[str], ftz: bool, sat: bool) -> None:
    if sat:
        parts = [f"arith.saturate({p})" for p in parts]
    store(g, i.args[0], kind, flushed([f"({p})" for p in parts], ftz and kind in ("f32", "f32x2")))


@form("fma")
def fused(g: Gen, i: Ins) -> None:
    kind, first = mixed(i)
    mode = i.take(*ROUNDINGS) or "rn"
    ftz, sat, relu = i.flag("ftz"), i.flag("sat"), i.flag("relu")
    a = flushed(load(g, i.args[1], first), ftz)
    b = flushed(load(g, i.args[2], first), ftz)
    c = flushed(load(g, i.args[3], kind), ftz)
    terms = list(zip(a, b, c, strict=True))
    if kind in ("f32", "f32x2"):
        parts = [f"arith.fma32({x}, {y}, {z}, '{mode}')" for x, y, z in terms]
    elif mode != "rn":
        raise i.bad("only .rn is known for this type")
    elif kind == "f64":
        parts = [f"arith.fma64({x}, {y}, {z})" for x, y, z in terms]
    else:
        parts = [f"({x}.astype('f8') * {y} + {z})" for x, y, z in terms]
    if relu:
        parts = [f"arith.maximum({p}, {g.const(0.0, 'f8')}, nan=True)" for p in parts]
    finish(g, i, kind, parts, ftz, sat)


def divide(g: Gen, i: Ins) -> None:
    kind = i.type()
    style = i.need("full", "approx", *ROUNDINGS)
    ftz = i.flag("ftz")
    a, b = (flushed([g.src(x, kind)], ftz)[0] for x in i.args[1:3])
    if kind == "f64" and style == "rn":
        text = f"{a} / {b}"
    elif style in ("rn", "full", "approx"):
        text = f"({a} / {b})"
    else:
        raise i.bad("only .rn division is known among the rounded ones")
    g.assign(i.args[0], kind, flushed([text], ftz)[0])


def sign(g: Gen, i: Ins) -> None:
    """abs and neg act on the sign bit alone."""
    kind = i.type()
    ftz = i.flag("ftz")
    bits = {"f32": "b32", "f64": "b64", "f16": "b16", "bf16": "b16"}.get(kind, "b32")
    mask = {"f32": 1 << 31, "f64": 1 << 63, "f16": 1 << 15, "bf16": 1 << 15, "f32x2": (1 << 63) | (1 << 31)}.get(
        kind, (1 << 31) | (1 << 15)
    )
    if kind == "f32x2":
        bits = "b64"
    dtype = "u" + str(int(bits[1:]) // 8)
    a = f"values.flush({g.src(i.args[1], kind)}).view('u4')" if ftz and kind == "f32" else g.src(i.args[1], bits)
    if i.op == "neg":
        g.assign(i.args[0], bits, f"{a} ^ {g.const(mask, dtype)}")
    else:
        g.assign(i.args[0], bits, f"{a} & {g.const(~mask, dtype)}")


def extreme(g: Gen, i: Ins) -> None:
    kind = i.type()
    ftz, nan = i.flag("ftz"), i.flag("NaN")
    xor, absolute = i.flag("xorsign"), i.flag("abs")
    sources = [flushed(load(g, x, kind), ftz and kind == "f32") for x in i.args[1:]]
    name = "maximum" if i.op == "max" else "minimum"
    parts: list[str] = []
    for terms in zip(*sources, strict=True):
        values = [f"np.abs({t})" for t in terms] if absolute else list(terms)
        text = f"arith.{name}({values[0]}, {values[1]}, nan={nan})"
        for more in values[2:]:
            text = f"arith.{name}({text}, {more}, nan={nan})"
        if xor:
            text = f"arith.with_sign({text}, np.signbit({terms[0]}) ^ np.signbit({terms[1]}))"
        parts.append(text)
    store(g, i.args[0], kind, parts)


@form("sqrt", "rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
def function(g: Gen, i: Ins) -> None:
    kind = i.type()
    style = i.take("approx", *ROUNDINGS)
    ftz = i.flag("ftz")
    if style is None and i.op != "tanh":
        raise i.bad("an approximation or a rounding was expected")
    if kind == "f64":
        parts = [f"arith.function64({i.op!r}, {g.src(i.args[1], kind)})"]
    elif kind == "f32" and style == "rn":
        a = flushed([g.src(i.args[1], kind)], ftz)[0]
        text = f"np.sqrt({a})" if i.op == "sqrt" else f"np.reciprocal({a})"
        parts = flushed([text], ftz)
    elif style in ("approx", None):
        parts = [f"arith.approximate({i.op!r}, {x}, ftz={ftz and kind == 'f32'})" for x in load(g, i.args[1], kind)]
    else:
        raise i.bad("only .rn is known among the rounded functions")
    store(g, i.args[0], kind, parts)


@form("copysign")
def copysign(g: Gen, i: Ins) -> None:
    kind = i.type()
    bits, dtype, top = ("b32", "u4", 1 << 31) if kind == "f32" else ("b64", "u8", 1 << 63)
    a, b = g.src(i.args[1], bits), g.src(i.args[2], bits)
    mask, rest = g.const(top, dtype), g.const(~top, dtype)
    g.assign(i.args[0], bits, f"({a} & {mask}) | ({b} & {rest})")


@form("testp")
def test(g: Gen, i: Ins) -> None:
    kind = i.type()
    what = i.need("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    a = g.src(i.args[1], kind)
    tiny = "1.1754943508222875e-38" if kind == "f32" else "2.2250738585072014e-308"
    text = {
        "finite": f"np.isfinite({a})",
        "infinite": f"np.isinf({a})",
        "number": f"~np.isnan({a})",
        "notanumber": f"np.isnan({a})",
        "normal": f"(np.isfinite({a}) & (np.abs({a}) >= {tiny}))",
        "subnormal": f"((np.abs({a}) < {tiny}) & ({a} != 0))",
    }[what]
    g.assign(i.args[0], "pred", text)
