"""``kcontract run``: runs a program on CPU tensors, compiles every kernel it launches, checks what was compiled."""

from __future__ import annotations

import argparse
import json as jsonlib
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kcontract.dynamic.engines.session import Run

FAILED = 4

EXAMPLES = """examples:
  kcontract run --target sm_90,sm_100 -- python train.py --steps 1
  kcontract run --target sm_90 --max-configs 1 -- pytest -x tests/
  kcontract run --engine sim:sm_100 -- python prog.py
  kcontract run --keep kernels -- python prog.py && kcontract check kernels

The program runs as it stands, once a target, without a GPU: its tensors are CPU tensors that say they are on cuda:0,
the device answers as one GPU of the target, and a launch compiles the kernel and does nothing, or, with --engine sim,
runs it in the PTX simulator. Of an autotuner every configuration that its own pruning leaves is compiled. What Triton
would refuse to load is refused here too. Memory is zero-filled, so a program that needs the value of a kernel's
result finds zeros. torch.compile is switched off.

exit status: 0 nothing above a hazard, 1 violation, 2 wrong use, 3 error inside kcontract, 4 the program itself failed
(its own status is in the summary), 130 interrupted"""


def add_parser(commands: Any) -> None:
    """Add this command to the parser."""
    parser = commands.add_parser(
        "run",
        help="compile and check every kernel a program launches, without a GPU",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--engine",
        default="compile",
        metavar="NAME",
        help="compile: compile all, run nothing (default); sim or sim:SM: run every kernel's PTX on the CPU",
    )
    parser.add_argument("--target", metavar="SM,...", help="targets to compile for (default: sm_90)")
    parser.add_argument("--max-configs", type=int, metavar="N", help="compile at most N configurations an autotuner")
    parser.add_argument(
        "--shard",
        default="1/1",
        metavar="I/N",
        help="of each autotuner's configurations only each N-th, from the I-th on",
    )
    parser.add_argument("--keep", metavar="DIR", help="keep what was compiled in DIR/TARGET, for 'kcontract check'")
    parser.add_argument("--json", action="store_true", help="JSON lines: findings, verdicts, and one 'run' a target")
    parser.add_argument("--notes", action="store_true", help="show notes too")
    parser.add_argument("--gate", action="append", default=[], metavar="ID", help="only this gate's rules (may repeat)")
    parser.add_argument("--rule", action="append", default=[], metavar="NAME", help="only this rule (may repeat)")
    parser.add_argument("--deep", action="store_true", help="no time limit on proofs")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    parser.add_argument(
        "program", nargs=argparse.REMAINDER, metavar="-- PROGRAM ...", help="the program and its arguments"
    )
    parser.set_defaults(main=main)


def main(args: argparse.Namespace) -> int:
    """Run, compile, check; returns the exit status."""
    from kcontract.cli._selection import rules_asked_for
    from kcontract.dynamic.engines import devices, session

    names = rules_asked_for(args)
    program = session.command_line(args.program[1:] if args.program[:1] == ["--"] else args.program)
    engine, wanted = _engine(args.engine)
    targets = [devices.device(name).target.name for name in (args.target or wanted or "sm_90").split(",")]
    if wanted and targets != [devices.device(wanted).target.name]:
        from kcontract.errors import UsageError

        raise UsageError(f"--engine {args.engine} and --target {args.target} disagree; give the target once")
    shard = _shard(args.shard)
    if args.max_configs is not None and args.max_configs < 1:
        from kcontract.errors import UsageError

        raise UsageError(f"--max-configs is {args.max_configs}; at least 1 configuration must be compiled")
    statuses = []
    with tempfile.TemporaryDirectory(prefix="kcontract-run-") as temporary:
        folder = Path(args.keep or temporary)
        for target in targets:
            found = session.run(
                program,
                target,
                folder,
                engine=engine,
                max_configs=args.max_configs,
                shard=shard,
                stdout=sys.stderr if args.json else None,
            )
            statuses.append(_show(args, found, names))
            if found.interrupted:
                break
    return next((status for status in (1, 130, 3, FAILED) if status in statuses), 0)


def _engine(text: str) -> tuple[str, str]:
    """Module of the engine and the target its name carries ("" for none)."""
    from kcontract.errors import UsageError

    name, _, target = text.partition(":")
    modules = {"compile": "compile", "sim": "simulator"}
    if name not in modules or (target and name == "compile"):
        raise UsageError(f"--engine is {text!r}; write compile, sim, or sim: and a target such as sim:sm_90")
    if name == "sim":
        import os

        from kcontract.dynamic.engines.simulator import options

        options.from_text(os.environ.get(options.VARIABLE, ""))
    return modules[name], target


def _shard(text: str) -> tuple[int, int]:
    """(index from 0, number of shards) of ``I/N``, I from 1."""
    from kcontract.errors import UsageError

    index, slash, number = text.partition("/")
    if not slash or not index.isdecimal() or not number.isdecimal() or not 1 <= int(index) <= int(number):
        raise UsageError(f"--shard is {text!r}; write I/N with I from 1 to N, such as 2/4")
    return int(index) - 1, int(number)


def _show(args: argparse.Namespace, found: Run, names: list[str]) -> int:
    """Print findings as they are made, then the summary of one target; returns its exit status."""
    from kcontract.cli.check import use_color
    from kcontract.dynamic.engines import session
    from kcontract.model import Level
    from kcontract.report import json, text

    color = use_color(args.color, sys.stdout)
    counts: Counter[str] = Counter()
    problems = 0
    for report in session.check(found, select=names, deep=args.deep):
        if isinstance(report, str):
            problems += 1
            print(f"kcontract: {report}", file=sys.stderr)
            continue
        problems += len(report.errors)
        counts.update(str(finding.level) for finding in report.findings if finding.waived is None)
        lowest = Level.NOTE if args.notes else Level.HAZARD
        output = json.lines(report) if args.json else text.render(report, color=color, at_least=lowest)
        if output:
            print(output, end="" if args.json else "\n", flush=True)
    findings = {str(level): counts[str(level)] for level in Level}
    print(jsonlib.dumps(_record(found, findings)) if args.json else _summary(found, findings), flush=True)
    if findings["violation"]:
        return 1
    if found.interrupted:
        return 130
    if problems:
        return 3
    return FAILED if found.status else 0


def _record(found: Run, findings: dict[str, int]) -> dict[str, object]:
    failures = [
        {"kernel": failure.kernel, "reason": failure.reason, "candidate": failure.candidate, "kind": kind}
        for kind, group in (("not compiled", found.failures), ("refused", found.refused))
        for failure in group
    ]
    return {
        "type": "run",
        "schema": 1,
        "target": found.target,
        "triton": found.triton,
        "status": found.status,
        "sentences": list(found.sentences),
        "kernels": len({kernel for kernel, _ in found.compiled.values()}),
        "specialisations": len(found.compiled),
        "seconds": round(sum(seconds for _, seconds in found.compiled.values()), 3),
        "autotuners": {name: {"offered": a, "compiled": b} for name, (a, b) in found.tuners.items()},
        "failures": failures,
        "findings": findings,
    }


def _summary(found: Run, findings: dict[str, int]) -> str:
    from kcontract.report.text import plural

    seconds = sum(seconds for _, seconds in found.compiled.values())
    kernels = len({kernel for kernel, _ in found.compiled.values()})
    lines = [
        f"{found.target}: {plural(kernels, 'kernel')}, {plural(len(found.compiled), 'specialisation')} compiled in "
        f"{seconds:.1f} s" + (f" with Triton {found.triton}" if found.triton else "")
    ]
    if found.tuners:
        offered, compiled = (sum(values) for values in zip(*found.tuners.values(), strict=True))
        lines.append(
            f"  {plural(len(found.tuners), 'autotuner')}: {compiled} of {plural(offered, 'configuration')} compiled"
        )
    for kind, group in (("not compiled", found.failures), ("refused", found.refused)):
        for failure in group:
            candidate = " (a candidate of its autotuner)" if failure.candidate else ""
            lines.append(f"  {kind}: {failure.kernel}{candidate}: {failure.reason}")
    lines += [f"  {sentence}" for sentence in found.sentences]
    lines.append("  " + ", ".join(plural(count, level) for level, count in findings.items()))
    return "\n".join(lines)
