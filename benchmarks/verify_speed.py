"""Times ``verify`` beside the customary check, on the pinned list of 20 problems, in one run on a CUDA device.

    PYTHONPATH=src python benchmarks/verify_speed.py [--only NAME,...] [--profile]

The customary check is KernelBench's: five draws of the problem's own inputs, reference and candidate on the device in
one process, ``allclose`` at 1e-2. Both sides are warm: kernels compiled, processes started. Cold is the wall time of
the first verification of a candidate, compiling and the start of its process included; the process with torch and
Triton that all candidates are forked from is started once, and its time printed first. Prints a line a problem.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from verify_problems import write

from kcontract.dynamic.problems.kernelbench import load
from kcontract.dynamic.sandbox.candidate import Candidate
from kcontract.dynamic.verify import verify


def customary(path: Path) -> float:
    """Seconds of the customary check, kernels already compiled."""
    spec = importlib.util.spec_from_file_location("problem", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    reference, candidate = module.Model().cuda(), module.ModelNew().cuda()

    def check(draws: int) -> None:
        for k in range(draws):
            torch.manual_seed(k)
            inputs = [x.cuda() for x in module.get_inputs()]
            with torch.no_grad():
                assert torch.allclose(candidate(*inputs), reference(*inputs), rtol=1e-2, atol=1e-2)
            torch.cuda.synchronize()

    check(1)
    start = time.perf_counter()
    check(5)
    return time.perf_counter() - start


def main() -> None:
    """Print the table and the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--profile", action="store_true", help="seconds a gate")
    parser.add_argument("--out", help="JSON file for the figures")
    args = parser.parse_args()
    rows, gates = [], defaultdict(list)
    print(f"{'problem':22} {'custom s':>8} {'all s':>7} {'ratio':>6} {'floor s':>8} {'ratio':>6} {'cold s':>7}  failed")
    with tempfile.TemporaryDirectory() as folder:
        paths = [p for p in write(Path(folder)) if not args.only or p.stem in args.only.split(",")]
        start = time.perf_counter()
        with Candidate(load(str(paths[0])).candidate, "gpu") as candidate:
            candidate.start()
        print(f"start of the warm process: {time.perf_counter() - start:.1f} s", flush=True)
        for path in paths:
            plain = customary(path)
            problem = load(str(path))
            start = time.perf_counter()
            with Candidate(problem.candidate, "gpu", init=problem.init) as candidate:
                verify(problem, candidate=candidate)
                first = time.perf_counter() - start
                told: list[tuple[float, str]] = []
                start = time.perf_counter()
                note = lambda text, told=told: told.append((time.perf_counter(), text.split()[0]))  # noqa: E731
                result = verify(problem, candidate=candidate, progress=note)
                every = time.perf_counter() - start
                told = [(start, "start"), *told, (start + every, "end")]
                for (a, name), (b, _) in itertools.pairwise(told):
                    gates[name].append(b - a)
                start = time.perf_counter()
                verify(problem, candidate=candidate, floor=True)
                floor = time.perf_counter() - start
            failed = [f"{v.gate}: {v.reason}" for v in result.report.verdicts if v.status.value in ("FAIL", "ERROR")]
            row: dict[str, Any] = {"problem": path.stem, "customary": plain, "all": every, "floor": floor}
            rows.append({**row, "cold": first, "failed": failed})
            print(
                f"{path.stem:22} {plain:8.3f} {every:7.3f} {every / plain:6.2f} {floor:8.3f} {floor / plain:6.2f} "
                f"{first:7.2f}  {'; '.join(failed)}",
                flush=True,
            )
    for name in ("all", "floor"):
        seconds = statistics.median(r[name] for r in rows)
        ratio = statistics.median(r[name] / r["customary"] for r in rows)
        print(f"median {name}: {seconds:.3f} s, {ratio:.2f} of the customary check")
    if args.profile:
        for name, values in sorted(gates.items(), key=lambda item: -sum(item[1])):
            print(f"  {name:10} {sum(values) / len(rows):7.3f} s a problem, {len(values) / len(rows):.0f} steps")
    if args.out:
        Path(args.out).write_text(json.dumps({"device": torch.cuda.get_device_name(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
