"""Verifies the public operators of Liger-Kernel and fla-core, and says which failures are confirmed.

    PYTHONPATH=src python benchmarks/verify_libraries.py [--only NAME,...] [--jobs N] [--engine NAME] [--out FILE]

Each operator is a contracted function of ``benchmarks/libraries``. A process of its own runs ``kcontract verify`` on
it: all gates, inputs of float32 unless the operator takes none (PRC-01 covers the other dtypes it promises), and then
``kcontract replay`` on the same engine for each FAIL, with ``--second`` on another too. A FAIL is *confirmed* where
the replay shows the same wrong value bit for bit against the float64 oracle, where the second engine shows it too, or
where it is proved on the IR (docs/findings.md has those in exact arithmetic); every other one is listed as unconfirmed.
Prints a line an operator. FILE gets one JSON object an operator, with the reasons and the witnesses. Needs both
libraries and torch.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kcontract.cli import main as kcontract

FILES = sorted((Path(__file__).parent / "libraries").glob("*_operators.py"))
#: Gates whose witness holds a value and what the oracle wants in its place.
JUDGED = ("CMP-01", "CMP-02", "CMP-03", "ORD-01", "ORD-03", "EXC-01", "EXC-02", "PRC-01", "PRC-02", "CFG-01")


def said(*command: str) -> list[dict[str, Any]]:
    """The JSON lines that a command of kcontract prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        kcontract(command)
    return [json.loads(line) for line in printed.getvalue().splitlines()]


def judge(path: str, engine: str, second: str | None) -> tuple[bool, str]:
    """Whether a witness's failure is confirmed, and why."""
    witness = json.loads(Path(path).read_text())
    replayed = replay(path, engine)
    if replayed["status"] != "FAIL":
        return False, f"the replay does not show it: {replayed['reason']}"
    if replayed["identical"] and witness["gate"] in JUDGED and number(witness["found"]) and number(witness["wanted"]):
        return True, "the replay shows the same wrong value against float64"
    if second is None:
        return False, "replayed, but no value stands against exact arithmetic"
    other = replay(path, second)
    if other["status"] == "FAIL":
        return True, f"{second} shows it too: {other['reason']}"
    return False, f"{second} does not show it: {other['reason']}"


def replay(path: str, engine: str) -> dict[str, Any]:
    records = said("replay", path, "--engine", engine, "--json")
    return records[0] if records else {"status": "ERROR", "reason": "it cannot be replayed"}


def number(value: object) -> bool:
    """Whether a witness's value is a number, an infinity or NaN."""
    return isinstance(value, (int, float)) or value in ("nan", "inf", "-inf")


def one(file: str, name: str, args: argparse.Namespace) -> None:
    """The process of one operator: prints what verify prints, and a line on each failure."""
    with tempfile.TemporaryDirectory() as folder:
        gates = ("--gates", args.gates) if args.gates else ()
        command = ("verify", file, "--candidate", name, "--engine", args.engine, "--json", "--no-cache", *gates)
        records = said(*command, "--witnesses", folder, "--timeout", str(args.timeout))  # compiling takes long
        for record in records:
            print(json.dumps(record), flush=True)
        paths = {r["gate"]: r["path"] for r in records if r["type"] == "witness"}
        for record in records:
            if record["type"] == "verdict" and record["status"] == "FAIL":
                path = paths.get(record["gate"])
                nothing = (record["basis"] == "proved", f"{record['basis']} without a run: nothing to replay")
                held, why = judge(path, args.engine, args.second) if path else nothing
                witness = json.loads(Path(path).read_text()) if path else None
                failure = {"confirmed": held, "why": why, "reason": record["reason"], "witness": witness}
                print(json.dumps({"type": "failure", "gate": record["gate"], **failure}), flush=True)


def verify(file: Path, name: str, args: argparse.Namespace) -> dict[str, Any]:
    """What the process of one operator says until it ends, or is ended."""
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as printed, tempfile.TemporaryFile("w+") as complaints:
        process = subprocess.Popen(
            [sys.executable, __file__, *sys.argv[1:], "--one", str(file), name], stdout=printed, stderr=complaints,
            start_new_session=True,
        )  # fmt: skip
        error = ""
        try:
            process.wait(args.timeout)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            error = f"ended after {args.timeout:.0f} s"
        records = [json.loads(line) for line in lines(printed) if line.endswith("}\n")]
        verdicts = [r for r in records if r["type"] == "verdict"]
        error = error or ("" if verdicts else next(reversed(list(lines(complaints))), "it said nothing").strip())
    failures = {r["gate"]: r for r in records if r["type"] == "failure"}
    for verdict in verdicts:
        if verdict["status"] == "FAIL" and verdict["gate"] not in failures:
            failures[verdict["gate"]] = {"confirmed": False, "why": "not replayed", "reason": verdict["reason"]}
    return {
        "operator": full(file, name),
        "error": error,
        "verdicts": {v["gate"]: v["status"] for v in verdicts},
        "reasons": {v["gate"]: v["reason"] for v in verdicts},
        "failures": failures,
        "seconds": round(time.monotonic() - start, 1),
    }


def lines(file: Any) -> Iterator[str]:
    file.seek(0)
    yield from file


def full(file: Path, name: str) -> str:
    """An operator's name with its library."""
    return f"{file.stem.removesuffix('_operators')}/{name}"


def line(result: dict[str, Any]) -> str:
    """The operator's line, one more a failure."""
    found = list(result["verdicts"].values())
    counts = [f"{found.count(s)} {s}" for s in ("PASS", "FAIL", "UNDECIDED", "NOT_APPLICABLE", "ERROR") if s in found]
    text = f"{result['operator']}: {', '.join([*counts, *filter(None, [result['error']])])}, {result['seconds']} s"
    for gate, failure in result["failures"].items():
        kind = "confirmed" if failure["confirmed"] else "unconfirmed"
        text += f"\n    {gate} {kind} ({failure['why']}): {failure['reason']}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="operators, as in liger/softmax,rotary")
    parser.add_argument("--jobs", type=int, default=2, help="operators verified at once (default: 2)")
    parser.add_argument("--engine", default="gpu", help="gpu, sim:SM or interpreter (default: gpu)")
    parser.add_argument("--second", help="engine that confirms what the first one alone cannot")
    parser.add_argument("--gates", help="only these gates, with commas between")
    parser.add_argument("--timeout", type=float, default=200, help="seconds an operator may take (default: 200)")
    parser.add_argument("--out", type=Path, help="file for the results, a JSON object a line")
    parser.add_argument("--one", nargs=2, metavar=("FILE", "NAME"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        one(args.one[0], args.one[1], args)
        return
    from kcontract.dynamic.problems import contracted

    work = [(file, problem.name) for file in FILES for problem in contracted.load(str(file))]
    if args.only:
        wanted = set(args.only.split(","))
        work = [(file, name) for file, name in work if wanted & {name, full(file, name)}]
    work.sort(key=lambda each: each[1])  # the chunked operators of fla, which take longest, early
    # each process would take all processors for its own
    os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // args.jobs))
    start = time.monotonic()
    results = []
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        pending = [pool.submit(verify, file, name, args) for file, name in work]
        for done in concurrent.futures.as_completed(pending):
            result = done.result()
            results.append(result)
            print(line(result), flush=True)
            if args.out:
                with open(args.out, "a") as out:
                    out.write(json.dumps(result) + "\n")
    failures = [f for r in results for f in r["failures"].values()]
    print(
        f"{len(results)} operators, {sum(bool(r['error']) for r in results)} not finished, {len(failures)} FAIL: "
        f"{sum(f['confirmed'] for f in failures)} confirmed, {time.monotonic() - start:.0f} s"
    )


if __name__ == "__main__":
    main()
