"""The shrinker: one order of "simpler", minimal witnesses asserted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kcontract.dynamic.shrink import Problem, shrink, sort_key
from kcontract.errors import InputError

START = Problem({"m": 96, "n": 1025}, programs=12, kind="wide", seed=77, offsets={"x": 5})


def test_the_order_of_simpler() -> None:
    assert sort_key(replace(START, programs=1)) < sort_key(replace(START, sizes={"m": 1, "n": 1}))
    assert sort_key(replace(START, sizes={"m": 1, "n": 1025})) < sort_key(replace(START, kind="zeros"))
    assert sort_key(replace(START, kind="zeros")) < sort_key(replace(START, offsets={"x": 0}))
    assert sort_key(replace(START, offsets={"x": 0})) < sort_key(replace(START, seed=0))


@pytest.mark.parametrize(
    ("fails", "minimal"),
    [
        (lambda p: True, Problem({"m": 1, "n": 1}, 1, "zeros", 0, {"x": 0})),
        (lambda p: p.sizes["n"] > 128, Problem({"m": 1, "n": 129}, 1, "zeros", 0, {"x": 0})),
        (lambda p: p.sizes["n"] % 32 != 0 and p.sizes["n"] > 32, Problem({"m": 1, "n": 33}, 1, "zeros", 0, {"x": 0})),
        (
            lambda p: p.programs >= 3 and p.sizes["m"] * p.sizes["n"] >= 6,
            Problem({"m": 1, "n": 6}, 3, "zeros", 0, {"x": 0}),
        ),
        (lambda p: p.kind not in ("zeros", "ones"), Problem({"m": 1, "n": 1}, 1, "iota", 0, {"x": 0})),
        (lambda p: p.offsets["x"] >= 2, Problem({"m": 1, "n": 1}, 1, "zeros", 0, {"x": 2})),
        (lambda p: p.seed == 77, Problem({"m": 1, "n": 1}, 1, "zeros", 77, {"x": 0})),
    ],
)
def test_minimal_witnesses(fails: object, minimal: Problem) -> None:
    assert shrink(START, fails) == minimal  # type: ignore[arg-type]


def test_what_does_not_fail_is_refused_and_tries_are_counted() -> None:
    with pytest.raises(InputError, match="does not fail"):
        shrink(START, lambda p: False)
    calls = []
    shrink(START, lambda p: calls.append(p) is None and p.sizes["n"] > 900, tries=5)
    assert len(calls) <= 6
