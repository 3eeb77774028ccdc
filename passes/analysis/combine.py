"""Combine functions of reductions and scans: are they associative, and commutative, over the reals?

Why: a reduction applies its function in an order that the layout chooses. A function that is not associative gives
one result with four warps and another with eight. Three ways answer, cheapest first, once a function and process.

- *Exact runs.* The function is turned into Python over fractions and run on small triples. One that differs refutes it:
  over the reals, before any rounding.
- *Proofs without a solver.* A function that only compares and selects is decided by the order of its inputs, so running
  every order of three inputs with ties proves it (argmax with tie-breaks). One of sums, products and quotients is an
  identity of rational functions: it holds if it holds at random points modulo a prime of 61 bits (Schwartz 1980;
  probability of error below 2^-400 over the points taken). An equality guard (``where(w == 0, …)``) is left
  there to the exact runs, which take in zeros.
- *z3* for what mixes both (a segmented sum).

Exponentials are known by one law, exp(a)·exp(b) = exp(a + b): exact runs take 2^x at integers, and only the online
softmax form (each argument is x − max) is accepted on their word. Other functions are undecided, never refuted.
NaN is outside the reals: see EXC-01. Integers are taken not to overflow; a function that takes them apart by their
bits (packed keys, sorted by contract) is undecided.
"""

from __future__ import annotations

import enum
import functools
import itertools
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from kcontract.ir.ttgir import Operation
from kcontract.passes.analysis.solver import SolverTime

Law = Callable[[Sequence[Any]], tuple[Any, ...]]
_Lines = tuple[tuple[str, ...], ...]

_SUMS = {
    "arith.addf": "+",
    "arith.subf": "-",
    "arith.mulf": "*",
    "arith.addi": "+",
    "arith.subi": "-",
    "arith.muli": "*",
}
_SAME = frozenset("arith.extf arith.truncf arith.extsi arith.extui arith.sitofp arith.bitcast".split())
_MAXIMA = frozenset("arith.maximumf arith.maxnumf arith.maxsi arith.maxui".split())
_MINIMA = frozenset("arith.minimumf arith.minnumf arith.minsi arith.minui".split())
_LOGIC = {"arith.andi": "&", "arith.ori": "|", "arith.xori": "^"}
_EXPONENTIALS = frozenset("math.exp math.exp2".split())
_PREDICATES = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
#: one operation on a pair of inputs that is both associative and commutative
_FAIR = frozenset(name for name in (*_SUMS, *_MAXIMA, *_MINIMA, *_LOGIC) if not name.startswith("arith.sub"))
_PRIME = 2**61 - 1
_POINTS = 12
_SOLVED: dict[tuple[_Lines, bool], Judgement] = {}
_NUMBER = re.compile(r"(?:dense<)?(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|true|false)", re.I)


class Status(str, enum.Enum):
    """``ties``: refuted only in which index wins among equal keys."""

    PROVED = "proved"
    REFUTED = "refuted"
    TIES = "ties"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Judgement:
    """``how`` says what proved it, or why it is undecided. Refuted: the ``law``, the inputs and both results."""

    status: Status
    how: str
    law: str = ""
    inputs: tuple[tuple[Fraction, ...], ...] = ()
    results: tuple[tuple[Fraction, ...], ...] = ()


def judge(operation: Operation, solver: SolverTime) -> Judgement:
    """Judge the region of a ``tt.reduce`` or ``tt.scan``; ``solver`` is asked where nothing cheaper decides."""
    fast = _fair(operation)
    if fast:
        return Judgement(Status.PROVED, fast)
    lines, commutes = tuple(_lines(operation)), operation.name == "tt.reduce"
    found = _judge(lines, commutes) or _SOLVED.get((lines, commutes))
    if found is None:
        seconds = solver.query()
        if seconds <= 0:
            return Judgement(Status.UNDECIDED, "the solver has no time left")
        with solver.spent():
            found = _solve(lines, lines[0][3:], commutes, seconds)
        if found.status is not Status.UNDECIDED:
            _SOLVED[lines, commutes] = found
    return found


def _fair(operation: Operation) -> str:
    """A reason where each result is one fair operation on its own pair of inputs; empty otherwise."""
    block = operation.regions[0].blocks[0]
    *body, end = block.operations
    half = len(block.arguments) // 2
    if len(body) != half or len(end.operands) != half:
        return ""
    for index, result in enumerate(end.operands):
        made = result.definition
        pair = [block.arguments[index], block.arguments[half + index]]
        if made is None or made.name not in _FAIR or sorted(map(id, made.operands)) != sorted(map(id, pair)):
            return ""
    return ", ".join(dict.fromkeys(made.name for made in body))


def _lines(operation: Operation) -> Iterator[tuple[str, ...]]:
    """The region as hashable lines (result, name, detail, operands…); the first names the types of the inputs."""
    block = operation.regions[0].blocks[0]
    names = {value: f"x{number}" for number, value in enumerate(block.arguments)}
    half = len(block.arguments) // 2
    yield ("", "inputs", "", *(value.type.element for value in block.arguments[:half]))
    outside = (value for made in block.operations for value in made.operands if value.block is not block)
    for number, value in enumerate(dict.fromkeys(outside)):
        if value.definition is not None and value.definition.name == "arith.constant":
            names[value] = f"c{number}"
            yield (f"c{number}", "arith.constant", value.definition.attributes.get("value", ""))
    for number, made in enumerate(block.operations):
        for position, result in enumerate(made.results):
            names[result] = f"v{number}_{position}"
        detail = made.string("predicate") or made.attributes.get("value", "")
        if made.name in _LOGIC:
            detail = made.results[0].type.element
        operands = [names.get(value, "?") for value in made.operands]
        yield (names[made.results[0]] if made.results else "", made.name, detail, *operands)


@functools.lru_cache(maxsize=256)
def _judge(lines: _Lines, commutes: bool) -> Judgement | None:
    """The answer without a solver, None where it takes one."""
    kinds = lines[0][3:]
    names = {name for _, name, *_ in lines[1:-1]}
    law = _python(lines, modular=False)
    if law is None:
        unknown = sorted(name for name in names if name not in _KNOWN) or ["a value from outside it"]
        return Judgement(Status.UNDECIDED, f"{', '.join(unknown)} is not known to the prover")
    if any(
        name in _LOGIC and detail != "i1" for _, name, detail, *_ in lines
    ):  # packed keys: any order may be excluded
        return Judgement(Status.UNDECIDED, "it takes integers apart by their bits")
    numbers = [_number(detail) for _, name, detail, *_ in lines if name == "arith.constant"]
    constants = tuple(n for n in numbers if isinstance(n, (int, Fraction)) and not isinstance(n, bool))
    refuted = _refute(law, kinds, commutes, names, constants)
    if refuted:
        return refuted
    if names & _EXPONENTIALS:
        if _is_online_softmax(lines):
            return Judgement(Status.PROVED, "online softmax: exponents are differences from a shared maximum")
        return Judgement(Status.UNDECIDED, "holds at every point tried, and its exponentials are not of a known form")
    if names <= _ORDERING:
        return Judgement(Status.PROVED, "every order of three inputs, with ties")
    modular = _python(lines, modular=True)
    if modular is not None and _identity(modular, len(kinds), commutes):
        return Judgement(Status.PROVED, f"identity of rational functions, at {_POINTS} points modulo 2^61 - 1")
    return None


_ORDERING = frozenset(
    {"arith.cmpf", "arith.cmpi", "arith.select", "arith.andi", "arith.ori", "arith.xori", *_MAXIMA, *_MINIMA}
)
_KNOWN = (
    _ORDERING | _SAME | frozenset(_SUMS) | _EXPONENTIALS | {"arith.divf", "arith.negf", "math.absf", "arith.constant"}
)


def _python(lines: _Lines, modular: bool) -> Law | None:
    """The region as a Python function; None where an operation is unknown (or, modulo a prime, compares values)."""
    code = ["def law(x):"]
    code += [f" x{number} = x[{number}]" for number in range(2 * len(lines[0][3:]))]
    for target, name, detail, *operands in lines[1:-1]:
        text = _expression(name, detail, operands, modular)
        if text is None or "?" in operands:
            return None
        code.append(f" {target} = {text}")
    code.append(f" return ({''.join(f'{name}, ' for name in lines[-1][3:])})")
    scope: dict[str, Any] = {"Fraction": Fraction, "P": _PRIME, "power": _power}
    exec("\n".join(code), scope)  # code of our own making: operation names are looked up, values are numbers
    made: Law = scope["law"]
    return made


def _expression(name: str, detail: str, operands: list[str], modular: bool) -> str | None:
    if name in _SUMS:
        text = f" {_SUMS[name]} ".join(operands)
        return f"({text}) % P" if modular else text
    if name in _SAME:
        return operands[0]
    if name == "arith.negf":
        return f"-{operands[0]} % P" if modular else f"-{operands[0]}"
    if name == "arith.divf":
        return f"{operands[0]} * pow({operands[1]}, -1, P) % P" if modular else f"{operands[0]} / {operands[1]}"
    if name == "arith.constant":
        return _constant(detail, modular)
    if name == "arith.select":
        return f"{operands[1]} if {operands[0]} else {operands[2]}"
    if name in ("arith.cmpf", "arith.cmpi"):
        symbol = _PREDICATES.get(detail[-2:])
        if modular:  # at a random point two values differ, so an equality guard is off; an order has no meaning
            return {"==": "False", "!=": "True"}.get(symbol or "")
        return f"{operands[0]} {symbol} {operands[1]}" if symbol else None
    if modular:
        return None
    if name in _LOGIC:
        return f" {_LOGIC[name]} ".join(operands)
    if name in _MAXIMA or name in _MINIMA:
        return f"{'max' if name in _MAXIMA else 'min'}({operands[0]}, {operands[1]})"
    if name == "math.absf":
        return f"abs({operands[0]})"
    return f"power({operands[0]})" if name in _EXPONENTIALS else None


def _number(text: str) -> Fraction | int | bool | None:
    match = _NUMBER.match(text)
    if match is None or text.startswith("0x"):  # infinities and NaN are printed as hexadecimal
        return None
    if match[1] in ("true", "false"):
        return match[1] == "true"
    return Fraction(match[1]) if "." in match[1] else int(match[1])


def _constant(text: str, modular: bool) -> str | None:
    number = _number(text)
    if number is None or isinstance(number, bool):
        return None if number is None else str(number)
    if modular:
        return str(number.numerator * pow(number.denominator, -1, _PRIME) % _PRIME)
    return str(number) if isinstance(number, int) else f"Fraction({number.numerator}, {number.denominator})"


def _power(exponent: Fraction) -> Fraction:
    if exponent.denominator != 1 or abs(exponent) > 64:
        raise ValueError("an exponential is exact at small integers only")
    return Fraction(2) ** int(exponent)


def _samples(
    kinds: tuple[str, ...], names: set[str], constants: tuple[int | Fraction, ...]
) -> Iterator[tuple[tuple[Any, ...], ...]]:
    """Triples of inputs. For functions that only compare: every order of three values a component, with ties.

    The function's own constants are among the values, since a guard may single them out.
    """
    if names <= _ORDERING and len(kinds) <= 3:
        orders = [
            values for values in itertools.product(range(3), repeat=3) if set(values) == set(range(max(values) + 1))
        ]
        flags = list(itertools.product((False, True), repeat=3))
        for columns in itertools.product(*(flags if kind == "i1" else orders for kind in kinds)):
            yield tuple(zip(*columns, strict=True))
        return
    chance = random.Random(2604)
    values = (0, 1, 2, -1, 3, -2, 5)
    special = tuple(dict.fromkeys(sign * n for n in constants if n * n > 1 for sign in (1, -1)))[:8]
    for number in range(300 if special else 0):
        few = (0, 1, *special) if number % 2 else (*special, *values)
        yield tuple(tuple(_draw(kind, few[chance.randrange(len(few))]) for kind in kinds) for _ in range(3))
    for number in range(60):
        reach = 3 if number < 30 else len(values)
        yield tuple(tuple(_draw(kind, values[chance.randrange(reach)]) for kind in kinds) for _ in range(3))


def _draw(kind: str, value: int | Fraction) -> Fraction | int | bool:
    return value % 2 == 1 if kind == "i1" else int(value) if kind.startswith("i") else Fraction(value)


def _laws(law: Law, commutes: bool, a: Any, b: Any, c: Any) -> Iterator[tuple[str, tuple[Any, ...], Any, Any]]:
    yield "associative", (a, b, c), law((*law((*a, *b)), *c)), law((*a, *law((*b, *c))))
    if commutes:
        yield "commutative", (a, b), law((*a, *b)), law((*b, *a))


def _refute(
    law: Law, kinds: tuple[str, ...], commutes: bool, names: set[str], constants: tuple[int | Fraction, ...]
) -> Judgement | None:
    ties: Judgement | None = None
    for triple in _samples(kinds, names, constants):
        try:
            for name, inputs, left, right in _laws(law, commutes, *triple):
                if left == right:
                    continue
                found = Judgement(
                    Status.REFUTED,
                    "",
                    name,
                    tuple(tuple(map(Fraction, item)) for item in inputs),
                    (tuple(map(Fraction, left)), tuple(map(Fraction, right))),
                )
                if not _only_ties(kinds, inputs, left, right):
                    return found
                ties = ties or Judgement(Status.TIES, "", name, found.inputs, found.results)
        except (ZeroDivisionError, ValueError):
            continue
    return ties


def _only_ties(kinds: tuple[str, ...], inputs: Any, left: Any, right: Any) -> bool:
    """Whether the results differ in an integer (an index) alone, and two float keys of the inputs are equal."""
    floats = [n for n, kind in enumerate(kinds) if not kind.startswith("i")]
    same = all(left[n] == right[n] for n in floats)
    return bool(floats) and same and any(len({item[n] for item in inputs}) < len(inputs) for n in floats)


def _identity(law: Law, width: int, commutes: bool) -> bool:
    chance = random.Random(61)
    for _ in range(_POINTS):
        triple = [tuple(chance.randrange(1, _PRIME) for _ in range(width)) for _ in range(3)]
        try:
            if any(left != right for _, _, left, right in _laws(law, commutes, *triple)):
                return False
        except (ValueError, TypeError):
            return False
    return True


def _is_online_softmax(lines: _Lines) -> bool:
    """Each exponent is ``x - max(x, y)`` of inputs, and nothing is compared but in maxima."""
    made = {target: (name, operands) for target, name, _, *operands in lines[1:-1]}

    def origin(value: str) -> tuple[str, list[str]]:
        name, operands = made.get(value, ("input", []))
        return (name, operands) if name not in _SAME else origin(operands[0])

    for name, operands in made.values():
        if name in _EXPONENTIALS:
            kind, parts = origin(operands[0])
            if kind != "arith.subf" or origin(parts[0])[0] != "input" or origin(parts[1])[0] not in _MAXIMA:
                return False
    return not any(name in ("arith.cmpf", "arith.select") for name, _ in made.values())


def _solve(lines: _Lines, kinds: tuple[str, ...], commutes: bool, seconds: float) -> Judgement:
    import z3

    def law(x: Sequence[Any]) -> tuple[Any, ...]:
        at = {f"x{number}": value for number, value in enumerate(x)}
        for target, name, detail, *operands in lines[1:-1]:
            at[target] = _term(name, detail, [at[operand] for operand in operands])
        return tuple(at[name] for name in lines[-1][3:])

    sorts = {"i1": z3.Bool}
    triple = [
        tuple(sorts.get(k, z3.Int if k.startswith("i") else z3.Real)(f"{t}{n}") for n, k in enumerate(kinds))
        for t in "abc"
    ]
    solver = z3.Solver()
    solver.set("timeout", max(int(seconds * 1000), 1))
    different = [
        left != right
        for _, _, lefts, rights in _laws(law, commutes, *triple)
        for left, right in zip(lefts, rights, strict=True)
    ]
    solver.add(z3.Or(different))
    result = solver.check()
    if result == z3.unsat:
        return Judgement(Status.PROVED, "z3, over the reals")
    if result == z3.sat:  # exact runs found nothing, so check the model the same way before believing it
        model = solver.model()
        inputs = [tuple(_value(model.eval(v, model_completion=True)) for v in item) for item in triple]
        exact = _python(lines, modular=False)
        for name, items, left, right in (
            _laws(exact, commutes, *inputs) if exact and None not in sum(inputs, ()) else ()
        ):
            if left != right:
                shown = tuple(tuple(map(Fraction, item)) for item in items)
                return Judgement(
                    Status.REFUTED, "", name, shown, (tuple(map(Fraction, left)), tuple(map(Fraction, right)))
                )
    return Judgement(Status.UNDECIDED, "the solver did not decide in time")


def _value(found: Any) -> Any:
    import z3

    if z3.is_bool(found):
        return z3.is_true(found)
    return Fraction(str(found)) if z3.is_rational_value(found) or z3.is_int_value(found) else None


def _term(name: str, detail: str, x: list[Any]) -> Any:
    import z3

    if name == "arith.constant":
        number = _number(detail)
        return z3.BoolVal(number) if isinstance(number, bool) else z3.RealVal(str(number))
    if name in _SAME:
        return x[0]
    if name == "arith.select":
        return z3.If(x[0], x[1], x[2])
    if name in _MAXIMA or name in _MINIMA:
        return z3.If((x[0] >= x[1]) if name in _MAXIMA else (x[0] <= x[1]), x[0], x[1])
    if name in _LOGIC:
        return {"&": z3.And, "|": z3.Or, "^": z3.Xor}[_LOGIC[name]](x[0], x[1])
    if name == "math.absf":
        return z3.If(x[0] >= 0, x[0], -x[0])
    if name == "arith.negf":
        return -x[0]
    if name in ("arith.cmpf", "arith.cmpi"):
        symbol = _PREDICATES[detail[-2:]]
        return {
            "==": x[0] == x[1],
            "!=": x[0] != x[1],
            "<": x[0] < x[1],
            "<=": x[0] <= x[1],
            ">": x[0] > x[1],
            ">=": x[0] >= x[1],
        }[symbol]
    return {"+": lambda: x[0] + x[1], "-": lambda: x[0] - x[1], "*": lambda: x[0] * x[1]}.get(
        _SUMS.get(name, "/"), lambda: x[0] / x[1]
    )()
