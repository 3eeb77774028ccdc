"""Writes ``docs/findings.md``: what the rules find in the swept libraries, each finding with a judgement.

    python tests/sweep/judge.py FOLDER ... [--write] [--missing]

Each FOLDER is a Triton cache folder that ``python tests/sweep`` has filled. Judgements stand in ``judgements.toml``
beside this file, made by reading the library's source at that line. One holds for a library, a kernel, a rule, a level
and the text of source lines, so a new release whose line has changed asks for a new judgement. For notes ``*`` stands
for any kernel or line. A finding without judgement, a judgement of nothing, or a violation whose witness shows nothing
is an error. Without ``--write`` the page is only compared; ``--missing`` prints what is to be judged.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import importlib.metadata
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from count_sinks import count, differences, ledger_rows
from witness import Shown, show

from kcontract.errors import InputError
from kcontract.ir.artifact import Artifact
from kcontract.ir.loaders import Problem, load_cache
from kcontract.model import Finding, Level
from kcontract.passes.base import check

tomllib: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "findings.md"
VERDICTS = ("true", "harmless", "false alarm")
LIBRARIES = {"liger_kernel": "liger-kernel", "fla": "fla-core"}
_WORDS = {"true": "true", "harmless": "true but harmless here", "false alarm": "false alarm"}


#: distribution, its version, Triton's version, target
Group = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Key:
    """What makes two findings the same one. ``source`` is the text of the first line of the statement."""

    library: str
    level: Level
    rule: str
    kernel: str
    file: str
    line: int
    source: str


@dataclass(slots=True)
class Found:
    """One finding in all specialisations that have it."""

    messages: list[str] = field(default_factory=list)
    groups: set[Group] = field(default_factory=set)
    specialisations: int = 0
    witnesses: dict[str, Shown] = field(default_factory=dict)


@dataclass(slots=True)
class Judgement:
    """One entry of the file, and how often it was used."""

    library: str
    kernel: str
    rule: str
    level: Level
    source: tuple[str, ...]
    verdict: str
    why: str
    used: int = 0

    def holds(self, key: Key) -> bool:
        """Whether it is about this finding."""
        wide = key.level is Level.NOTE
        return (
            (self.library, self.rule, self.level) == (key.library, key.rule, key.level)
            and (self.kernel == key.kernel or (wide and self.kernel == "*"))
            and (key.source in self.source or (wide and self.source == ("*",)))
        )


@dataclass(slots=True)
class Sweep:
    """Everything that was read."""

    findings: dict[Key, Found] = field(default_factory=dict)
    #: specialisations by kernel
    kernels: dict[Group, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    sinks: Counter[Group] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def main() -> int:
    """Compare or write the page; 1 where it is stale or anything is not judged."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--missing", action="store_true")
    args = parser.parse_args()
    sweep = read(args.folders)
    judgements = load(HERE / "judgements.toml")
    judged = {key: next((j for j in judgements if j.holds(key)), None) for key in sorted(sweep.findings, key=_order)}
    missing = [key for key, judgement in judged.items() if judgement is None]
    if args.missing:
        for key in missing:
            print(*(key.level.value, key.rule, key.library, key.kernel, f"{key.file}:{key.line}", key.source), sep="\t")
            print("\t" + merged(sweep.findings[key].messages))
        return int(bool(missing))
    for judgement in judged.values():
        if judgement is not None:
            judgement.used += 1
    problems = sweep.faults + [f"not judged: {k.rule} in {k.kernel}, {k.file}:{k.line}: {k.source}" for k in missing]
    problems += [f"judges nothing: {j.rule} in {j.kernel}: {', '.join(j.source)}" for j in judgements if not j.used]
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        return 1
    text = page(sweep, {key: judgement for key, judgement in judged.items() if judgement is not None})
    if args.write:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        print(f"{PAGE.name} is stale: run with --write", file=sys.stderr)
        return 1
    return 0


def read(folders: Iterable[Path]) -> Sweep:
    """Check every kernel below the folders."""
    sweep = Sweep()
    for folder in folders:
        for found in load_cache(folder):
            if isinstance(found, Problem):
                if found.is_fault:
                    sweep.faults.append(str(found))
                continue
            report = check(found)
            sweep.faults += report.errors
            library, version = _library(found)
            group = library, version, str(found.metadata.get("triton_version")), found.target.name
            for finding in report.findings:
                _add(sweep, group, found, finding)
            sweep.kernels[group][found.kernel] += 1
            if found.ttgir is not None:
                sweep.sinks[group] += sum(count(found.ttgir).values())
                wrong = differences(found.ttgir, ledger_rows(found.ttgir))
                sweep.faults += [f"{found.kernel}: the ledger: {problem}" for problem in wrong]
    return sweep


def _add(sweep: Sweep, group: Group, artifact: Artifact, finding: Finding) -> None:
    place = finding.location.user() if finding.location else None
    if place is None:
        raise InputError(f"{artifact.kernel}: a finding of {finding.rule} has no place")
    package, _, file = place.file.rpartition("site-packages/")[2].partition("/")
    line, source = _statement(place.file, place.line)
    key = Key(LIBRARIES[package], finding.level, finding.rule, artifact.kernel, f"{package}/{file}", line, source)
    entry = sweep.findings.setdefault(key, Found())
    entry.messages.append(finding.message)
    entry.specialisations += 1
    entry.groups.add(group)
    if finding.level is Level.VIOLATION:
        try:
            shown = show(artifact, finding)
        except InputError as error:
            sweep.faults.append(str(error))
            return
        entry.witnesses[str(shown)] = shown
        if abs(shown.given - shown.exact) <= 2 * abs(shown.single - shown.exact):
            sweep.faults.append(f"{artifact.kernel}: the witness of {finding.message!r} shows no wrong value: {shown}")


def _statement(file: str, line: int) -> tuple[int, str]:
    """First line of the statement around a line, and its text: Triton versions differ in which line they name."""
    first = max((start for start, end in _simple_statements(file) if start <= line <= end), default=line)
    return first, Path(file).read_text(encoding="utf-8").splitlines()[first - 1].strip()


@functools.cache
def _simple_statements(file: str) -> tuple[tuple[int, int], ...]:
    """First and last line of each statement that holds no other."""
    nodes = ast.walk(ast.parse(Path(file).read_text(encoding="utf-8")))
    simple = (node for node in nodes if isinstance(node, ast.stmt) and not hasattr(node, "body"))
    return tuple((node.lineno, node.end_lineno or node.lineno) for node in simple)


def _library(artifact: Artifact) -> tuple[str, str]:
    """The distribution a kernel comes from and its version, by where its source stands."""
    kernel = next(iter(artifact.module.functions), None) if artifact.module else None
    file = kernel.location.user().file if kernel is not None and kernel.location else ""
    site, _, rest = file.rpartition("site-packages/")
    name = LIBRARIES.get(rest.partition("/")[0])
    if name is None:
        raise InputError(f"{artifact.kernel}: its source is in none of {', '.join(LIBRARIES)}", path=file or None)
    found = importlib.metadata.distributions(name=name, path=[f"{site}site-packages"])
    return name, next(iter(found)).version


def load(path: Path) -> list[Judgement]:
    """The judgement file. Raises ``InputError`` for an entry that is not complete."""
    result = []
    for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("judgement", ()):
        source = entry.get("source", "*")
        why = str(entry.get("why", "")).strip()
        library, kernel, rule = (str(entry.get(name, "")) for name in ("library", "kernel", "rule"))
        if entry.get("verdict") not in VERDICTS or not (why and library and kernel and rule):
            raise InputError(
                f"the judgement of {library} {kernel} {rule} lacks a name, a verdict or a reason", path=str(path)
            )
        sources = tuple(source if isinstance(source, list) else [source])
        result.append(Judgement(library, kernel, rule, Level(entry["level"]), sources, entry["verdict"], why))
    return result


def merged(messages: list[str]) -> str:
    """Messages that differ in numbers alone become one, with ranges."""
    groups: dict[str, list[list[int]]] = {}
    for message in messages:
        numbers = [int(n) for n in re.findall(r"(?<![\w-])\d+(?!\w)", message)]
        groups.setdefault(re.sub(r"(?<![\w-])\d+(?!\w)", "\0", message), []).append(numbers)
    texts = []
    for skeleton, rows in sorted(groups.items()):
        parts = skeleton.split("\0")
        ranges = [_range(column) for column in zip(*rows, strict=True)]
        texts.append("".join(a + b for a, b in zip(parts, [*ranges, ""], strict=True)))
    return "; ".join(texts)


def _range(numbers: Iterable[int]) -> str:
    low, high = min(numbers := list(numbers)), max(numbers)
    return str(low) if low == high else f"{low} – {high}"


def _order(key: Key) -> Any:
    return key.library, -key.level.rank, key.rule, key.file, key.line, key.kernel


def page(sweep: Sweep, judged: dict[Key, Judgement]) -> str:
    """The whole page."""
    return "\n".join([*_head(sweep, judged), *_tables(sweep, judged)]) + "\n"


def _head(sweep: Sweep, judged: dict[Key, Judgement]) -> Iterator[str]:
    yield "<!-- generated by tests/sweep/judge.py; do not edit -->\n"
    yield "# Findings in public libraries\n"
    yield (
        "Every public operation of liger-kernel and fla-core that a program on CPU tensors can reach was compiled "
        "(`python tests/sweep`), forward and backward, and every kernel checked without a contract. Each distinct "
        "finding was judged by reading the library's source at that line: *true*, *true but harmless here*, or *false "
        "alarm*. Float sinks are the adds, fused multiply-adds, products, reductions, scans and atomics that a count "
        "of the text finds; the ledger has a row of a documented class for each.\n"
    )
    columns = ("library", "Triton", "target", "kernels", "specialisations", "float sinks", "violations", "hazards")
    yield "| " + " | ".join([*columns, "hazards a kernel"]) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for group, counts in sorted(sweep.kernels.items()):
        levels = Counter(key.level for key, found in sweep.findings.items() if group in found.groups)
        hazards = levels[Level.HAZARD]
        sizes = (len(counts), sum(counts.values()), sweep.sinks[group], levels[Level.VIOLATION], hazards)
        library, version, triton, target = group
        share = f"{hazards / len(counts):.2f}"
        yield "| " + " | ".join([f"{library} {version}", triton, target, *map(str, sizes), share]) + " |"
    yield ""
    verdicts = Counter((key.level, judgement.verdict) for key, judgement in judged.items())
    yield "| level | findings | " + " | ".join(_WORDS.values()) + " |"
    yield "|---|---|---|---|---|"
    for level in (Level.VIOLATION, Level.HAZARD, Level.NOTE):
        counts_of = [verdicts[level, verdict] for verdict in VERDICTS]
        yield f"| {level.value} | {sum(counts_of)} | " + " | ".join(map(str, counts_of)) + " |"
    shown = [s for key in judged for s in sweep.findings[key].witnesses.values()]
    if shown:
        signed = [s for s in shown if s.signed]
        unsigned = [float(100 * s.error) for s in shown if not s.signed]
        weaker = ""
        if unsigned:
            weaker = (
                f" In the other {len(unsigned)} no term can be negative, so nothing cancels: there the loss is bounded "
                f"by the depth of the tree, and the witness is off by {min(unsigned):.3g} to {max(unsigned):.3g} %."
            )
        yield (
            "\nEach violation has a witness: the sum replayed in exact arithmetic, rounded after every addition, in "
            "the order that the compiled kernel adds (its layout and Triton version; the replay is held against the "
            "simulated kernel bit by bit in `tests/sweep/test_witness.py`). "
            f"{len(signed)} of {len(shown)} witnesses lose every digit.{weaker} "
            "A float32 sum in the same order is right to its last digits on all of them."
        )


def _tables(sweep: Sweep, judged: dict[Key, Judgement]) -> Iterator[str]:
    sections: dict[tuple[str, Level], list[Key]] = defaultdict(list)
    for key in judged:
        sections[key.library, key.level].append(key)
    for (library, level), keys in sections.items():
        yield f"\n## {library}: {level.value}s\n"
        witness = level is Level.VIOLATION
        yield "| kernel | place | rule | found | targets | judgement |" + (" witness |" if witness else "")
        yield "|---|---|---|---|---|---|" + ("---|" if witness else "")
        for key in keys:
            found, judgement = sweep.findings[key], judged[key]
            cells = [
                f"`{key.kernel}`",
                f"{key.file}:{key.line} `{key.source}`",
                key.rule,
                f"{merged(found.messages)} ({found.specialisations})",
                ", ".join(sorted({f"{target} ({triton})" for _, _, triton, target in found.groups})),
                f"**{_WORDS[judgement.verdict]}**: {judgement.why}",
                *(["; ".join(sorted(found.witnesses))] if witness else []),
            ]
            yield "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


if __name__ == "__main__":
    raise SystemExit(main())
