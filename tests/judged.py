"""Puts one candidate of a KernelBench file on one engine before one gate."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from kcontract.dynamic.gates.bench import Bench, Found
from kcontract.dynamic.problems import kernelbench
from kcontract.dynamic.sandbox.candidate import Candidate


@contextlib.contextmanager
def bench_of(path: Path, name: str = "ModelNew", engine: str = "interpreter", **fields: Any) -> Iterator[Bench]:
    """A settled bench; ``fields`` replace those of the problem."""
    problem = replace(kernelbench.load(str(path), name=name), **fields)
    with Candidate(problem.candidate, engine, init=problem.init) as candidate:
        bench = Bench(problem, candidate, engine)
        bench.settle()
        yield bench


def judged(gate: str, path: Path, name: str = "ModelNew", engine: str = "interpreter", **fields: Any) -> Found:
    """What a gate (``cmp_01``) finds of a candidate."""
    with bench_of(path, name, engine, **fields) as bench:
        found: Found = importlib.import_module(f"kcontract.dynamic.gates.{gate}").check(bench)
        return found


def status(gate: str, path: Path, name: str = "ModelNew", engine: str = "interpreter", **fields: Any) -> str:
    """Only the status, with the reason where that helps a failing test."""
    found = judged(gate, path, name, engine, **fields)
    return f"{found.verdict.status}: {found.verdict.reason}"
