"""``kcontract verify``: static verdicts first, then the gates that they leave open, then one report.

The order: the reference is judged (REF-01), the candidate is loaded and looked at once; what it compiled is read by
the static pass; each gate that is not settled is run. A gate's verdict is the worse of both sides: FAIL by either,
else PASS by either, else what the run says.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kcontract.dynamic.gates import FLOOR, gates
from kcontract.dynamic.gates.bench import Bench, Found
from kcontract.dynamic.problems.problem import Problem
from kcontract.dynamic.sandbox.candidate import Candidate, Limits
from kcontract.errors import UsageError
from kcontract.ir.launch import Fact, Launch
from kcontract.model import GATES, Basis, Finding, Report, Status, Verdict, Witness


@dataclass(frozen=True, slots=True)
class Result:
    """What was found about one problem: the report (findings and one verdict a gate), witnesses by gate, seconds."""

    report: Report
    witnesses: Mapping[str, Witness] = field(default_factory=dict)
    tried: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether a gate failed."""
        return any(v.status is Status.FAIL for v in self.report.verdicts)


def chosen(names: Iterable[str], floor: bool = False) -> tuple[str, ...]:
    """Gate ids to run. Raises ``UsageError`` for an unknown one."""
    wanted = [n.strip().upper() for name in names for n in name.split(",") if n.strip()]
    for name in wanted:
        if name not in GATES:
            raise UsageError(f"no gate {name!r}; the gates are {', '.join(GATES)}")
    order = [*gates(), *(g for g in GATES if g not in gates())]
    return tuple(g for g in order if (g in wanted if wanted else g in FLOOR if floor else True))


def verify(
    problem: Problem, *, engine: str = "gpu", only: Sequence[str] = (), floor: bool = False, dtype: str | None = None,
    seed: int = 0, thorough: bool = False, limits: Limits | None = None,
    progress: Callable[[str], None] = lambda text: None, candidate: Candidate | None = None,
) -> Result:  # fmt: skip
    """Verify one problem. ``candidate`` is a process already started for it (a warm one); else one is made.

    Raises ``InputError`` where the problem cannot be loaded, ``UsageError`` for unknown gates or engines.
    """
    start = time.monotonic()
    wanted = chosen(only, floor)
    with contextlib.ExitStack() as stack:
        if candidate is None:
            made = Candidate(problem.candidate, engine, init=problem.init, seed=seed, limits=limits)
            candidate = stack.enter_context(made)
        bench = Bench(problem, candidate, engine, seed=seed, thorough=thorough, dtype=dtype, progress=progress)
        bench.settle()
        static = read(bench)
        found = {gate: _run(gate, bench, static.get(gate)) for gate in wanted}
        findings, key, ruleset = tuple(_findings(bench)), _key(bench), _ruleset()
    verdicts = tuple(joined(gate, static.get(gate), found[gate], findings) for gate in wanted)
    report = Report(
        kernel=problem.name,
        target=candidate.target,
        key=key,
        ruleset=ruleset,
        findings=findings,
        verdicts=verdicts,
        errors=tuple(v.reason for v in verdicts if v.status is Status.ERROR),
        origin=problem.candidate.path,
        seconds=time.monotonic() - start,
    )
    witnesses = {gate: f.witness for gate, f in found.items() if f is not None and f.witness is not None}
    tried = {gate: f.tried for gate, f in found.items() if f is not None}
    return Result(report, witnesses, tried, tuple(bench.notes))


def read(bench: Bench) -> dict[str, Verdict]:
    """The static pass over everything the candidate has compiled so far: the worst verdict a gate over all kernels."""
    from kcontract.ir.loaders import Problem as Unreadable
    from kcontract.ir.loaders import load_cache
    from kcontract.passes.base import check

    launches: dict[str, list[Launch]] = {}
    for launch in bench.sight.launches if bench.sight is not None else ():
        x, y, z = (int(g) for g in launch["grid"])
        facts = {n: Fact(v, v, abs(v) or 1) for n, v in launch["numbers"].items() if type(v) is int}
        launches.setdefault(str(launch["key"]), []).append(Launch((x, y, z), facts, bench.candidate.target))
    reports = []
    for artifact in load_cache(str(bench.candidate.cache)):
        if not isinstance(artifact, Unreadable):
            key = str(artifact.metadata.get("hash"))
            reports.append(check(artifact, contract=bench.contract, launches=tuple(launches.get(key, ()))))
    bench.reports = reports
    worst: dict[str, Verdict] = {}
    order = (Status.FAIL, Status.ERROR, Status.UNDECIDED, Status.PASS, Status.NOT_APPLICABLE)
    for verdict in (v for report in reports for v in report.verdicts):
        held = worst.get(verdict.gate)
        if held is None or order.index(verdict.status) < order.index(held.status):
            worst[verdict.gate] = verdict
    return worst


def _run(gate: str, bench: Bench, static: Verdict | None) -> Found | None:
    """The gate's run; None where the static side has settled it, or nothing can be run for it."""
    if gate not in gates() or (static is not None and static.status in (Status.PASS, Status.NOT_APPLICABLE)):
        return None
    bench.progress(gate)
    try:
        found: Found = gates()[gate](bench)
        return found
    except Exception as error:
        reason = f"kcontract failed on this gate: {type(error).__name__}: {error}"
        return Found(Verdict(gate, Status.ERROR, Basis.NONE, reason, engine=bench.engine))


def joined(gate: str, static: Verdict | None, found: Found | None, findings: Sequence[Finding]) -> Verdict:
    """One verdict of both sides. A failed run is explained by the static findings of its gate."""
    if found is None:
        return static if static is not None else Verdict(gate, Status.UNDECIDED, Basis.NONE, "nothing was compiled")
    if static is not None and static.status is Status.FAIL and found.verdict.status is not Status.FAIL:
        return static
    if found.verdict.status is Status.FAIL:
        causes = [f for f in findings if f.gate == gate and f.waived is None]
        if causes:
            user = causes[0].location.user() if causes[0].location else None
            place = f" at {user.file.rsplit('/', 1)[-1]}:{user.line}" if user else ""
            return replace(found.verdict, reason=f"{found.verdict.reason}; see {causes[0].rule}{place}")
    return found.verdict


def _findings(bench: Bench) -> Iterable[Finding]:
    """All static findings, each once."""
    return dict.fromkeys(f for report in bench.reports for f in report.findings if _hashable(f))


def _hashable(finding: Finding) -> bool:
    try:
        hash(finding)
    except TypeError:
        return False
    return True


def _key(bench: Bench) -> str:
    import hashlib

    return hashlib.sha256("".join(sorted(r.key for r in bench.reports)).encode()).hexdigest()[:16]


def _ruleset() -> str:
    from kcontract.passes.base import ruleset_id

    return ruleset_id()
