"""What happens at a compile: read the artifact, check it, say and write what was found, refuse it in error mode.

Per specialisation a process keeps its hash and nothing else. Whatever goes wrong in here becomes an ERROR verdict
and one line; only ``KeyboardInterrupt``, ``SystemExit`` and their like pass through.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kcontract.errors import InputError, UsageError
from kcontract.hook.console import Console
from kcontract.settings import Mode, Settings

if TYPE_CHECKING:
    from kcontract.model import Report

_PASSED = "passed"


class Observer:
    """One a process. What it returns is the exception to raise at a refused kernel, or None."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.console = Console(settings.color)
        self.select, self.ignore = settings.select, settings.ignore
        self.seen: dict[str, object] = {}
        for problem in settings.problems:
            self.console.notice(problem)

    def compiled(self, **event: Any) -> Exception | None:
        """Triton's listener: a compile, or a hit in its cache on disk. Takes ``metadata`` and ``metadata_group``."""
        return self.examine(event.get("metadata", {}), event.get("metadata_group", {}))

    def examine(self, metadata: Mapping[str, Any], made: Mapping[str, object]) -> Exception | None:
        """Check a kernel once a specialisation, which is the ``hash`` of Triton's ``metadata``.

        ``made`` is what ``Artifact.from_compiled`` takes: names to paths, or kinds to texts. In error mode a
        refused kernel is checked, silently, at each further event, and refused again.
        """
        refusal = None
        try:
            self.console.relay()
            key, token = str(metadata["hash"]), object()
            first = self.seen.setdefault(key, token) is token
            stops = self.settings.mode is Mode.ERROR
            told = not first or self.console.looked_at(key)
            if self.seen[key] is _PASSED or (told and not stops):
                return None
            report = self._check(metadata, made)
            if stops and report is not None:
                from kcontract.hook.refusal import refusal_of

                refusal = refusal_of(report)
            if refusal is None:
                self.seen[key] = _PASSED
            if report is not None and not told:
                self._tell(key, report)
        except Exception as error:
            self.console.notice(_defect(metadata, error))
        return refusal

    def _check(self, metadata: Mapping[str, Any], made: Mapping[str, object]) -> Report | None:
        """The report; None for a kernel that is none of our business."""
        try:
            from kcontract.ir.artifact import Artifact
            from kcontract.passes.base import check

            artifact = Artifact.from_compiled(metadata, made)
            if not artifact.target.is_nvidia:
                vendor = artifact.target.vendor
                self.console.notice(f"kernels for {vendor} GPUs are left alone: the rules know NVIDIA's only")
                return None
            try:
                return check(artifact, select=self.select, ignore=self.ignore, deep=self.settings.deep)
            except UsageError as error:
                self.console.notice(f"{error}; all rules are checked")
                self.select = self.ignore = ()
                return check(artifact, deep=self.settings.deep)
        except Exception as error:
            return _failed(metadata, error)

    def _tell(self, key: str, report: Report) -> None:
        if self.settings.report is not None:
            from kcontract.report.json import records
            from kcontract.report.stream import append

            try:
                append(self.settings.report, records(report), _sarif)
            except InputError as error:
                self.console.notice(str(error))
        from kcontract.hook.refusal import candidate_refused
        from kcontract.report.text import render

        rest, line = candidate_refused(report)
        self.console.publish(key, line + render(rest, color=self.console.wants_color()))


def _failed(metadata: Mapping[str, Any], error: Exception) -> Report:
    """The report of a kernel that could not be looked at: each gate is ERROR."""
    from kcontract.ir.target import Target
    from kcontract.model import GATES, Basis, Report, Status, Verdict

    try:
        target = Target.parse(metadata["target"]).name
    except (InputError, LookupError):
        target = str(metadata.get("target"))
    sentence = str(error) if isinstance(error, InputError) else _defect(metadata, error)
    verdicts = tuple(Verdict(gate, Status.ERROR, Basis.NONE, sentence) for gate in GATES)
    name, key = str(metadata.get("name")), str(metadata["hash"])
    return Report(name, target, key, ruleset="", verdicts=verdicts, errors=(sentence,))


def _defect(metadata: Mapping[str, Any], error: Exception) -> str:
    return f"kcontract failed on {metadata.get('name')}, which compiles unchecked: {type(error).__name__}: {error}"


def _sarif(records: list[Mapping[str, object]]) -> dict[str, Any]:
    from kcontract import __version__
    from kcontract.passes.base import page, rules
    from kcontract.report.sarif import document

    return document(records, version=__version__, help_texts={rule.slug: page(rule) for rule in rules()})
