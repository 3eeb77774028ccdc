"""Replays a witness: the same problem, sizes, dtype and seed, and the same gate, on any engine."""

from __future__ import annotations

from kcontract.dynamic.gates import gates
from kcontract.dynamic.gates.bench import Bench, Found
from kcontract.dynamic.problems.load import again
from kcontract.dynamic.sandbox.candidate import Candidate
from kcontract.errors import InputError
from kcontract.model import Witness


def replay(witness: Witness, engine: str) -> Found:
    """What the gate finds now. Raises ``InputError`` where the witness's files or gate are gone."""
    about = witness.problem
    check = gates().get(witness.gate)
    if check is None:
        raise InputError(f"the witness is of {witness.gate}, which this version does not run")
    sizes = about.get("sizes")
    if not isinstance(sizes, dict):
        raise InputError("the witness names no sizes; write it again with this version")
    problem = again(about)
    seed = int(str(about.get("bench_seed", 0)))
    with Candidate(problem.candidate, engine, init=problem.init, seed=seed) as candidate:
        bench = Bench(
            problem, candidate, engine, seed=seed, thorough=bool(about.get("thorough")),
            dtype=str(about["dtype"]) if about.get("dtype") else None, dims=sizes,
        )  # fmt: skip
        bench.settle()
        found: Found = check(bench)
        return found
