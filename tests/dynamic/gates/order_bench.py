"""Benches for the kernels of ``order_kernels``: one candidate's process each, kept for the tests of all gates."""

from __future__ import annotations

import atexit
import functools
from dataclasses import replace
from pathlib import Path

from kcontract.dynamic.gates import gates
from kcontract.dynamic.gates.bench import Bench, Found
from kcontract.dynamic.oracle import Policy
from kcontract.dynamic.problems import kernelbench
from kcontract.dynamic.sandbox.candidate import Candidate
from kcontract.model import Contract

KERNELS = Path(__file__).parent / "order_kernels"
ENGINE = "sim:sm_90"


def bench(file: str, name: str = "ModelNew", engine: str = ENGINE) -> Bench:
    """The bench of one candidate, settled."""
    return _bench(file, name, engine)


@functools.cache
def _bench(file: str, name: str, engine: str) -> Bench:
    problem = kernelbench.load(str(KERNELS / f"{file}.py"), name=name)
    candidate = Candidate(problem.candidate, engine, init=problem.init)
    atexit.register(candidate.close)
    made = Bench(problem, candidate, engine)
    made.settle()
    return made


def found(
    gate: str, file: str, name: str = "ModelNew", contract: Contract | None = None, engine: str = ENGINE
) -> Found:
    """What a gate finds, under a contract."""
    made = bench(file, name, engine)
    kept = made.contract
    made.contract = replace(kept, **_declared(contract)) if contract is not None else kept
    made.policy = Policy.of(made.contract)
    try:
        return gates()[gate](made)
    finally:
        made.contract, made.policy = kept, Policy.of(kept)


def answer(gate: str, file: str, name: str = "ModelNew", contract: Contract | None = None, engine: str = ENGINE) -> str:
    """The gate's status and reason, in one line."""
    verdict = found(gate, file, name, contract, engine).verdict
    return f"{verdict.status}: {verdict.reason}"


def _declared(contract: Contract) -> dict[str, object]:
    names = ("subnormals", "determinism", "nan", "accumulator")
    return {n: getattr(contract, n) for n in names if getattr(contract, n) is not None}
