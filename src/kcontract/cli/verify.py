"""``kcontract verify``: runs a candidate against its reference and answers gate by gate, with witnesses that replay."""

from __future__ import annotations

import argparse
import json as jsonlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kcontract.dynamic.sandbox.candidate import Limits
    from kcontract.dynamic.verify import Result

EXAMPLES = """examples:
  kcontract verify kernel.py                              Model, ModelNew and get_inputs in one file (KernelBench)
  kcontract verify candidate.py --reference ref.py        or in two
  kcontract verify kernels.py                             every function with @kcontract.contract
  kcontract verify solution.json --reference definition.json   flashinfer-bench
  kcontract verify kernel.py --engine sim:sm_90 --gates CMP-01,EXC-01
  kcontract verify kernel.py --sanitizer memcheck         with one more run under compute-sanitizer
  kcontract verify kernel.py --floor --json               the tolerance-free core, one JSON object a line
  kcontract verify --serve /tmp/kcontract.sock            a warm service, for
  kcontract verify --connect /tmp/kcontract.sock kernel.py

Engines: gpu (a CUDA device), sim:sm_90 (the kernel's own PTX, simulated on the CPU), interpreter (Triton's, on the CPU,
with known gaps: it decides neither EXC-01, EXC-02, ORD-02 nor PRC-02). Without --engine: gpu where there is a CUDA
device, else sim:sm_90. The candidate runs in a process of its own, which is killed when it hangs or takes too much.

exit status: 0 no gate failed, 1 a gate failed, 2 wrong use, 3 an ERROR verdict or an error inside kcontract"""


def add_parser(commands: Any) -> None:
    """Add this command to the parser."""
    parser = commands.add_parser(
        "verify",
        help="run a candidate kernel against its reference, gate by gate",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", nargs="?", metavar="CANDIDATE", help="file that holds the candidate")
    parser.add_argument("--reference", metavar="FILE", help="file that holds the reference (default: the same file)")
    parser.add_argument("--candidate", metavar="NAME", help="class or function to verify (default: ModelNew)")
    parser.add_argument("--engine", metavar="NAME", help="gpu, sim:SM or interpreter")
    parser.add_argument("--gates", action="append", default=[], metavar="ID,...", help="only these gates")
    parser.add_argument(
        "--floor", action="store_true", help="only EXC-01, ORD-02, CMP-03, CMP-01: quick, tolerance-free"
    )
    parser.add_argument("--dtype", metavar="NAME", help="dtype of floating inputs and parameters (default: as drawn)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="what inputs are drawn from (default: 0)")
    parser.add_argument("--thorough", action="store_true", help="the larger sets of inputs and shapes")
    parser.add_argument(
        "--witnesses", metavar="DIR", default=".kcontract", help="where witnesses go (default: .kcontract)"
    )
    parser.add_argument("--timeout", type=float, metavar="S", help="seconds a call of the candidate may take")
    parser.add_argument("--memory", type=float, metavar="GIB", help="memory the candidate's processes may take")
    parser.add_argument(
        "--sanitizer", action="append", default=[], metavar="TOOL,...",
        help="extra evidence on a GPU: memcheck, initcheck, racecheck, synccheck (compute-sanitizer), consan (Triton)",
    )  # fmt: skip
    parser.add_argument("--no-cache", action="store_true", help="run also what was verified before")
    parser.add_argument("--json", action="store_true", help="JSON lines: findings, verdicts, errors, witnesses")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    parser.add_argument("--serve", metavar="SOCKET", help="answer requests on a Unix socket until interrupted")
    parser.add_argument("--connect", metavar="SOCKET", help="let the service on that socket do it")
    parser.set_defaults(main=main)


def main(args: argparse.Namespace) -> int:
    """Verify each problem of the candidate's file; returns the exit status."""
    from kcontract.errors import UsageError

    if args.serve:
        from kcontract.cli._serve import serve

        return serve(args.serve, sys.stderr)
    if not args.path:
        raise UsageError("no candidate given; write its file, as in: kcontract verify kernel.py")
    if args.connect:
        from kcontract.cli._serve import ask

        return ask(args.connect, request(args), sys.stdout)
    if args.engine:
        from kcontract.dynamic.engines.names import engine_parts

        engine_parts(args.engine)
    if not 0 <= args.seed < 2**31:
        raise UsageError(f"--seed is {args.seed}; give a number from 0 to 2^31 - 1")
    torch_is_there()
    from kcontract.dynamic import evidence
    from kcontract.dynamic.problems.load import load

    engine = args.engine or default_engine()
    evidence.chosen(args.sanitizer, engine)

    problems = load(args.path, args.reference, args.candidate)
    statuses = [show(one(args, problem, engine), args, engine) for problem in problems]
    return next((status for status in (1, 3) if status in statuses), 0)


def one(args: argparse.Namespace, problem: Any, engine: str) -> Result:
    """One problem verified, with progress on a terminal."""
    from kcontract.dynamic import certificates
    from kcontract.dynamic.verify import verify

    progress, done = progress_line(problem.name)
    try:
        return verify(
            problem,
            engine=engine,
            only=args.gates,
            floor=args.floor,
            dtype=args.dtype,
            seed=args.seed,
            thorough=args.thorough,
            limits=limits(args.timeout, args.memory),
            progress=progress,
            verdicts=None if args.no_cache else certificates.folder(),
            sanitizers=args.sanitizer,
        )
    finally:
        done()


def show(result: Result, args: argparse.Namespace, engine: str) -> int:
    """Print a result and write its witnesses; returns its exit status."""
    from kcontract.errors import InputError
    from kcontract.report import json, text, verdicts

    report = result.report
    try:
        paths = write_witnesses(result, Path(args.witnesses))
    except InputError as error:  # the verdicts are worth more than their witnesses
        paths = {}
        print(f"kcontract: {error}", file=sys.stderr)
    if args.json:
        print(json.lines(report), end="")
        for gate, path in paths.items():
            print(
                jsonlib.dumps(
                    {"type": "witness", "schema": json.SCHEMA, "kernel": report.kernel, "gate": gate, "path": str(path)}
                )
            )
        sys.stdout.flush()
        return result.status
    from kcontract.cli.check import use_color

    color = use_color(args.color, sys.stdout)
    sizes = "".join(f", {name} {size}" for name, size in result.sizes.items())
    print(f"{report.kernel} ({report.origin}) on {engine}: {result.dtype}{sizes}")
    replays = {gate: f"kcontract replay {path}" for gate, path in paths.items()}
    print(verdicts.render(report, replays, color=color), end="")
    for note in result.notes:
        print(f"  note: {note}")
    if findings := text.render(report, color=color):
        print("\n" + findings, end="")
    again = "; the same machine code was verified before (--no-cache runs it again)" if result.recognised else ""
    print(f"{verdicts.summary(report)} in {report.seconds:.1f} s{again}")
    return result.status


def write_witnesses(result: Result, folder: Path) -> dict[str, Path]:
    """Write a file a failed gate; the paths by gate. Raises ``InputError`` where the folder cannot be written."""
    from kcontract.errors import InputError

    paths = {}
    for gate, witness in result.witnesses.items():
        stem = "".join(c if c.isalnum() else "-" for c in witness.kernel)
        path = folder / f"{Path(result.report.origin).stem}-{stem}-{gate}.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            witness.dump(path)
        except OSError as error:
            raise InputError(f"cannot write a witness: {error.strerror}", path=str(path)) from None
        paths[gate] = path
    return paths


def limits(seconds: float | None, gibibytes: float | None) -> Limits:
    """The candidate's limits. Raises ``UsageError`` for those that nothing could run in."""
    from kcontract.dynamic.sandbox.candidate import Limits
    from kcontract.errors import UsageError

    for name, value in (("--timeout", seconds), ("--memory", gibibytes)):
        if value is not None and not 0 < value < 1e6:
            raise UsageError(f"{name} is {value:g}; give a number above 0 and below a million")
    standard = Limits()
    return Limits(
        load=max(standard.load, seconds or 0),
        call=seconds or standard.call,
        memory=int(gibibytes * 2**30) if gibibytes else standard.memory,
    )


def default_engine() -> str:
    """``gpu`` where there is a CUDA device, else ``sim:sm_90``."""
    import torch

    return "gpu" if torch.cuda.is_available() else "sim:sm_90"


def torch_is_there() -> None:
    """Raises ``UsageError`` where torch is not installed."""
    import importlib.util

    from kcontract.errors import UsageError

    if importlib.util.find_spec("torch") is None:
        raise UsageError("verify needs torch; install it with: pip install 'kcontract[dynamic]'")


def progress_line(name: str) -> tuple[Callable[[str], None], Callable[[], None]]:
    """A line on the terminal that says what is being tried, and a function that takes it away."""
    if not sys.stderr.isatty():
        return (lambda text: None), (lambda: None)

    def show_progress(text: str) -> None:
        width = os.get_terminal_size(sys.stderr.fileno()).columns
        sys.stderr.write(f"\r\x1b[K{name}: {text}"[: width + 4])
        sys.stderr.flush()

    def clear() -> None:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()

    return show_progress, clear


def request(args: argparse.Namespace) -> dict[str, Any]:
    """What a service needs to know: paths made absolute, since it may run elsewhere."""
    absolute = {k: os.path.abspath(v) if (v := getattr(args, k)) else None for k in ("path", "reference", "witnesses")}
    names = (
        "candidate",
        "engine",
        "gates",
        "floor",
        "dtype",
        "seed",
        "thorough",
        "timeout",
        "memory",
        "no_cache",
        "json",
    )
    return {**absolute, **{name: getattr(args, name) for name in names}}
