"""What is verified: a candidate, the reference that judges it, and what both take."""

from __future__ import annotations

from kcontract.dynamic.problems.problem import Entry, Problem

__all__ = ["Entry", "Problem"]
