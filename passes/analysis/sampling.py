"""Two writers of one address among small program ids, lanes and trips, found by trying them all.

Why: most addresses that are shared at all are shared by neighbours, and a few hundred evaluations cost less than
importing a solver. Example: ``out + pid // 2`` is met by programs 0 and 1. What is found is exact, under the argument
values tried and the mask; finding nothing proves nothing.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator

from kcontract.ir.ttgir import Operation, Value
from kcontract.passes.analysis.address import Addresses, Poly, Source

_MOST_POINTS = 1200
_ATTEMPTS = 16
_VALUES = (1, 2, 3, 4, 8, 16)
_PROGRAMS = 4

Comparison = tuple[Poly, Poly, str]


def collision(
    addresses: Addresses,
    parts: list[dict[int, int]],
    comparisons: list[Comparison],
    extents: dict[Source, int],
    differ: list[Source],
    equal: frozenset[Source],
) -> tuple[dict[Source, int], dict[Source, int]] | None:
    """The ``differ`` values of two points at which all ``parts`` are equal, or None.

    ``extents`` bounds program ids and lanes; ``equal`` sources have one value in both points.
    """
    polys: list[Poly] = [{(number,): factor for number, factor in part.items()} for part in parts]
    numbers = _atoms(addresses, itertools.chain(polys, *((left, right) for left, right, _ in comparisons)))
    if numbers is None:
        return None
    variables = {n: Source(*addresses.atoms[n]) for n in numbers if addresses.atoms[n].kind in ("pid", "lane", "trip")}
    for source in (*differ, *equal):  # an address need not depend on a program id to be met by two
        number = next(iter(addresses.atom(source.kind, source.key)))[0]
        variables[number] = source
    domains = [_domain(source, extents) for source in variables.values()]
    size = 1
    for domain in domains:
        size *= len(domain)
    if size > _MOST_POINTS:
        return None
    for attempt in range(min(_ATTEMPTS, _MOST_POINTS // max(size, 1))):
        fixed = _arguments(addresses, numbers, attempt)
        seen: dict[tuple[int, ...], dict[Source, int]] = {}
        for values in itertools.product(*domains):
            at = fixed | dict(zip(variables, values, strict=True))
            key = _key(addresses, polys, comparisons, variables, at)
            if key is None:
                continue
            sources = {source: at[number] for number, source in variables.items()}
            key += tuple(sources[source] for source in sorted(equal, key=str))
            other = seen.setdefault(key, sources)
            if any(other[source] != sources[source] for source in differ):
                return {s: other[s] for s in differ}, {s: sources[s] for s in differ}
    return None


def _key(
    addresses: Addresses,
    polys: list[Poly],
    comparisons: list[Comparison],
    variables: dict[int, Source],
    at: dict[int, int],
) -> tuple[int, ...] | None:
    """The address at one point, None where the point is masked or outside a loop."""
    try:
        for number, source in variables.items():
            if source.kind == "trip" and not _in_loop(addresses, source.key, at, at[number]):
                return None
        for left, right, predicate in comparisons:
            if not _HOLDS[predicate](_value(addresses, left, at), _value(addresses, right, at)):
                return None
        return tuple(_value(addresses, poly, at) for poly in polys)
    except (KeyError, ValueError):
        return None


def _in_loop(addresses: Addresses, loop: Operation, at: dict[int, int], trip: int) -> bool:
    start, stop, step = (_value(addresses, addresses.of(value, ()), at) for value in loop.operands[:3])
    return start + trip * step < stop


_HOLDS = {
    "eq": int.__eq__,
    "ne": int.__ne__,
    "slt": int.__lt__,
    "sle": int.__le__,
    "sgt": int.__gt__,
    "sge": int.__ge__,
}


def _value(addresses: Addresses, poly: Poly, at: dict[int, int]) -> int:
    """A polynomial at one point. Raises ``KeyError`` for an unknown symbol, ``ValueError`` outside index arithmetic."""
    total = 0
    for monomial, factor in poly.items():
        for number in monomial:
            factor *= at[number] if number in at else _derived(addresses, number, at)
        total += factor
    return total


def _derived(addresses: Addresses, number: int, at: dict[int, int]) -> int:
    kind, key = addresses.atoms[number]
    if kind not in ("div", "mod", "min", "max"):
        raise KeyError(number)
    left, right = (_value(addresses, dict(part), at) for part in key)
    if kind in ("min", "max"):
        return min(left, right) if kind == "min" else max(left, right)
    if left < 0 or right <= 0:
        raise ValueError("index arithmetic divides what is not negative by what is positive")
    return left // right if kind == "div" else left % right


def _atoms(addresses: Addresses, polys: Iterable[Poly]) -> set[int] | None:
    """All symbols of polynomials, through quotients and loop bounds; None where one is opaque."""
    found: set[int] = set()
    todo = [number for poly in polys for monomial in poly for number in monomial]
    while todo:
        number = todo.pop()
        if number in found:
            continue
        found.add(number)
        kind, key = addresses.atoms[number]
        if kind == "opaque":
            return None
        todo += [n for poly in _inside(addresses, kind, key) for monomial in poly for n in monomial]
    return found


def _inside(addresses: Addresses, kind: str, key: object) -> Iterator[Poly]:
    if kind in ("div", "mod", "min", "max") and isinstance(key, tuple):
        yield from (dict(part) for part in key)
    elif kind == "trip" and isinstance(key, Operation):
        yield from (addresses.of(value, ()) for value in key.operands[:3])


def _domain(source: Source, extents: dict[Source, int]) -> list[int]:
    extent = extents.get(source, _PROGRAMS)
    if source.kind == "lane":
        return sorted({0, 1, extent - 1} & set(range(extent)))
    return list(range(min(extent, _PROGRAMS)))


def _arguments(addresses: Addresses, numbers: set[int], attempt: int) -> dict[int, int]:
    """Values for arguments, within what is known of them; the grid has as many programs as are tried."""
    chance = random.Random(attempt)
    found = {}
    for number in sorted(numbers):
        kind, key = addresses.atoms[number]
        if kind == "programs":
            found[number] = _PROGRAMS
        elif kind == "argument" and isinstance(key, Value):
            bounds = addresses.ranges.of(key)
            found[number] = min(max(chance.choice(_VALUES), bounds.low), bounds.high)
    return found
