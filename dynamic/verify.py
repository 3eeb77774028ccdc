"""``kcontract verify``: static verdicts first, then the gates that they leave open, then one report.

The order: the reference is judged (REF-01), the candidate is loaded and looked at once, what it compiled is read by
the static pass, and each gate that is not settled is run. What was compiled on the way is read too. A gate's verdict
is the worse of both sides: FAIL by either, else PASS by either, else what the run says.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kcontract.dynamic import certificates, evidence, explain
from kcontract.dynamic.engines import records
from kcontract.dynamic.gates import gates
from kcontract.dynamic.gates.bench import WRONG, Bench, Found
from kcontract.dynamic.problems.problem import Problem
from kcontract.dynamic.sandbox.candidate import Candidate, Limits
from kcontract.errors import UsageError
from kcontract.ir.artifact import Artifact
from kcontract.ir.launch import Fact, Launch
from kcontract.model import FLOOR, GATES, Basis, Finding, Report, Status, Verdict, Witness

#: What floating inputs can be drawn in.
DTYPES = ("float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2")
_SETTLED = (Status.PASS, Status.NOT_APPLICABLE)
_MEMORY = "MEM-01"
_OF_VALUES = ("CMP-01", "CMP-02", "CMP-03", "ORD-01", "ORD-03", "PRC-01", "CFG-01", "EXC-01", "EXC-02")
_WORST_FIRST = (Status.FAIL, Status.ERROR, Status.UNDECIDED, Status.PASS, Status.NOT_APPLICABLE)


@dataclass(frozen=True, slots=True)
class Result:
    """What was found about one problem: the report (findings, one verdict a gate) and a witness for each FAIL seen.

    ``tried`` are inputs judged a gate; ``sizes`` the working sizes, ``dtype`` that of the inputs; ``recognised`` says
    that the verdicts are those of an earlier run of the same machine code, host code, contract and rules.
    """

    report: Report
    witnesses: Mapping[str, Witness] = field(default_factory=dict)
    tried: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    dtype: str = ""
    recognised: bool = False

    @property
    def status(self) -> int:
        """The exit status it asks for: 1 where a gate failed, else 3 where one is ERROR, else 0."""
        seen = {v.status for v in self.report.verdicts}
        return 1 if Status.FAIL in seen else 3 if Status.ERROR in seen else 0


def chosen(names: Iterable[str], floor: bool = False) -> tuple[str, ...]:
    """Gate ids to answer, in the order they are run. Raises ``UsageError`` for an unknown one."""
    wanted = [n.strip().upper() for name in names for n in name.split(",") if n.strip()]
    for name in wanted:
        if name not in GATES:
            raise UsageError(f"no gate {name!r}; the gates are {', '.join(GATES)}")
    order = [*gates(), *(g for g in GATES if g not in gates())]
    return tuple(g for g in order if (g in wanted if wanted else g in FLOOR if floor else True))


def verify(
    problem: Problem, *, engine: str = "gpu", only: Sequence[str] = (), floor: bool = False, dtype: str | None = None,
    seed: int = 0, thorough: bool = False, limits: Limits | None = None, dims: Mapping[str, int] | None = None,
    progress: Callable[[str], None] = lambda text: None, candidate: Candidate | None = None,
    verdicts: Path | None = None, sanitizers: Sequence[str] = (),
) -> Result:  # fmt: skip
    """Verify one problem.

    ``candidate`` is a process already started for it (a warm one), else one is made. ``dims`` are the working sizes
    (default: inferred). ``verdicts`` is a folder of earlier verdicts, None for none. ``sanitizers`` are tools that give
    extra evidence (``evidence.TOOLS``). Raises ``InputError`` where the problem cannot be loaded, ``UsageError`` for
    unknown gates, engines or tools.
    """
    start = time.monotonic()
    tools = evidence.chosen(sanitizers, engine)
    wanted = chosen(only, floor)
    if dtype is not None and dtype not in DTYPES:
        raise UsageError(f"--dtype is {dtype!r}; write one of {', '.join(DTYPES)}")
    with contextlib.ExitStack() as stack:
        stack.enter_context(_one_thread())
        if candidate is None:
            made = Candidate(problem.candidate, engine, init=problem.init, seed=seed, limits=limits)
            candidate = stack.enter_context(made)
        bench = Bench(
            problem, candidate, engine, seed=seed, thorough=thorough, dtype=dtype, progress=progress, dims=dims
        )
        bench.settle()
        reader = _Reader(bench)
        static = reader.read()
        entry = certificates.Entry(verdicts, bench, reader.keys, wanted) if verdicts is not None else None
        kept = entry.load() if entry is not None else None
        found: dict[str, Found] = {}
        if kept is None:
            for gate in wanted:
                if (answer := _run(gate, bench, static.get(gate))) is not None:
                    found[gate] = answer
            static = reader.read()
        told = next((g for g in wanted if g in found and found[g].verdict.status is Status.FAIL), "")
        astray = _MEMORY in found and found[_MEMORY].verdict.status is Status.FAIL
        found = {gate: _elsewhere(f) if astray and gate != _MEMORY else f for gate, f in found.items()}
        said = kept or tuple(_joined(gate, static.get(gate), found.get(gate), bench, told) for gate in wanted)
        findings = tuple(reader.findings())
        shown = said
        for tool in tools:
            bench.progress(tool)
            shown = _weighed(shown, evidence.look(bench, tool), bench)
    report = Report(
        kernel=problem.name,
        target=candidate.target,
        key=reader.key,
        ruleset=reader.ruleset,
        findings=findings,
        verdicts=shown,
        errors=tuple(f"{v.gate}: {v.reason}" for v in shown if v.status is Status.ERROR),
        origin=problem.candidate.path,
        seconds=time.monotonic() - start,
    )
    if entry is not None and kept is None:
        entry.save(said)
    return Result(
        report=report,
        witnesses={gate: f.witness for gate, f in found.items() if f.witness is not None},
        tried={gate: f.tried for gate, f in found.items()},
        notes=tuple(bench.notes),
        sizes=dict(bench.spec.dims),
        dtype=bench.dtype,
        recognised=kept is not None,
    )


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Within it torch works with one thread: its tensors here are small, and threads that wait for each other cost
    more than they bring, many times so where other graders run beside this one."""
    import torch

    kept = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(kept)


class _Reader:
    """The static pass over what the candidate has compiled. Each kernel is read once, however often it is asked."""

    def __init__(self, bench: Bench) -> None:
        from kcontract.passes.base import ruleset_id

        self.bench, self.ruleset = bench, ruleset_id()
        self.seen: dict[str, Report] = {}

    @property
    def keys(self) -> list[str]:
        """What identifies the compiled kernels."""
        return sorted(report.key for report in self.seen.values())

    @property
    def key(self) -> str:
        return certificates.digest(self.keys)[:16]

    def read(self) -> dict[str, Verdict]:
        """The worst verdict a gate over all kernels compiled so far."""
        from kcontract.ir.loaders import Problem as Unreadable
        from kcontract.ir.loaders import load_cache

        launches = self._launches()
        for artifact in load_cache(str(self.bench.candidate.cache)):
            if isinstance(artifact, Artifact) and artifact.origin not in self.seen:
                key = str(artifact.metadata.get("hash"))
                self.seen[artifact.origin] = self._check(artifact, tuple(launches.get(key, ())))
            elif isinstance(artifact, Unreadable) and artifact.is_fault:
                self.bench.notes.append(str(artifact))
        self.bench.reports = list(self.seen.values())
        worst: dict[str, Verdict] = {}
        for verdict in (v for report in self.bench.reports for v in report.verdicts):
            held = worst.get(verdict.gate)
            if held is None or _WORST_FIRST.index(verdict.status) < _WORST_FIRST.index(held.status):
                worst[verdict.gate] = verdict
        return worst

    def _check(self, artifact: Artifact, launches: tuple[Launch, ...]) -> Report:
        from kcontract.passes.base import check

        return check(artifact, contract=self.bench.contract, launches=launches)

    def _launches(self) -> dict[str, list[Launch]]:
        """Launches seen so far, by the hash of what was launched."""
        found: dict[str, dict[object, Launch]] = {}
        for launch in (launch for _, answer in self.bench.log for launch in answer.launches):
            x, y, z = (int(g) for g in launch["grid"])
            numbers = {str(n): v for n, v in launch["numbers"].items() if type(v) is int}
            facts = {n: Fact(v, v, abs(v) or 1) for n, v in numbers.items()}
            key = (x, y, z, *numbers.items())
            found.setdefault(str(launch["key"]), {})[key] = Launch((x, y, z), facts, self.bench.candidate.target)
        return {key: list(each.values())[:64] for key, each in found.items()}

    def findings(self) -> Iterable[Finding]:
        """All findings, equal ones once."""
        seen = set()
        for report in self.seen.values():
            for f in report.findings:
                mark = (f.rule, f.level, f.message, str(f.location), f.waived)
                if mark not in seen:
                    seen.add(mark)
                    yield f


def _run(gate: str, bench: Bench, static: Verdict | None) -> Found | None:
    """The gate's run; None where the static side has settled it, or nothing can be run for it."""
    check = gates().get(gate)
    if check is None or (static is not None and static.status in _SETTLED):
        return None
    if bench.defect and gate != "REF-01":
        return Found(bench.said(gate, Status.UNDECIDED, f"the reference cannot judge: {bench.defect}"))
    bench.progress(gate)
    try:
        found: Found = check(bench)
    except Exception as error:
        reason = f"kcontract failed on this gate: {records.sentence(error)}"
        return Found(Verdict(gate, Status.ERROR, Basis.NONE, reason, engine=bench.engine))
    if found.verdict.status is Status.FAIL and gate in _OF_VALUES and bench.invents:
        return Found(bench.said(gate, Status.UNDECIDED, f"{bench.invents}: {found.verdict.reason}"))
    if gate == "REF-01" and found.verdict.status is Status.FAIL:
        bench.defect = found.verdict.reason
    return found


def _elsewhere(found: Found) -> Found:
    """The answer of a gate where MEM-01 has failed: a call that died of an access outside all memory is that fault."""
    if found.verdict.status is not Status.FAIL or "illegal memory access" not in found.verdict.reason:
        return found
    reason = f"it touches memory that it does not own, see {_MEMORY}"
    verdict = replace(found.verdict, status=Status.UNDECIDED, basis=Basis.NONE, reason=reason)
    return replace(found, verdict=verdict, witness=None)


def _weighed(said: tuple[Verdict, ...], seen: evidence.Evidence, bench: Bench) -> tuple[Verdict, ...]:
    """The verdicts with what one tool saw: a fault fails its gate, unless that has failed; else it is a note."""
    if not seen.fault:
        bench.notes.append(seen.note)
        return said
    fails = Verdict(seen.gate, Status.FAIL, Basis.OBSERVED, seen.fault, engine=bench.engine)
    if seen.gate not in {v.gate for v in said}:
        return (*said, fails)
    return tuple(fails if v.gate == seen.gate and v.status is not Status.FAIL else v for v in said)


def _joined(gate: str, static: Verdict | None, found: Found | None, bench: Bench, told: str) -> Verdict:
    """One verdict of both sides; a failed run is explained by the static findings on the failing output's kernels.

    ``told`` is the first gate that failed: the others need not say again that ordinary inputs go wrong.
    """
    if found is None:
        nothing = Verdict(
            gate, Status.UNDECIDED, Basis.NONE, "no kernel was compiled, and nothing is run for this gate"
        )
        return static or nothing
    if found.verdict.status is Status.FAIL:
        because = explain.cause(gate, found.witness, bench.sight, bench.reports)
        clause = f"; cause: {explain.said(because)}" if because is not None else ""
        return replace(found.verdict, reason=found.verdict.reason + clause)
    if static is not None and static.status is Status.FAIL:
        return static
    if found.verdict.reason.startswith(WRONG) and told not in ("", gate):
        return replace(found.verdict, reason=f"{WRONG}, see {told}")
    return found.verdict
