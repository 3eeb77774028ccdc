"""Comparison and selection (PTX ISA 9, "Comparison and Selection Instructions")."""

from __future__ import annotations

from kcontract.dynamic.engines.simulator.codegen import REPRESENTATION, Gen, Ins, form
from kcontract.dynamic.engines.simulator.emit import floating
from kcontract.ir.ptx.operands import Operand, Pair, Sink

_ORDERED = {"eq": "==", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
_OPPOSITE = {"neu": "==", "ltu": ">=", "leu": ">", "gtu": "<=", "geu": "<"}
_COMPARISONS = (*_ORDERED, "ne", "equ", *_OPPOSITE, "num", "nan")


def relation(i: Ins, op: str, a: str, b: str, real: bool) -> str:
    if op in _ORDERED:
        return f"({a} {_ORDERED[op]} {b})"
    if op == "ne":
        return f"(({a} < {b}) | ({a} > {b}))" if real else f"({a} != {b})"
    if not real:
        raise i.bad(f"comparison .{op} needs floats")
    if op == "equ":
        return f"~(({a} < {b}) | ({a} > {b}))"
    if op in _OPPOSITE:
        return f"~({a} {_OPPOSITE[op]} {b})"
    bad = f"(np.isnan({a}) | np.isnan({b}))"
    return bad if op == "nan" else f"~{bad}"


def compared(g: Gen, i: Ins, kind: str, op: str, ftz: bool) -> list[str]:
    """Names of the comparison of each element."""
    real = kind.startswith(("f", "bf"))
    if real:
        a, b = (floating.flushed(floating.load(g, x, kind), ftz and kind == "f32") for x in i.args[1:3])
    else:
        a, b = [g.src(i.args[1], kind)], [g.src(i.args[2], kind)]
    out = []
    for x, y in zip(a, b, strict=True):
        left, right, name = g.temp(), g.temp(), g.temp()
        g.emit(f"{left}, {right} = {x}, {y}")
        g.emit(f"{name} = {relation(i, op, left, right, real)}")
        out.append(name)
    return out


@form("setp")
def setp(g: Gen, i: Ins) -> None:
    kind = i.type()
    op = i.need(*_COMPARISONS)
    ftz = i.flag("ftz")
    combine = i.take("and", "or", "xor")
    results = compared(g, i, kind, op, ftz)
    sign = {"and": "&", "or": "|", "xor": "^", None: ""}[combine]
    other = g.src(i.args[3], "pred") if combine else ""

    def joined(text: str) -> str:
        return f"({text}) {sign} {other}" if combine else text

    target = i.args[0]
    targets: list[tuple[Operand, str]]
    if kind in ("f16x2", "bf16x2"):
        if not isinstance(target, Pair):
            raise i.bad("a packed comparison needs two predicates")
        targets = [(target.first, joined(results[0])), (target.second, joined(results[1]))]
    elif isinstance(target, Pair):
        targets = [(target.first, joined(results[0])), (target.second, joined(f"~{results[0]}"))]
    else:
        targets = [(target, joined(results[0]))]
    names = [g.temp() for _ in targets]
    for name, (_, text) in zip(names, targets, strict=True):
        g.emit(f"{name} = {text}")
    for name, (x, _) in zip(names, targets, strict=True):
        if not isinstance(x, Sink):
            g.assign(x, "pred", name)


@form("set")
def set_value(g: Gen, i: Ins) -> None:
    source, result = i.type(), i.type()
    op = i.need(*_COMPARISONS)
    ftz = i.flag("ftz")
    if i.take("and", "or", "xor"):
        raise i.bad("set with a third operand is not known")
    flags = compared(g, i, source, op, ftz)
    if result in ("f16x2", "bf16x2"):
        one = 0x3C00 if result == "f16x2" else 0x3F80
        parts = [f"np.where({f}, np.uint16({one}), np.uint16(0))" for f in flags]
        g.assign(i.args[0], result, g.pack(parts, "u4"))
    elif result in ("u32", "s32"):
        if len(flags) == 2:
            parts = [f"np.where({f}, np.uint16(0xffff), np.uint16(0))" for f in flags]
            g.assign(i.args[0], "b32", g.pack(parts, "u4"))
        else:
            g.assign(i.args[0], "b32", f"np.where({flags[0]}, np.uint32(0xffffffff), np.uint32(0))")
    elif result == "f32":
        g.assign(i.args[0], "f32", f"{flags[0]}.astype('f4')")
    else:
        raise i.bad(f"a result of type .{result} is not known")


@form("selp")
def select(g: Gen, i: Ins) -> None:
    kind = i.type()
    bits = REPRESENTATION[kind]
    bits = kind if bits[0] in "f" else f"b{8 * int(bits[1:])}"
    a, b = g.src(i.args[1], bits), g.src(i.args[2], bits)
    g.assign(i.args[0], bits, f"W({g.src(i.args[3], 'pred')}, {a}, {b})")


@form("slct")
def select_sign(g: Gen, i: Ins) -> None:
    test, kind = i.type(), i.type()
    i.flag("ftz")
    bits = f"b{kind[1:]}"
    a, b, c = g.src(i.args[1], bits), g.src(i.args[2], bits), g.src(i.args[3], test)
    g.assign(i.args[0], bits, f"W({c} >= 0, {a}, {b})")
