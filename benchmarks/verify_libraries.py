"""Verifies the public operators of Liger-Kernel and fla-core, and says which failures are confirmed.

    PYTHONPATH=src python benchmarks/verify_libraries.py [--only NAME,...] [--jobs N] [--engine NAME] [--out FILE]

Each operator is a contracted function of ``benchmarks/libraries``, verified in a process of its own: all gates, inputs
of float32 unless the operator takes none (PRC-01 covers the other dtypes it promises). A FAIL is replayed on the same
engine, and with ``--second`` on another. It is *confirmed* where the replay shows the same wrong value bit for bit
against the float64 oracle, or where the second engine shows it too; every other FAIL is listed as unconfirmed.
Prints a line an operator. FILE gets one JSON object an operator, with the reasons and the witnesses. Needs both
libraries and torch.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kcontract.dynamic.problems import contracted

FILES = sorted((Path(__file__).parent / "libraries").glob("*_operators.py"))
#: Gates whose witness holds a value and what the oracle wants in its place.
JUDGED = ("CMP-01", "CMP-02", "CMP-03", "ORD-01", "ORD-03", "EXC-01", "EXC-02", "PRC-01", "PRC-02")


def kcontract(*arguments: str, seconds: float) -> tuple[int | None, list[dict[str, Any]], str]:
    """Exit status (None: it took too long and was ended), the JSON lines it printed, its last line of complaint."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kcontract", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        printed, said = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, [], f"no answer after {seconds:.0f} s"
    lines = said.strip().splitlines()
    return process.returncode, [json.loads(line) for line in printed.splitlines()], lines[-1] if lines else ""


def confirmed(gate: str, path: str, args: argparse.Namespace, deadline: float) -> tuple[bool, str, dict[str, Any]]:
    """Whether a witness's failure is confirmed, why, and the witness itself."""
    witness = json.loads(Path(path).read_text())
    replayed = replay(path, args.engine, deadline)
    if replayed.get("status") != "FAIL":
        return False, f"the replay does not show it: {replayed.get('reason', '')}", witness
    if replayed["identical"] and gate in JUDGED and witness["wanted"] != "":
        return True, "the replay shows the same wrong value against float64", witness
    if not args.second:
        return False, "replayed, but no value stands against exact arithmetic", witness
    second = replay(path, args.second, deadline)
    if second.get("status") == "FAIL":
        return True, f"shown by {args.second} too: {second['reason']}", witness
    return False, f"{args.second} does not show it: {second.get('reason', '')}", witness


def replay(path: str, engine: str, deadline: float) -> dict[str, Any]:
    _, records, said = kcontract(
        "replay", path, "--engine", engine, "--json", seconds=max(1.0, deadline - time.monotonic())
    )
    return records[0] if records else {"reason": said}


def library(file: Path) -> str:
    return file.stem.removesuffix("_operators")


def full(file: Path, name: str) -> str:
    """An operator's name with its library."""
    return f"{file.stem.removesuffix('_operators')}/{name}"


def verify(file: Path, name: str, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All there is to say about one operator."""
    start = time.monotonic()
    deadline = start + args.timeout
    gates = ("--gates", args.gates) if args.gates else ()
    status, records, said = kcontract(
        "verify", str(file), "--candidate", name, "--engine", args.engine, "--json", "--no-cache", "--witnesses",
        str(folder), *gates, seconds=args.timeout,
    )  # fmt: skip
    verdicts = {r["gate"]: r for r in records if r["type"] == "verdict"}
    witnesses = {r["gate"]: r["path"] for r in records if r["type"] == "witness"}
    failures = {}
    for gate, verdict in verdicts.items():
        if verdict["status"] != "FAIL":
            continue
        held, why, witness = False, f"{verdict['basis']} without a run: nothing to replay", None
        if gate in witnesses:
            held, why, witness = confirmed(gate, witnesses[gate], args, deadline + args.timeout)
        failures[gate] = {"confirmed": held, "why": why, "reason": verdict["reason"], "witness": witness}
    return {
        "operator": f"{library(file)}/{name}",
        "status": status,
        "error": "" if verdicts else said,
        "verdicts": {gate: v["status"] for gate, v in verdicts.items()},
        "reasons": {gate: v["reason"] for gate, v in verdicts.items()},
        "failures": failures,
        "seconds": round(time.monotonic() - start, 1),
    }


def line(result: dict[str, Any]) -> str:
    """The operator's line, one more a failure."""
    said = list(result["verdicts"].values())
    counts = [f"{said.count(s)} {s}" for s in ("PASS", "FAIL", "UNDECIDED", "NOT_APPLICABLE", "ERROR") if s in said]
    text = f"{result['operator']}: {', '.join(counts) or result['error']}, {result['seconds']} s"
    for gate, failure in result["failures"].items():
        kind = "confirmed" if failure["confirmed"] else "unconfirmed"
        text += f"\n    {gate} {kind} ({failure['why']}): {failure['reason']}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="operators, as in liger/softmax or softmax, with commas between")
    parser.add_argument("--jobs", type=int, default=2, help="operators verified at once (default: 2)")
    parser.add_argument("--engine", default="gpu", help="gpu, sim:SM or interpreter (default: gpu)")
    parser.add_argument("--second", help="engine that confirms what the first one alone cannot")
    parser.add_argument("--gates", help="only these gates, with commas between")
    parser.add_argument("--timeout", type=float, default=150, help="seconds an operator may take (default: 150)")
    parser.add_argument("--out", type=Path, help="file for the results, a JSON object a line")
    args = parser.parse_args()
    wanted = set(args.only.split(",")) if args.only else None
    work = [
        (file, problem.name)
        for file in FILES
        for problem in contracted.load(str(file))
        if wanted is None or wanted & {problem.name, full(file, problem.name)}
    ]
    work.sort(key=lambda each: each[1])  # the chunked operators of fla, which take longest, early
    # each process would take all processors for its own
    os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // args.jobs))
    start = time.monotonic()
    results = []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        pending = [pool.submit(verify, file, name, args, Path(folder)) for file, name in work]
        for done in concurrent.futures.as_completed(pending):
            result = done.result()
            results.append(result)
            print(line(result), flush=True)
            if args.out:
                with open(args.out, "a") as out:
                    out.write(json.dumps(result) + "\n")
    failures = [f for r in results for f in r["failures"].values()]
    print(
        f"{len(results)} operators, {sum(not r['verdicts'] for r in results)} without a verdict, {len(failures)} FAIL: "
        f"{sum(f['confirmed'] for f in failures)} confirmed, {time.monotonic() - start:.0f} s"
    )


if __name__ == "__main__":
    main()
