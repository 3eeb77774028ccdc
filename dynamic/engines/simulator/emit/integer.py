"""Integer arithmetic, logic, shifts and bit fields (PTX ISA 9, "Integer Arithmetic", "Logic and Shift")."""

from __future__ import annotations

from kcontract.dynamic.engines.simulator.codegen import REPRESENTATION, Gen, Ins, form
from kcontract.dynamic.engines.simulator.emit import floating
from kcontract.ir.ptx.operands import Immediate, Pair, Register

_FLOATS = ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2", "f32x2")


def is_float(i: Ins) -> bool:
    return bool(i.mods) and i.mods[-1] in _FLOATS


def halves(g: Gen, x: str, signed: bool) -> list[str]:
    """Names of the two 16-bit halves of a packed expression, low first, as 16-bit integers."""
    name = g.temp()
    g.emit(f"{name} = unpack({x}, 'u2', 2)")
    return [f"{name}[{k}]" + (".view('i2')" if signed else "") for k in range(2)]


def packed(g: Gen, i: Ins, kind: str, expression: str) -> None:
    """Apply an expression with {a} and {b} to both halves."""
    signed = kind[0] == "s"
    a, b = (halves(g, g.src(x, kind), signed) for x in i.args[1:3])
    parts = [expression.format(a=x, b=y) + (".view('u2')" if signed else "") for x, y in zip(a, b, strict=True)]
    g.assign(i.args[0], kind, g.pack(parts, "u4"))


@form("add", "sub")
def add(g: Gen, i: Ins) -> None:
    if is_float(i):
        floating.arithmetic(g, i)
        return
    kind = i.type()
    sign = "+" if i.op == "add" else "-"
    if kind.endswith("x2"):
        packed(g, i, kind, f"{{a}} {sign} {{b}}")
        return
    if i.flag("cc"):
        carry(g, i, kind, sign, use=False, make=True)
        return
    if i.flag("sat"):
        wide = f"({g.src(i.args[1], kind)}.astype('i8') {sign} {g.src(i.args[2], kind)})"
        g.assign(i.args[0], kind, f"np.clip({wide}, -2147483648, 2147483647).astype('i4')")
        return
    bits = "b" + kind[1:]
    g.assign(i.args[0], bits, f"{g.src(i.args[1], bits)} {sign} {g.src(i.args[2], bits)}")


@form("addc", "subc")
def add_carry(g: Gen, i: Ins) -> None:
    kind = i.type()
    carry(g, i, kind, "+" if i.op == "addc" else "-", use=True, make=i.flag("cc"))


def carry(g: Gen, i: Ins, kind: str, sign: str, *, use: bool, make: bool) -> None:
    bits = "b" + kind[1:]
    a, b = g.src(i.args[1], bits), g.src(i.args[2], bits)
    out, first = g.temp(), g.temp()
    g.emit(f"{first} = {a} {sign} {b}")
    over = f"({first} < {a})" if sign == "+" else f"({a} < {b})"
    if use:
        incoming = f"{need_carry(g, i)}.astype('{REPRESENTATION[bits]}')"
        g.emit(f"{out} = {first} {sign} {incoming}")
        again = f"({out} < {first})" if sign == "+" else f"({first} < {incoming})"
        over = f"({over} | {again})"
    else:
        g.emit(f"{out} = {first}")
    if make:
        g.carry = g.temp()
        g.emit(f"{g.carry} = {over}")
    g.assign(i.args[0], bits, out)


def need_carry(g: Gen, i: Ins) -> str:
    if g.carry is None:
        raise i.bad("the carry flag was not set in this block")
    return g.carry


@form("mul")
def mul(g: Gen, i: Ins) -> None:
    if is_float(i):
        floating.arithmetic(g, i)
        return
    kind = i.type()
    g.assign(i.args[0], product_kind(i, kind), product(g, i, kind, i.need("lo", "hi", "wide")))


def product_kind(i: Ins, kind: str) -> str:
    return f"{kind[0]}{int(kind[1:]) * 2}" if ".wide" in i.raw.name else "b" + kind[1:]


def product(g: Gen, i: Ins, kind: str, part: str) -> str:
    bits = "b" + kind[1:]
    if part == "lo":
        return f"{g.src(i.args[1], bits)} * {g.src(i.args[2], bits)}"
    a, b = g.src(i.args[1], kind), g.src(i.args[2], kind)
    if part == "wide":
        wide = f"{REPRESENTATION[kind][0]}{int(kind[1:]) // 4}"
        return f"({a}.astype('{wide}') * {b}.astype('{wide}'))"
    return f"arith.mul_hi({a}, {b}).view('{REPRESENTATION[bits]}')"


@form("mad", "madc")
def mad(g: Gen, i: Ins) -> None:
    if is_float(i):
        floating.fused(g, i)
        return
    kind = i.type()
    part = i.need("lo", "hi", "wide")
    make = i.flag("cc")
    if i.flag("sat"):
        raise i.bad("saturating mad is not known")
    result = product_kind(i, kind)
    bits = REPRESENTATION["b" + result[1:]]
    name = g.temp()
    g.emit(f"{name} = ({product(g, i, kind, part)})" + (f".view('{bits}')" if part == "wide" else ""))
    out, c = g.temp(), g.src(i.args[3], "b" + result[1:])
    g.emit(f"{out} = {name} + {c}")
    over = f"({out} < {c})"
    if i.op == "madc":
        incoming = g.temp()
        g.emit(f"{incoming} = {need_carry(g, i)}.astype('{bits}')")
        again = g.temp()
        g.emit(f"{again} = {out} + {incoming}")
        over = f"({over} | ({again} < {out}))"
        out = again
    if make:
        g.carry = g.temp()
        g.emit(f"{g.carry} = {over}")
    g.assign(i.args[0], "b" + result[1:], out)


@form("div", "rem")
def div(g: Gen, i: Ins) -> None:
    if is_float(i):
        floating.divide(g, i)
        return
    kind = i.type()
    name = "divide" if i.op == "div" else "remainder"
    g.assign(i.args[0], kind, f"arith.{name}({g.src(i.args[1], kind)}, {g.src(i.args[2], kind)})")


@form("abs", "neg")
def unary(g: Gen, i: Ins) -> None:
    if is_float(i):
        floating.sign(g, i)
        return
    kind = i.type()
    g.assign(i.args[0], kind, ("np.abs" if i.op == "abs" else "-") + f"({g.src(i.args[1], kind)})")


@form("min", "max")
def extreme(g: Gen, i: Ins) -> None:
    if is_float(i):
        floating.extreme(g, i)
        return
    kind = i.type()
    relu = i.flag("relu")
    function = "np.minimum" if i.op == "min" else "np.maximum"
    text = f"{function}({{a}}, {{b}})"
    if relu:
        text = f"np.maximum({text}, 0)"
    if kind.endswith("x2"):
        packed(g, i, kind, text)
        return
    g.assign(i.args[0], kind, text.format(a=g.src(i.args[1], kind), b=g.src(i.args[2], kind)))


@form("and", "or", "xor")
def logic(g: Gen, i: Ins) -> None:
    kind = i.type()
    sign = {"and": "&", "or": "|", "xor": "^"}[i.op]
    g.assign(i.args[0], kind, f"{g.src(i.args[1], kind)} {sign} {g.src(i.args[2], kind)}")


@form("not", "cnot")
def invert(g: Gen, i: Ins) -> None:
    kind = i.type()
    a = g.src(i.args[1], kind)
    g.assign(i.args[0], kind, f"~{a}" if i.op == "not" else f"({a} == 0).astype('{REPRESENTATION[kind]}')")


@form("shl", "shr")
def shift(g: Gen, i: Ins) -> None:
    kind = i.type()
    width = int(kind[1:])
    a, amount = g.src(i.args[1], kind), i.args[2]
    dtype = REPRESENTATION[kind]
    if isinstance(amount, Immediate):
        n = min(int(amount.value), width)
        if n < width or dtype[0] == "i":
            sign = "<<" if i.op == "shl" else ">>"
            g.assign(i.args[0], kind, f"{a} {sign} {g.const(min(n, width - 1), dtype)}")
        else:
            g.assign(i.args[0], kind, g.const(0, dtype))
        return
    name = "shift_left" if i.op == "shl" else "shift_right"
    g.assign(i.args[0], kind, f"arith.{name}({a}, {g.src(amount, 'b32')})")


@form("shf")
def funnel(g: Gen, i: Ins) -> None:
    left = i.need("l", "r") == "l"
    wrap = i.need("wrap", "clamp") == "wrap"
    i.need("b32")
    a, b, c = (g.src(x, "b32") for x in i.args[1:4])
    g.assign(i.args[0], "b32", f"arith.funnel({a}, {b}, {c}, left={left}, wrap={wrap})")


@form("prmt")
def permute(g: Gen, i: Ins) -> None:
    i.need("b32")
    a, b = g.src(i.args[1], "b32"), g.src(i.args[2], "b32")
    selector = i.args[3]
    if isinstance(selector, Immediate):
        g.assign(i.args[0], "b32", f"arith.permute_by({a}, {b}, {int(selector.value)})")
    else:
        g.assign(i.args[0], "b32", f"arith.permute({a}, {b}, {g.src(selector, 'b32')})")


@form("bfe", "bfi")
def field(g: Gen, i: Ins) -> None:
    kind = i.type()
    if i.op == "bfe":
        a, b, c = g.src(i.args[1], kind), g.src(i.args[2], "b32"), g.src(i.args[3], "b32")
        g.assign(i.args[0], kind, f"arith.extract({a}, {b}, {c})")
        return
    a, b = g.src(i.args[1], kind), g.src(i.args[2], kind)
    g.assign(i.args[0], kind, f"arith.insert({a}, {b}, {g.src(i.args[3], 'b32')}, {g.src(i.args[4], 'b32')})")


@form("lop3")
def logic3(g: Gen, i: Ins) -> None:
    i.need("b32")
    a, b, c = (g.src(x, "b32") for x in i.args[1:4])
    table = i.args[4]
    if not isinstance(table, Immediate) or isinstance(i.args[0], Pair):
        raise i.bad("only the plain form with a constant table is known")
    g.assign(i.args[0], "b32", f"arith.logic3({a}, {b}, {c}, {int(table.value)})")


@form("popc", "clz", "brev", "bfind")
def bits(g: Gen, i: Ins) -> None:
    kind = i.type()
    a = g.src(i.args[1], kind)
    if i.op == "bfind":
        g.assign(i.args[0], "b32", f"arith.find_top({a}, shift={i.flag('shiftamt')})")
        return
    name = {"popc": "popcount", "clz": "leading_zeros", "brev": "reverse_bits"}[i.op]
    g.assign(i.args[0], kind if i.op == "brev" else "b32", f"arith.{name}({a})")


@form("dp4a")
def dot4(g: Gen, i: Ins) -> None:
    b_kind, a_kind = i.type(), i.type()
    a, b = g.src(i.args[1], a_kind), g.src(i.args[2], b_kind)
    g.assign(i.args[0], "b32", f"arith.dot4({a}, {b}, {g.src(i.args[3], 'b32')})")


@form("sad")
def sad(g: Gen, i: Ins) -> None:
    kind = i.type()
    a, b, c = (g.src(x, kind) for x in i.args[1:4])
    g.assign(i.args[0], kind, f"{c} + (np.maximum({a}, {b}) - np.minimum({a}, {b}))")


@form("mov")
def move(g: Gen, i: Ins) -> None:
    kind = i.type()
    x = i.args[1]
    if isinstance(x, Register) and not x.negated and kind == "pred":
        g.assign(i.args[0], kind, g.src(x, kind))
        return
    bits = REPRESENTATION[kind]
    kind = kind if kind in ("pred", "b128") or bits[0] == "u" else "b" + str(8 * int(bits[1:]))
    g.assign(
        i.args[0], kind, g.src(x, kind if not isinstance(x, Immediate) else i.raw.modifiers[-1]) + reinterpret(x, i)
    )


def reinterpret(x: object, i: Ins) -> str:
    """Bits of a float constant that `mov.f32` and the like write."""
    kind = i.raw.modifiers[-1]
    if isinstance(x, Immediate) and REPRESENTATION[kind][0] in "fi":
        return f".view('u{REPRESENTATION[kind][1:]}')"
    return ""
