"""Finds out which format a candidate and its reference have, and loads the problems they hold."""

from __future__ import annotations

import os
from collections.abc import Mapping

from kcontract.dynamic.problems import contracted, flashinfer, kernelbench, tritonbench
from kcontract.dynamic.problems.problem import Problem
from kcontract.errors import InputError


def load(candidate: str, reference: str | None = None, name: str | None = None) -> list[Problem]:
    """The problems of a candidate file: one, or one a contracted function.

    ``reference`` is a second file where the candidate's holds none; ``name`` picks the class or function. Raises
    ``InputError`` with the formats that are known.
    """
    for path in filter(None, (candidate, reference)):
        if not os.path.isfile(path):
            raise InputError("is a folder; name a file" if os.path.isdir(path) else "there is no such file", path=path)
    if candidate.endswith(".json"):
        if reference is None:
            raise InputError("is JSON; give its flashinfer-bench Definition with --reference", path=candidate)
        return [flashinfer.load(candidate, reference)]
    judge = reference or candidate
    if judge.endswith(".py") and kernelbench.matches(judge):
        return [kernelbench.load(candidate, reference, name)]
    if reference is None and contracted.matches(candidate):
        return contracted.load(candidate, name)
    if reference is not None and reference.endswith(".py") and tritonbench.subject(reference) is not None:
        return [tritonbench.load(candidate, reference, name)]
    wanted = "Model and get_inputs (KernelBench), a function with @kcontract.contract, or test_NAME (TritonBench)"
    raise InputError(f"holds no reference: it needs {wanted}; name another file with --reference", path=judge)


def again(origin: Mapping[str, object]) -> Problem:
    """The problem a witness names. Raises ``InputError`` where its files are gone or of another kind."""
    reference, name = origin.get("reference"), origin.get("name")
    found = load(
        str(origin.get("candidate", "")),
        str(reference) if reference and reference != origin.get("candidate") else None,
        str(name) if name else None,
    )
    return found[0]
