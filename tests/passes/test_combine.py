"""Combine functions: proofs, and counterexamples that hold in exact arithmetic."""

from fractions import Fraction

import combine_kernels as k
import pytest
from order_kernels import artifact, findings

from kcontract.model import Level
from kcontract.passes.analysis.combine import Status, judge
from kcontract.passes.analysis.solver import SolverTime
from kcontract.passes.base import Facts

RULE = "unorderable-combine"
INDEX = {"x": "*fp32", "o": "*i32", "n": "i32"}


def judgement(kernel, signature=None, target=90, **constants):
    made = artifact(kernel, signature, target, {"BLOCK": 128, **constants})
    (operation,) = made.module.find("tt.reduce", "tt.scan")
    return judge(operation, Facts(made, deep=True).get(SolverTime))


@pytest.mark.parametrize("name", ["subtract", "mean", "squares", "larger_magnitude", "first", "capped_add"])
def test_refuted_functions_are_violations_with_numbers(name):
    (found,) = findings(RULE, k.reduce_one, constants={"BLOCK": 128, "F": name})
    assert found.level is Level.VIOLATION
    model = {
        "subtract": lambda a, b: a - b,
        "mean": lambda a, b: (a + b) / 2,
        "squares": lambda a, b: a * a + b * b,
        "larger_magnitude": lambda a, b: a if abs(a) > abs(b) else b,
        "first": lambda a, b: a,
        "capped_add": lambda a, b: min(a + b, Fraction(1)),
    }[name]
    inputs = [Fraction(item[0]) for item in found.evidence["inputs"]]
    results = [Fraction(item[0]) for item in found.evidence["results"]]
    if found.evidence["law"] == "associative":
        a, b, c = inputs
        assert results == [model(model(a, b), c), model(a, model(b, c))]
    else:
        a, b = inputs
        assert results == [model(a, b), model(b, a)]
    assert results[0] != results[1]


@pytest.mark.parametrize(
    "kernel, constants, how",
    [
        (k.reduce_one, {"F": "add"}, "addf"),
        (k.reduce_one, {"F": "max"}, "max"),
        (k.reduce_two, {"F": "both"}, "addf"),
        (k.reduce_two, {"F": "softmax"}, "online softmax"),
        (k.scan_two, {"F": "recurrence"}, "rational functions"),
        (k.scan_two, {"F": "segmented"}, "z3"),
        (k.scan_two, {"F": "peak"}, "z3"),
        (k.reduce_welford, {}, "rational functions"),
    ],
)
def test_proved_functions(kernel, constants, how):
    found = judgement(kernel, **constants)
    assert found.status is Status.PROVED
    assert how in found.how


@pytest.mark.parametrize("kernel", [k.index_of_max, k.index_of_min])
def test_indices_need_a_tie_break(kernel):
    assert findings(RULE, kernel, INDEX, constants={"BLOCK": 128, "TIES": True}) == ()
    (found,) = findings(RULE, kernel, INDEX, constants={"BLOCK": 128, "TIES": False})
    assert found.level is Level.HAZARD


def test_a_scan_may_be_ordered_and_a_reduction_may_not():
    assert findings(RULE, k.scan_two, constants={"BLOCK": 128, "F": "recurrence"}) == ()
    (found,) = findings(RULE, k.reduce_two, constants={"BLOCK": 128, "F": "recurrence"})
    assert "commutative" in found.message
    (found,) = findings(RULE, k.scan_two, constants={"BLOCK": 128, "F": "recurrence_without_decay"})
    assert "associative" in found.message


def test_unknown_functions_are_undecided():
    (found,) = findings(RULE, k.reduce_one, constants={"BLOCK": 128, "F": "log_sum"})
    assert found.level is Level.NOTE
    assert "math.log" in found.message


def test_without_time_for_the_solver_nothing_is_decided(monkeypatch):
    monkeypatch.setattr(SolverTime, "query", lambda self: 0.0)
    monkeypatch.setattr("kcontract.passes.analysis.combine._SOLVED", {})
    (found,) = findings(RULE, k.scan_two, constants={"BLOCK": 128, "F": "segmented"})
    assert found.level is Level.NOTE
    assert "no time left" in found.message
