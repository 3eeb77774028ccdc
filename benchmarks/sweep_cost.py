"""What all rules cost beside the compile, over every kernel of a sweep.

    python benchmarks/sweep_cost.py FOLDER [--manifest FILE] [--every N]

FOLDER is a Triton cache folder that ``python tests/sweep`` has filled. For each kernel one line: check time (reading
the files, the reader, all rules), the same without the rules that ask a solver, compile time, ratio. The bars are
max(5 ms, 2 %) of the compile at the median and max(15 ms, 5 %) at the 95th percentile for rules without a solver; the
solver may add 3 % of the compile.

With ``--manifest`` the compile times are those that the sweep noted (``TARGET.jsonl``), on whatever else the machine
did then. Without it every N-th kernel is compiled again here from its TTIR, so that both times come from one run; that
leaves out the front end, and all times are processor time, children's included.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

WORST = 10


@dataclass
class Cost:
    """One kernel's: seconds by rule (``reader``: files and TTGIR), seconds of its compile."""

    kernel: str
    entry: str
    compiled: float
    parts: dict[str, float] = field(default_factory=dict)

    def check(self, without: Iterable[str] = ()) -> float:
        """Seconds of all parts but those in ``without``."""
        return sum(seconds for name, seconds in self.parts.items() if name not in set(without))


def main() -> int:
    """Measure; returns 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--manifest", type=Path)
    parser.add_argument("--every", type=int, default=1, metavar="N")
    args = parser.parse_args()
    before = resident()
    seconds = noted(args.manifest) if args.manifest else None
    costs = []
    for cost in measured(args.folder, args.every, seconds):
        costs.append(cost)
        if len(costs) > 1:
            print(line(cost))
    first, *rest = costs  # the first one pays the imports
    print(f"\nfirst kernel, imports included: {1e3 * first.check():.0f} ms")
    missed = summary("all rules", rest, set(), share=(0.05, 0.08))
    missed |= summary("without solver", rest, solvers(), share=(0.02, 0.05))
    print(f"\nworst {WORST}:")
    for cost in sorted(rest, key=lambda cost: -over(cost.check(), cost.compiled, 0.005, 0.02))[:WORST]:
        print("  " + line(cost))
    whole: dict[str, list[float]] = defaultdict(list)
    for cost in rest:
        for name, spent in cost.parts.items():
            whole[name].append(spent)
    print("\nby rule (what several share is paid by the first that asks):")
    for name, times in sorted(whole.items(), key=lambda item: -sum(item[1])):
        print(f"  {name:28} {sum(times):7.2f} s  median {1e3 * statistics.median(times):6.2f} ms", end="")
        print(f"  p95 {1e3 * at(times, 0.95):7.2f} ms  most {1e3 * max(times):7.2f} ms")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"\nmemory: {before:.0f} MiB resident at the start, {resident():.0f} at the end, peak {peak:.0f} MiB")
    return int(missed)


def measured(folder: Path, every: int, seconds: dict[str, float] | None) -> Iterator[Cost]:
    """Each kernel's cost. Kernels that the manifest does not name are left out."""
    from kcontract.ir.loaders import Problem, load_cache
    from kcontract.passes.base import Facts, rules

    if seconds is None:
        import triton  # noqa: F401 (its import is no part of a compile)
    number = 0
    entries = sorted(entry for entry in folder.iterdir() if entry.is_dir() and any(entry.glob("*.ttgir")))
    for entry in entries:
        if seconds is not None and entry.name not in seconds:
            continue
        if seconds is None and not any(entry.glob("*.ttir")):  # Gluon keeps none, so it cannot be compiled again
            continue
        number += 1
        if number % every:
            continue
        begin = time.process_time()
        found = next(item for item in load_cache(entry) if not isinstance(item, Problem))
        assert found.module is not None
        cost = Cost(found.kernel, entry.name, 0.0, {"reader": time.process_time() - begin})
        facts = Facts(found)
        for rule in rules():
            begin = time.process_time()
            list(rule.check(found, facts))
            cost.parts[rule.slug] = time.process_time() - begin
        cost.compiled = seconds[entry.name] if seconds is not None else compile_again(found.origin, found.metadata)
        yield cost


def compile_again(origin: str, metadata: object) -> float:
    """Processor seconds of one compile from TTIR, in this process and its children."""
    import triton
    from triton.backends.compiler import GPUTarget

    from kcontract.dynamic.engines.recompile import OPTIONS

    assert isinstance(metadata, dict)
    options = {name: metadata[name] for name in OPTIONS if metadata.get(name) is not None}
    target = GPUTarget("cuda", metadata["target"]["arch"], 32)
    with tempfile.TemporaryDirectory() as cache, triton.knobs.cache.scope():
        triton.knobs.cache.dir = cache
        begin = os.times()
        triton.compile(f"{origin}.ttir", target=target, options=options)
        end = os.times()
    return sum(end[:4]) - sum(begin[:4])


def noted(manifest: Path) -> dict[str, float]:
    """Seconds of each compile by the folder's name."""
    records = map(json.loads, manifest.read_text().splitlines())
    return {record["entry"]: record["seconds"] for record in records if record.get("kind") == "compile"}


def solvers() -> set[str]:
    """Rules that may ask z3."""
    return {"unordered-float-atomic", "unorderable-combine"}


def over(spent: float, compiled: float, floor: float, share: float) -> float:
    """Seconds as a multiple of max(floor, share of the compile)."""
    return spent / max(floor, share * compiled)


def at(values: Iterable[float], part: float) -> float:
    """A quantile: the smallest value that ``part`` of all are not above."""
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


def summary(name: str, costs: list[Cost], without: set[str], share: tuple[float, float]) -> bool:
    """Print one line; whether a bar is missed."""
    ratios = [cost.check(without) / cost.compiled for cost in costs]
    bars = [
        [over(cost.check(without), cost.compiled, floor, part) for cost in costs]
        for floor, part in zip((0.005, 0.015), share, strict=True)
    ]
    median, tail = statistics.median(bars[0]), at(bars[1], 0.95)
    times = [cost.check(without) for cost in costs]
    print(
        f"{name}: {len(costs)} kernels, check / compile median {statistics.median(ratios):.4f}, p95 "
        f"{at(ratios, 0.95):.4f}, max {max(ratios):.4f}; check median {1e3 * statistics.median(times):.1f} ms, p95 "
        f"{1e3 * at(times, 0.95):.1f} ms, max {1e3 * max(times):.1f} ms; of the bar: median {median:.2f} of max(5 ms, "
        f"{share[0]:.0%}), p95 {tail:.2f} of max(15 ms, {share[1]:.0%})"
    )
    return median > 1 or tail > 1


def line(cost: Cost) -> str:
    """One kernel."""
    spent, plain = 1e3 * cost.check(), 1e3 * cost.check(solvers())
    dearest = max(cost.parts, key=cost.parts.__getitem__)
    figures = f"check {spent:7.2f} ms  without solver {plain:7.2f} ms  compile {1e3 * cost.compiled:8.1f} ms"
    return f"{cost.kernel[:44]:44} {figures}  ratio {spent / 1e3 / cost.compiled:.4f}  {dearest}"


def resident() -> float:
    """MiB of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


if __name__ == "__main__":
    sys.exit(main())
