"""The float64 reference that knows how wrong an honest kernel may be. Importing it imports torch."""

from __future__ import annotations

from kcontract.dynamic.oracle.compare import Comparison, Policy, SubnormalAnswer, compare, compare_all, judge_subnormals
from kcontract.dynamic.oracle.model import Accumulation, Order, choose, form_of
from kcontract.dynamic.oracle.reference import Defect, judge_reference
from kcontract.dynamic.oracle.run import Bounded, Expected, outputs_of, run

__all__ = [
    "Accumulation",
    "Bounded",
    "Comparison",
    "Defect",
    "Expected",
    "Order",
    "Policy",
    "SubnormalAnswer",
    "choose",
    "compare",
    "compare_all",
    "form_of",
    "judge_reference",
    "judge_subnormals",
    "outputs_of",
    "run",
]
