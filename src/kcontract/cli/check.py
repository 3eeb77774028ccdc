"""``kcontract check``: reads compiled kernels from Triton cache folders and files, and checks them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kcontract.cli._baseline import Baseline
    from kcontract.ir.artifact import Artifact
    from kcontract.ir.target import Target
    from kcontract.model import Level, Report
    from kcontract.passes.waivers import Waiver

EXAMPLES = """examples:
  kcontract check ~/.triton/cache                  every kernel in a cache folder
  kcontract check kernel.ttgir kernel.ptx          loose files; files of one stem belong together
  kcontract check --gate PRC-02 --json CACHE       one gate, as JSON lines
  kcontract check --accumulators CACHE             every sum, the type it is kept in, its number of terms
  kcontract check --target sm_90,sm_120 CACHE      would it fit there? compiles again what is needed
  kcontract check --suggest CACHE                  for what does not fit: options that were compiled, and do
  kcontract check --write-baseline known.json CACHE && kcontract check --baseline known.json CACHE
  kcontract check --verify-diagnostics test.ttgir  compare with the diagnostics the file declares

exit status: 0 nothing above a hazard, 1 violation, 2 wrong use, 3 an input that could not be read, or an error inside
kcontract"""


def add_parser(commands: Any) -> None:
    """Add this command to the parser."""
    parser = commands.add_parser(
        "check",
        help="check compiled kernels: cache folders or files",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a folder, or a .ttgir, .ptx, .cubin or .json file")
    parser.add_argument("--format", choices=("text", "json", "sarif", "github"), default="text", help="what to print")
    parser.add_argument("--json", action="store_const", const="json", dest="format", help="same as --format json")
    parser.add_argument("--notes", action="store_true", help="show notes too")
    parser.add_argument(
        "--target",
        default="",
        metavar="SM,...",
        help="judge each kernel for these (sm_80,sm_120); what was compiled for another one is compiled again from the "
        "TTIR beside it",
    )
    parser.add_argument("--suggest", action="store_true", help="compile again with other options until it fits")
    parser.add_argument("--gate", action="append", default=[], metavar="ID", help="only this gate's rules (may repeat)")
    parser.add_argument("--rule", action="append", default=[], metavar="NAME", help="only this rule (may repeat)")
    parser.add_argument("--deep", action="store_true", help="no time limit on proofs")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="findings in FILE are known: only new ones count")
    parser.add_argument("--write-baseline", type=Path, metavar="FILE", help="write what is found now as a baseline")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--accumulators", action="store_true", help="print the accumulation ledger and check nothing")
    instead.add_argument("--verify-diagnostics", action="store_true", help="compare with '// expected-…' comments")
    parser.set_defaults(main=main)


def main(args: argparse.Namespace) -> int:
    """Check every kernel found; returns the exit status."""
    from kcontract.cli._selection import rules_asked_for
    from kcontract.errors import InputError, UsageError
    from kcontract.ir.target import Target

    if missing := next((path for path in args.paths if not os.path.exists(path)), None):
        raise UsageError(f"{missing}: no such file or folder")
    names = rules_asked_for(args)
    if args.verify_diagnostics:
        return _verify(args, names)
    try:
        wanted = dict.fromkeys(Target.parse(name).name for name in args.target.split(",") if name)
    except InputError as error:
        raise UsageError(f"--target: {error}") from None
    work = _Work(args, names)
    progress = all(stream is not None for stream in (sys.stdout, sys.stderr))
    progress = progress and sys.stderr.isatty() and not sys.stdout.isatty()
    for number, found in enumerate(_load(args.paths), 1):
        if progress:
            print(f"\r{number} kernels", end="", file=sys.stderr, flush=True)
        if isinstance(found, str):
            work.faults += 1
            print(f"kcontract: {found}", file=sys.stderr)
        elif not wanted:
            work.take(found)
        else:
            for target in wanted:
                work.take_for(found, Target.parse(target))
    if progress:
        print("\r\x1b[K", end="", file=sys.stderr)
    return work.finish()


class _Work:
    """What is said so far, and what is needed at the end."""

    def __init__(self, args: argparse.Namespace, names: list[str]) -> None:
        from kcontract.cli._baseline import Baseline

        self.args, self.names = args, names
        self.baseline: Baseline = Baseline.load(args.baseline) if args.baseline else Baseline()
        self.color = use_color(args.color, sys.stdout)
        self.reports: list[Report] = []
        self.declared: set[Waiver] = set()
        self.used: set[Waiver] = set()
        self.made: set[str] = set()
        self.faults = 0
        self.kernels = 0

    def take_for(self, artifact: Artifact, target: Target) -> None:
        """Check one kernel as it is on ``target``, compiled again where it was compiled for another one."""
        from kcontract.dynamic.engines.recompile import options_of, recompile

        if artifact.target.name == target.name:
            self.take(artifact)
            return
        made = recompile(artifact, target, options_of(artifact))
        if isinstance(made, str):
            print(f"kcontract: {made}", file=sys.stderr)
        elif made.key not in self.made:
            self.made.add(made.key)
            self.take(made, asked=True)

    def take(self, artifact: Artifact, *, asked: bool = False) -> None:
        """Check one kernel and print what it gives."""
        from kcontract.cli import _ledger, _suggest
        from kcontract.errors import InputError
        from kcontract.passes import waivers
        from kcontract.passes.base import check

        self.kernels += 1
        if self.args.accumulators:
            try:
                print(_ledger.render(artifact, as_json=self.args.format == "json"), end="", flush=True)
            except InputError as error:
                self.faults += 1
                print(f"kcontract: {artifact.origin}: {error}", file=sys.stderr)
            return
        report = self.baseline.apply(check(artifact, select=self.names, deep=self.args.deep, asked=asked))
        if self.args.suggest:
            report = _suggest.improve(report, artifact)
        self.used |= waivers.used(report.findings)
        if not report.errors and artifact.module is not None:
            self.declared |= waivers.declared(artifact.module)
        if printer := _PRINTERS.get(self.args.format):
            print(printer(report, self.color, self._lowest()), end="", flush=True)
        self.reports.append(report)

    def finish(self) -> int:
        """Print the rest; returns the exit status."""
        from kcontract.cli import ERROR, OK, VIOLATION, _baseline
        from kcontract.errors import UsageError
        from kcontract.model import Level
        from kcontract.report import text

        if not self.kernels and not self.faults:
            target = f" for {self.args.target}" if self.args.target else ""
            raise UsageError(f"no compiled kernel{target} found in {', '.join(self.args.paths)}")
        if self.args.accumulators:
            return ERROR if self.faults else OK
        if self.args.format == "sarif":
            _print_sarif(self.reports)
        for waiver in sorted(self.declared - self.used, key=lambda w: (w.file, w.line)):
            if complaint := self._complaint(waiver):
                print(f"{waiver.file}:{waiver.line}: {complaint}", file=sys.stderr)
        for rule, level, kernel, source in self.baseline.stale():
            print(f"{self.args.baseline}: no longer found: {level} of {rule} in {kernel}: {source}", file=sys.stderr)
        if self.args.write_baseline:
            count = _baseline.write(self.args.write_baseline, self.reports)
            print(f"{self.args.write_baseline}: {text.plural(count, 'finding')} accepted", file=sys.stderr)
            return OK
        if self.args.format == "text":
            print(text.summary(self.reports))
        if any(report.open_findings(Level.VIOLATION) for report in self.reports):
            return VIOLATION
        return ERROR if self.faults or any(report.errors for report in self.reports) else OK

    def _complaint(self, waiver: Waiver) -> str:
        """What is wrong with a waiver that covers nothing; empty where its rules did not run."""
        from kcontract.model import GATES
        from kcontract.passes.base import rules

        known = {rule.slug: rule.gate.lower() for rule in rules()}
        if unknown := sorted(waiver.names - known.keys() - {gate.lower() for gate in GATES}):
            return f"waiver of {unknown[0]!r}, which is neither a rule nor a gate: 'kcontract rules' lists them"
        ran = {name for slug in self.names for name in (slug, known[slug])}
        if not waiver.names <= ran:
            return ""
        return f"unused waiver of {', '.join(sorted(waiver.names))}: remove it, or move it to the line of the finding"

    def _lowest(self) -> Level:
        from kcontract.model import Level

        return Level.NOTE if self.args.notes else Level.HAZARD


def use_color(choice: str, stream: Any) -> bool:
    """``auto`` means a terminal, and no ``NO_COLOR`` in the environment (https://no-color.org)."""
    terminal = stream is not None and stream.isatty()
    return choice == "always" or (choice == "auto" and terminal and not os.environ.get("NO_COLOR"))


def _text(report: Report, color: bool, lowest: Level) -> str:
    from kcontract.report import text

    output = text.render(report, color=color, at_least=lowest)
    return output + "\n" if output else ""


def _json(report: Report, color: bool, lowest: Level) -> str:
    from kcontract.report import json

    return json.lines(report)


def _github(report: Report, color: bool, lowest: Level) -> str:
    from kcontract.report import github

    return github.render(report, at_least=lowest)


_PRINTERS: dict[str, Callable[[Report, bool, Level], str]] = {"text": _text, "json": _json, "github": _github}


def _print_sarif(reports: list[Report]) -> None:
    import json

    from kcontract import __version__
    from kcontract.passes.base import page, rules
    from kcontract.report import sarif
    from kcontract.report.json import records

    helps = {rule.slug: page(rule) for rule in rules()}
    every = [record for report in reports for record in records(report)]
    print(json.dumps(sarif.document(every, version=__version__, help_texts=helps), indent=1, ensure_ascii=False))


def _load(paths: list[str]) -> Iterator[Artifact | str]:
    """Artifacts, and a sentence for each input that could not be read."""
    from kcontract.ir.loaders import Problem, load_cache, load_files

    folders = [path for path in paths if os.path.isdir(path)]
    for found in (item for folder in folders for item in load_cache(folder)):
        if not isinstance(found, Problem):
            yield found
        elif found.is_fault:
            yield str(found)
        else:
            print(f"kcontract: {found}", file=sys.stderr)
    for found in load_files(path for path in paths if path not in folders):
        yield str(found) if isinstance(found, Problem) else found


def _verify(args: argparse.Namespace, names: list[str]) -> int:
    from kcontract.cli import OK, VIOLATION
    from kcontract.cli._expect import verify
    from kcontract.errors import UsageError
    from kcontract.ir.loaders import load_text
    from kcontract.passes.base import check

    problems: list[str] = []
    for path in args.paths:
        kind = os.path.splitext(path)[1].removeprefix(".")
        if kind not in ("ttgir", "ptx"):
            raise UsageError(f"{path}: --verify-diagnostics reads .ttgir and .ptx files")
        if not os.path.isfile(path):
            raise UsageError(f"{path}: no ordinary file")

        def judge(case: str, path: str = path, kind: str = kind) -> Report:
            return check(load_text(case, kind, path), select=names)

        problems += verify(path, Path(path).read_text(encoding="utf-8", errors="surrogateescape"), judge)
    for problem in problems:
        print(problem, file=sys.stderr)
    return VIOLATION if problems else OK
