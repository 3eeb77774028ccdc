"""What happens at a compile: read the artifact, check it, say and write what was found, refuse it in error mode.

Per specialisation a process keeps its hash and nothing else. Whatever goes wrong in here becomes an ERROR verdict
and one line; only ``KeyboardInterrupt``, ``SystemExit`` and their like pass through.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kcontract.errors import InputError, UsageError
from kcontract.hook.console import Console
from kcontract.settings import Mode, Settings

if TYPE_CHECKING:
    from kcontract.ir.artifact import Artifact
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

    def compiled(
        self, *, metadata: Mapping[str, Any], metadata_group: Mapping[str, str], **_: object
    ) -> Exception | None:
        """Triton's listener: a compile, or a hit in its cache on disk. ``metadata_group`` maps names to paths."""
        return self.examine(metadata, lambda: read_artifact(metadata, metadata_group))

    def examine(self, metadata: Mapping[str, Any], read: Callable[[], Artifact]) -> Exception | None:
        """Check what ``read`` gives, once a specialisation: the ``hash`` of Triton's ``metadata``.

        In error mode a refused one is checked, silently, at each further event, and refused again.
        """
        try:
            self.console.relay()
            backend = getattr(metadata.get("target"), "backend", "cuda")
            if backend != "cuda":
                self.console.notice(f"kernels for {backend} are left alone: the rules know CUDA targets only")
                return None
            key, token = str(metadata["hash"]), object()
            first = self.seen.setdefault(key, token) is token
            stops = self.settings.mode is Mode.ERROR
            if self.seen[key] is _PASSED or (not first and not stops):
                return None
            told = not first or self.console.looked_at(key)
            if told and not stops:
                return None
            report = self._check(metadata, read)
            if not told:
                self._tell(key, report)
            refusal = self._refusal(report) if stops else None
            if refusal is None:
                self.seen[key] = _PASSED
            return refusal
        except Exception as error:
            self.console.notice(_defect(metadata, error))
            return None

    def _check(self, metadata: Mapping[str, Any], read: Callable[[], Artifact]) -> Report:
        try:
            from kcontract.passes.base import check

            artifact = read()
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

    def _refusal(self, report: Report) -> Exception | None:
        from kcontract.hook.refusal import refusal

        return refusal(report)


def read_artifact(metadata: Mapping[str, Any], files: Mapping[str, str]) -> Artifact:
    """The artifact of one compile; ``files`` maps the names Triton gave them to paths. A lost file is None."""
    from kcontract.ir.artifact import Artifact
    from kcontract.ir.target import Target

    content: dict[str, bytes] = {}
    for name, path in files.items():
        if (suffix := name.rpartition(".")[2]) in ("ttgir", "ptx", "cubin"):
            with suppress(OSError), open(path, "rb") as file:
                content[suffix] = file.read()
    texts = {suffix: content[suffix].decode("utf-8", "replace") for suffix in ("ttgir", "ptx") if suffix in content}
    return Artifact(
        kernel=str(metadata["name"]),
        target=Target.parse(metadata["target"]),
        ttgir=texts.get("ttgir"),
        ptx=texts.get("ptx"),
        cubin=content.get("cubin"),
        metadata=metadata,
        origin=os.path.dirname(next(iter(files.values()), "")),
    )


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
