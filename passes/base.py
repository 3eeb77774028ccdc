"""What a rule is, how rules are found, and the pass that runs them over one artifact."""

from __future__ import annotations

import abc
import functools
import hashlib
import importlib
import inspect
import pkgutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar, cast

from kcontract.errors import InputError, UsageError
from kcontract.ir.artifact import Artifact
from kcontract.ir.launch import Launch
from kcontract.model import GATES, Contract, Finding, Report, Settled, aggregate
from kcontract.passes.waivers import waive

T = TypeVar("T")


@dataclass(frozen=True)
class Facts:
    """What rules may know besides the artifact: the contract, launches seen, and shared analyses.

    ``asked`` tells that the artifact was compiled only to see how its kernel would do on that target. ``deep`` lifts
    the solver's time limits. Analyses are computed at the first request through ``get`` and
    shared by all rules of one pass.
    """

    artifact: Artifact
    contract: Contract = field(default_factory=Contract)
    launches: tuple[Launch, ...] = ()
    deep: bool = False
    asked: bool = False
    _cache: dict[object, object] = field(default_factory=dict, repr=False)

    def get(self, analysis: Callable[[Facts], T]) -> T:
        """``analysis(self)``, computed once."""
        if analysis not in self._cache:
            self._cache[analysis] = analysis(self)
        return cast(T, self._cache[analysis])


class Rule(abc.ABC):
    """One static check. Its class docstring is the source of its page, of ``kcontract rules CODE`` and of
    the SARIF help text, under the headings Contract, Why it matters, Fires on, Silent on, Limits, Source.

    ``slug`` names the fault and equals the file's stem with ``_`` for ``-``; it is never reused.
    """

    slug: ClassVar[str]
    gate: ClassVar[str]
    since: ClassVar[str]
    status: ClassVar[str] = "stable"

    @abc.abstractmethod
    def check(self, artifact: Artifact, facts: Facts) -> Iterator[Finding | Settled]:
        """Yield findings, and each static obligation of ``gate`` that holds for this artifact."""


@functools.cache
def rules() -> tuple[Rule, ...]:
    """Every rule in ``kcontract.passes.rules``, by slug. Adding a file there adds its rule."""
    from kcontract.passes import rules as package

    found = []
    for entry in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{entry.name}")
        found += [
            kind()
            for kind in vars(module).values()
            if isinstance(kind, type) and issubclass(kind, Rule) and kind.__module__ == module.__name__
        ]
    return tuple(sorted(found, key=lambda rule: rule.slug))


def page(rule: Rule) -> str:
    """The rule's page in Markdown: title, one line of summary, then the headings of its docstring."""
    text = inspect.cleandoc(type(rule).__doc__ or "")
    return f"# {rule.slug}\n\n{text}\n\nGate {rule.gate}, since {rule.since}, {rule.status}.\n"


@functools.cache
def ruleset_id() -> str:
    """Hash of kcontract's version and the code of every rule and analysis: it changes when an answer may."""
    from pathlib import Path

    import kcontract

    digest = hashlib.sha256(kcontract.__version__.encode())
    folder = Path(__file__).parent
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def selected(select: Iterable[str] = (), ignore: Iterable[str] = ()) -> tuple[Rule, ...]:
    """The rules named by slug or gate id in ``select`` (all when empty), less those in ``ignore``.

    Raises ``UsageError`` for a name that is neither.
    """
    wanted, unwanted = (_names(names) for names in (select, ignore))
    return tuple(
        rule
        for rule in rules()
        if (not wanted or wanted & {rule.slug, rule.gate}) and not unwanted & {rule.slug, rule.gate}
    )


def _names(names: Iterable[str]) -> set[str]:
    known = {rule.slug for rule in rules()} | set(GATES)
    result = {name.upper() if name.upper() in GATES else name for name in names}
    if unknown := sorted(result - known):
        raise UsageError(f"no rule or gate is named {unknown[0]!r}; 'kcontract rules' lists them")
    return result


def check(
    artifact: Artifact,
    *,
    contract: Contract | None = None,
    launches: tuple[Launch, ...] = (),
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    deep: bool = False,
    asked: bool = False,
) -> Report:
    """Run the selected rules over one artifact.

    A defect in a rule, or a text that cannot be read, becomes an ERROR verdict of the gates concerned and a
    sentence in ``Report.errors``; the other rules still run. Raises ``UsageError`` for an unknown rule name.
    """
    start = time.perf_counter()
    facts = Facts(artifact, contract or Contract(), launches, deep, asked)
    findings: list[Finding] = []
    settled: list[Settled] = []
    errors: dict[str, str] = {}
    chosen = selected(select, ignore) if artifact.target.is_nvidia else ()
    for rule in chosen:
        try:
            for fact in rule.check(artifact, facts):
                if isinstance(fact, Settled):
                    settled.append(fact)
                else:
                    findings.append(fact)
        except InputError as error:
            errors[rule.gate] = str(error)
        except Exception as error:  # a defect of ours must never break a compile
            errors[rule.gate] = f"{rule.slug} failed on {artifact.kernel}: {type(error).__name__}: {error}"
    findings = waive(findings, facts.contract)
    findings.sort(key=lambda f: (-f.level.rank, f.rule, f.place.ir_line or 0))
    return Report(
        kernel=artifact.kernel,
        target=artifact.target.name,
        key=artifact.key,
        ruleset=ruleset_id(),
        findings=tuple(findings),
        verdicts=tuple(aggregate(name, findings, settled, errors.get(name, "")) for name in GATES),
        errors=tuple(dict.fromkeys(errors.values())),
        origin=artifact.origin,
        seconds=time.perf_counter() - start,
    )
