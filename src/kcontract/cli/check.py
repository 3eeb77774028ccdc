"""``kcontract check``: reads compiled kernels from Triton cache folders and files, and checks them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from typing import Any

EXAMPLES = """examples:
  kcontract check ~/.triton/cache                 every kernel in a cache folder
  kcontract check kernel.ttgir kernel.ptx         loose files; files of one stem belong together
  kcontract check --gate PRC-02 --json CACHE      one gate, as JSON lines
  kcontract check --verify-diagnostics test.ttgir compare with the diagnostics the file declares

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
    parser.add_argument("--json", action="store_true", help="JSON lines: one object a finding, one a verdict")
    parser.add_argument("--notes", action="store_true", help="show notes too")
    parser.add_argument("--gate", action="append", default=[], metavar="ID", help="only this gate's rules (may repeat)")
    parser.add_argument("--rule", action="append", default=[], metavar="NAME", help="only this rule (may repeat)")
    parser.add_argument("--deep", action="store_true", help="no time limit on proofs")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    parser.add_argument("--verify-diagnostics", action="store_true", help="compare with '// expected-…' comments")
    parser.set_defaults(main=main)


def main(args: argparse.Namespace) -> int:
    """Check every kernel found; returns the exit status."""
    from kcontract.cli import ERROR, OK, VIOLATION
    from kcontract.errors import UsageError
    from kcontract.model import Level, Report
    from kcontract.passes.base import check, selected
    from kcontract.report import json, text

    if missing := next((path for path in args.paths if not os.path.exists(path)), None):
        raise UsageError(f"{missing}: no such file or folder")
    names = [*args.gate, *args.rule]
    selected(names)  # refuses unknown names before any work
    if args.verify_diagnostics:
        return _verify(args, names)
    reports: list[Report] = []
    faults = 0
    color = use_color(args.color, sys.stdout)
    for number, found in enumerate(_load(args.paths), 1):
        if sys.stderr.isatty() and sys.stdout.isatty() is False:
            print(f"\r{number} kernels", end="", file=sys.stderr, flush=True)
        if isinstance(found, str):
            faults += 1
            print(f"kcontract: {found}", file=sys.stderr)
            continue
        report = check(found, select=names, deep=args.deep)
        output = json.lines(report) if args.json else text.render(report, color=color, at_least=_lowest(args))
        if output:
            print(output, end="" if args.json else "\n", flush=True)
        reports.append(_light(report))
    if sys.stderr.isatty() and sys.stdout.isatty() is False:
        print("\r\x1b[K", end="", file=sys.stderr)
    if not args.json:
        print(text.summary(reports))
    if not reports and not faults:
        raise UsageError(f"no compiled kernel found in {', '.join(args.paths)}")
    if any(report.open_findings(Level.VIOLATION) for report in reports):
        return VIOLATION
    return ERROR if faults or any(report.errors for report in reports) else OK


def use_color(choice: str, stream: Any) -> bool:
    """``auto`` means a terminal, and no ``NO_COLOR`` in the environment (https://no-color.org)."""
    return choice == "always" or (choice == "auto" and stream.isatty() and not os.environ.get("NO_COLOR"))


def _load(paths: list[str]) -> Iterator[Any]:
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
    from kcontract.model import Report
    from kcontract.passes.base import check

    problems: list[str] = []
    for path in args.paths:
        kind = os.path.splitext(path)[1].removeprefix(".")
        if kind not in ("ttgir", "ptx"):
            raise UsageError(f"{path}: --verify-diagnostics reads .ttgir and .ptx files")
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            text = file.read()

        def judge(case: str, path: str = path, kind: str = kind) -> Report:
            return check(load_text(case, kind, path), select=names)

        problems += verify(path, text, judge)
    for problem in problems:
        print(problem, file=sys.stderr)
    return VIOLATION if problems else OK


def _lowest(args: argparse.Namespace) -> Any:
    from kcontract.model import Level

    return Level.NOTE if args.notes else Level.HAZARD


def _light(report: Any) -> Any:
    """The report without what only rendering needs, so that a large cache stays small in memory."""
    from dataclasses import replace

    from kcontract.model import Place

    findings = tuple(replace(f, place=Place(), evidence={}, related=()) for f in report.findings)
    return replace(report, findings=findings, verdicts=())
