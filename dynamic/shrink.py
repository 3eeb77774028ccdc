"""Making a failing problem small before it is shown: one ``consider``, one written order of "simpler".

It runs nothing itself: the caller says whether a candidate problem still fails. Importing it imports no torch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from kcontract.errors import InputError

VALUES = ("zeros", "ones", "iota", "constant_rows", "signs", "normal")
"""Kinds of values from the simplest on; any other kind is less simple than all of these."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What makes up a failing launch, as far as it can be made simpler.

    ``programs`` is the number of programs launched, ``sizes`` the named dimensions, ``kind`` the kind of values,
    ``seed`` what draws them, ``offsets`` storage offsets and other shifts by name (0 is simplest).
    """

    sizes: Mapping[str, int]
    programs: int = 1
    kind: str = "normal"
    seed: int = 0
    offsets: Mapping[str, int] = field(default_factory=dict)


def sort_key(problem: Problem) -> tuple[object, ...]:
    """The order of "simpler", smallest first: fewer programs, then smaller sizes (their product, then the largest, then
    each by name), then simpler values, then smaller offsets, then a smaller seed."""
    sizes = tuple(problem.sizes[name] for name in sorted(problem.sizes))
    product = 1
    for size in sizes:
        product *= max(size, 1)
    rank = VALUES.index(problem.kind) if problem.kind in VALUES else len(VALUES)
    offsets = tuple(abs(problem.offsets[name]) for name in sorted(problem.offsets))
    return (problem.programs, product, max(sizes, default=0), sizes, rank, sum(offsets), offsets, problem.seed)


def shrink(problem: Problem, fails: Callable[[Problem], bool], *, tries: int = 500) -> Problem:
    """The simplest failing problem reached from ``problem`` in at most ``tries`` calls of ``fails``.

    Greedy: each pass tries to simplify one field, the whole is repeated until nothing helps. Raises ``InputError``
    where ``problem`` does not fail to begin with.
    """
    left = tries
    seen: dict[tuple[object, ...], bool] = {}

    def consider(candidate: Problem) -> bool:
        nonlocal problem, left
        key = (*sort_key(candidate), candidate.kind)
        if sort_key(candidate) >= sort_key(problem) or key in seen or left <= 0:
            return False
        left -= 1
        seen[key] = fails(candidate)
        if seen[key]:
            problem = candidate
        return seen[key]

    if not fails(problem):
        raise InputError("the problem given to shrink does not fail; there is nothing to make smaller")
    before = None
    while before != problem and left > 0:
        before = problem
        _least(functools.partial(_launched, problem), problem.programs, 1, consider)
        for name in sorted(problem.sizes):
            _least(functools.partial(_resized, problem, name), problem.sizes[name], 1, consider)
        for kind in VALUES:
            if consider(replace(problem, kind=kind)):
                break
        for name in sorted(problem.offsets):
            _least(functools.partial(_moved, problem, name), problem.offsets[name], 0, consider)
        for seed in range(min(problem.seed, 4)):
            if consider(replace(problem, seed=seed)):
                break
    return problem


def _launched(problem: Problem, programs: int) -> Problem:
    return replace(problem, programs=programs)


def _resized(problem: Problem, name: str, size: int) -> Problem:
    return replace(problem, sizes={**problem.sizes, name: size})


def _moved(problem: Problem, name: str, offset: int) -> Problem:
    return replace(problem, offsets={**problem.offsets, name: offset})


def _least(make: Callable[[int], Problem], value: int, floor: int, consider: Callable[[Problem], bool]) -> None:
    """Lower one number as far as it still fails: the floor itself, then bisection, then single steps down."""
    if value <= floor or consider(make(floor)):
        return
    low, high = floor, value
    while high - low > 1:
        middle = (low + high) // 2
        if consider(make(middle)):
            high = middle
        else:
            low = middle
    for candidate in _below(high, floor):
        if not consider(make(candidate)):
            break


def _below(value: int, floor: int) -> Iterator[int]:
    """A few simpler numbers that bisection may have jumped over."""
    yield from range(value - 1, max(floor, value - 4), -1)
