"""The oracle's bound against honest runs and precision faults, beside the customary tolerances.

`--part ops|other|modules|faults|probe|cost|overhead` runs one part, `--full` all of them at full size.
Honest operations and modules marked held out, and all seeds from 1000 on, took no part in tuning a rule.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
import bounds_eager as eager
import bounds_ops as ops

from kcontract.dynamic import inputs as gen
from kcontract.dynamic import oracle

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
OTHER = {"fp64": torch.float64, "e4m3fn": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
SIZES = (64, 512, 4096)
SUITE = (
    "normal",
    "signs",
    "cancelling",
    "wide",
    "large_mean",
    "tiny_scale",
    "spike_first",
    "spike_last",
    "sparse",
    "shifted",
    "steep",
    "peaked",
)
HONEST = (*SUITE, "uniform", "ascending", "alternating", "constant_rows", "zeros", "huge", "small")


@dataclass
class Tally:
    """Honest runs so far: alarms by rule, required λ, and error over bound."""

    runs: int = 0
    alarms: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    required: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    worst: list[tuple[float, str]] = field(default_factory=list)
    undetermined: int = 0
    elements: int = 0
    by_case: dict[str, float] = field(default_factory=dict)

    def add(
        self,
        label: str,
        group: str,
        results: list[Any],
        expected: list[Any],
        found: list[Any],
        n: int,
        plain: list[Any],
    ) -> None:
        """One candidate: all its outputs together are one run."""
        self.runs += 1
        if not all(r.ok for r in results):
            self.alarms["oracle"] += 1
            bad = next(r for r in results if not r.ok)
            self.worst.append(
                (
                    bad.required,
                    f"ALARM {label} {bad.output} {bad.reason} ratio {bad.ratio:.3g} {bad.index} "
                    f"found {bad.found} wanted {bad.wanted} allowed {bad.allowed}",
                )
            )
        need = max(r.required for r in results)
        self.required.append(need)
        self.by_case[group] = max(self.by_case.get(group, 0.0), need)
        self.ratios.append(max(r.ratio for r in results))
        for e in expected:
            self.undetermined += int(e.undetermined.sum())
            self.elements += e.value.numel()
        for rule, ok in customary(found, plain, n).items():
            self.alarms[rule] += not ok

    def take(self, other: Tally) -> None:
        """Add what another process counted."""
        self.runs += other.runs
        self.undetermined += other.undetermined
        self.elements += other.elements
        self.required += other.required
        self.ratios += other.ratios
        self.worst += other.worst
        for rule, count in other.alarms.items():
            self.alarms[rule] += count
        for case, value in other.by_case.items():
            self.by_case[case] = max(self.by_case.get(case, 0.0), value)


def customary(found: list[Any], reference: list[Any], n: int) -> dict[str, bool]:
    """Would the customary tolerances accept these outputs (against the eager float32 result in the output dtype)?"""
    verdicts = {"allclose 1e-2": True, "KernelBench": True, "4·eps·sqrt N": True}
    for a, b in zip(found, reference, strict=True):
        if not a.is_floating_point():
            continue
        tight = 1e-4 if a.dtype is torch.float32 else 1e-2
        root = 4 * torch.finfo(a.dtype).eps * n**0.5
        for rule, tol in zip(verdicts, (1e-2, tight, root), strict=True):
            verdicts[rule] &= bool(torch.allclose(a.float(), b.float(), rtol=tol, atol=tol, equal_nan=True))
    return verdicts


def expect(what: ops.Op, tensors: list[Any], seed: int, out: Any = None) -> tuple[list[Any], Any, list[Any]]:
    """Bounded outputs in ``out`` (or gradients), the upstream gradient, and eager results in the output dtype."""
    dtype = tensors[0].dtype
    model = oracle.choose(None, str(dtype)[6:])
    told = oracle.run(what.reference, tensors, model=model, out_dtype=out, grads=what.grads, seed=seed)
    real = torch.promote_types(dtype, torch.float32) if dtype.itemsize > 1 else torch.float32
    wide = [t.detach().to(real).requires_grad_(t.requires_grad) if t.is_floating_point() else t for t in tensors]
    with torch.set_grad_enabled(what.grads):
        result = what.reference(*wide)
    if not what.grads:
        return list(told.outputs), None, [result.to(told.outputs[0].dtype)]
    plain = torch.autograd.grad(result, wide, told.upstream[0].to(real))
    return list(told.grads.values()), told.upstream[0], [g.to(tensors[0].dtype) for g in plain]


def check(found: list[Any], expected: list[Any]) -> list[Any]:
    """Each output compared."""
    return [oracle.compare(f, e) for f, e in zip(found, expected, strict=True)]


def honest_ops(
    tally: Tally, seeds: range, sizes: tuple[int, ...], held_out: bool | None, dtypes: dict[str, Any]
) -> None:
    """Hand-written candidates in every order, on every kind of input. 8-bit inputs give float32 on odd seeds."""
    for what in ops.ALL:
        if held_out is not None and what.held_out is not held_out:
            continue
        for name, dtype in dtypes.items():
            for n in sizes:
                for seed in seeds:
                    kind = HONEST[seed % len(HONEST)]
                    tensors = ops.make(what, n, dtype, kind, seed)
                    out = torch.float32 if dtype.itemsize == 1 and seed % 2 and not what.grads else None
                    expected, upstream, plain = expect(what, tensors, seed, out)
                    orders = list(ops.honest(seed))
                    if what.name.endswith("welford"):
                        orders = [o for o in orders if o.order in ("sequential", "permuted")]
                    for way in orders:
                        found = ops.run(what, way, tensors, upstream, out)
                        tally.add(
                            f"{what.name} {name} N={n} {kind} seed {seed} {way.order}", f"{what.name}/{name}/{n}",
                            check(found, expected), expected, found, n, plain,
                        )  # fmt: skip


def faults(sizes: tuple[int, ...], seeds: range) -> dict[str, dict[str, list[int]]]:
    """Faults found by the suite, by dtype and rule: [found, all]; a fault no input shows at all is not counted.

    Every rule gets the same inputs: the suite for one seed after another, until the oracle has found the fault.
    """
    table: dict[str, dict[str, list[int]]] = {}
    missed: list[str] = []
    for name, dtype in DTYPES.items():
        rules = table[name] = {r: [0, 0] for r in ("oracle", "allclose 1e-2", "KernelBench", "4·eps·sqrt N")}
        for what in ops.ALL:
            for n in sizes:
                suites: dict[int, list[Any]] = {}

                def suite(
                    seed: int, what: ops.Op = what, n: int = n, dtype: Any = dtype, made: Any = suites
                ) -> list[Any]:
                    if seed not in made:
                        drawn = [ops.make(what, n, dtype, kind, seed) for kind in SUITE]
                        made[seed] = [(t, *expect(what, t, seed)) for t in drawn]
                    return made[seed]  # type: ignore[no-any-return]

                for way in ops.faults(what, dtype):
                    caught = dict.fromkeys(rules, False)
                    differs = False
                    for seed in seeds:
                        for tensors, expected, upstream, plain in suite(seed):
                            found = ops.run(what, way, tensors, upstream)
                            right = ops.run(what, ops.Arithmetic("pairwise"), tensors, upstream)
                            differs |= any(not torch.equal(a, b) for a, b in zip(found, right, strict=True))
                            caught["oracle"] |= not all(r.ok for r in check(found, expected))
                            for rule, ok in customary(found, plain, n).items():
                                caught[rule] |= not ok
                        if caught["oracle"]:
                            break
                    if not differs:
                        continue
                    for rule, hit in caught.items():
                        rules[rule][0] += hit
                        rules[rule][1] += 1
                    if not caught["oracle"]:
                        missed.append(f"{what.name} {name} N={n} {way.fault}")
    for line in missed:
        print("missed:", line)
    return table


def probes(sizes: tuple[int, ...], seeds: range) -> dict[str, list[int]]:
    """The lattice probe: [alarms on honest, honest checks, faults found, faults]."""
    count = {"honest alarms": 0, "honest checks": 0, "found": 0, "faults": 0}
    for dtype in (torch.float16, torch.bfloat16):
        for n in sizes:
            for name in ("sum", "mean", "matmul"):
                for seed in seeds:
                    p = gen.probe(name, n, dtype, seed, out_dtype=torch.float32 if seed % 2 else dtype)
                    what = next(o for o in ops.ALL if o.name == name)
                    arrays = [t.float().numpy() for t in p.inputs]
                    for way in ops.honest(seed):
                        out = torch.from_numpy(np.ascontiguousarray(what.candidate(way, *arrays))).to(p.wanted.dtype)
                        count["honest checks"] += 1
                        count["honest alarms"] += bool(p.wrong(out).any())
                    for fault in ops.SUM_FAULTS if seed < 3 else ():
                        out = torch.from_numpy(what.candidate(ops.Arithmetic("", fault, dtype), *arrays)).to(
                            p.wanted.dtype
                        )
                        count["faults"] += 1
                        hit = bool(p.wrong(out).any())
                        count["found"] += hit
                        if not hit:
                            print("probe missed:", name, dtype, n, fault, seed)
    return count


def one_seed(part: str, seed: int, held_out: bool | None, dtypes: dict[str, Any], sizes: tuple[int, ...]) -> Any:
    """Honest operations or modules of one seed: the tally, and the operations that were only estimated."""
    torch.set_num_threads(1)
    tally = Tally()
    if part == "ops":
        honest_ops(tally, range(seed, seed + 1), sizes, held_out, dtypes)
        return tally, []
    return tally, eager.runs(tally, range(seed, seed + 1), bool(held_out), dtypes)


def sweep(
    title: str, part: str, seeds: range, held_out: bool | None, dtypes: dict[str, Any], sizes: tuple[int, ...],
    jobs: int, figures: dict[str, Any],
) -> None:  # fmt: skip
    """Every seed, in ``jobs`` processes; prints the tally and keeps its figures."""
    start, tally, estimated = time.perf_counter(), Tally(), set()
    asked = [(part, seed, held_out, dtypes, sizes) for seed in seeds]
    if jobs > 1:
        with multiprocessing.get_context("spawn").Pool(jobs) as pool:
            done = pool.starmap(one_seed, asked, chunksize=1)
    else:
        done = [one_seed(*a) for a in asked]
    for found, names in done:
        tally.take(found)
        estimated.update(names)
    print(f"[{title}: {time.perf_counter() - start:.0f} s]")
    show(title, tally)
    if part == "modules":
        print("  estimated operations:", ", ".join(sorted(estimated)) or "none")
    figures[title] = {
        "runs": tally.runs,
        "alarms": dict(tally.alarms),
        "required": max(tally.required),
        "median": float(np.median(tally.ratios)),
        "required by case": dict(sorted(tally.by_case.items(), key=lambda c: -c[1])[:12]),
        "seeds": [seeds.start, seeds.stop],
    }


def show(title: str, tally: Tally) -> None:
    """One honest tally as a few ratio lines."""
    if not tally.runs:
        return
    need = np.array(tally.required)
    edges = [0, 0.5, 1, 1.5, 2, 3, 4, 6, 8, np.inf]
    histogram = np.histogram(need, edges)[0]
    print(
        f"{title}: {tally.runs} honest runs, {tally.alarms['oracle']} false alarms "
        f"(rate <= {3 / tally.runs:.1e} at 95 % if none)"
    )
    for rule in ("allclose 1e-2", "KernelBench", "4·eps·sqrt N"):
        print(f"  {rule}: {tally.alarms[rule]} of {tally.runs} alarm")
    print(
        f"  median error/bound {np.median(tally.ratios):.3f}; required λ p50 {np.median(need):.2f} "
        f"p99 {np.quantile(need, 0.99):.2f} max {need.max():.2f}"
    )
    print("  required λ histogram " + " ".join(f"<{b}:{c}" for b, c in zip(edges[1:], histogram, strict=True)))
    print(f"  undetermined elements {tally.undetermined} of {tally.elements}")
    for _, line in sorted(tally.worst, reverse=True)[:12]:
        print("  " + line)
    for case, value in sorted(tally.by_case.items(), key=lambda c: -c[1])[:5]:
        print(f"  most λ: {case} {value:.2f}")


def timed(name: str, part: Callable[[], Any]) -> Any:
    """Run a part and print how long it took."""
    start = time.perf_counter()
    found = part()
    print(f"[{name}: {time.perf_counter() - start:.0f} s]")
    return found


def main() -> None:
    """Print the tables; ``--json`` also writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="all parts at full size (about a quarter of an hour)")
    parser.add_argument(
        "--part", default="", help="ops, other (float64, float8), modules, faults, probe, cost or overhead"
    )
    parser.add_argument("--seeds", type=int, default=0, help="seeds a case (default 2; 6 with --full)")
    parser.add_argument("--first", type=int, default=1000, help="the first seed; those below 1000 were used in tuning")
    parser.add_argument("--least", type=float, default=0.03, help="seconds a plain run must take to measure its cost")
    parser.add_argument("--only", default="", help="measure the cost of this module only")
    parser.add_argument("--jobs", type=int, default=1, help="processes for the honest sweeps")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    count = args.seeds or (6 if args.full else 2)
    seeds = range(args.first, args.first + count)
    figures: dict[str, Any] = {}

    def wants(part: str) -> bool:
        return args.part == part or not args.part

    for title, held in (("tuned", False), ("held out", True)):
        if wants("ops"):
            sweep(f"operations, {title}", "ops", seeds, held, DTYPES, (17, *SIZES), args.jobs, figures)
    if wants("other"):
        for name, dtype in OTHER.items():
            sweep(f"operations, {name}", "ops", seeds, None, {name: dtype}, (17, 64, 512), args.jobs, figures)
    for title, held in (("tuned", False), ("held out", True)):
        if wants("modules"):
            sweep(f"modules, {title}", "modules", seeds, held, DTYPES, (), args.jobs, figures)
    if wants("overhead"):
        rows = eager.overhead()
        for name, run, grads, compare in rows:
            print(f"overhead, {name}: run {run:.2f} ms, with gradients {grads:.2f} ms, compare {compare:.2f} ms")
        figures["overhead ms"] = {name: [round(v, 3) for v in values] for name, *values in rows}
    if wants("cost"):
        for title, backward in (("forward", False), ("forward and backward", True)):
            # each in a process of its own: how memory is looked at changes how the process allocates
            with multiprocessing.get_context("spawn").Pool(1) as alone:
                rows = timed("cost", lambda b=backward, p=alone: p.apply(eager.cost, (args.least, b, args.only)))
            for name, scale, ratio, seconds, memory in sorted(rows, key=lambda r: -r[2]):
                print(
                    f"cost {title}, {name} at scale {scale}: "
                    f"time {ratio:.1f}x ({1e3 * seconds:.0f} ms), memory {memory:.1f}x"
                )
            times, memories = (np.array([r[k] for r in rows]) for k in (2, 4))
            figures[f"cost {title}"] = {
                "median": float(np.median(times)),
                "p90": float(np.quantile(times, 0.9)),
                "memory": float(np.median(memories)),
                "memory p90": float(np.quantile(memories, 0.9)),
            }
            print(f"cost {title}: {figures[f'cost {title}']}")
    if wants("faults"):
        table = timed("faults", lambda: faults(SIZES, range(args.first, args.first + 3)))
        figures["faults"] = table
        for name, rules in table.items():
            print(f"faults {name}: " + "; ".join(f"{r} {a}/{b} = {100 * a / b:.1f} %" for r, (a, b) in rules.items()))
    if wants("probe"):
        figures["probe"] = timed("probe", lambda: probes((32, 64, 128, 512, 4096), range(45 if args.full else 8)))
        print("PRC-02 probe:", figures["probe"])
    if args.json:
        args.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
