"""What TRITON_KCONTRACT=1 adds to a compile: time spent in the hook beside the time of the compile itself.

    python benchmarks/static_overhead.py [--targets 90,100]

One process compiles every case of ``compiled_cases.py`` into a fresh cache under kcontract; each line is one kernel.
The bar is max(5 ms, 2 %) at the median and max(15 ms, 5 %) at the 95th percentile. The first kernel pays the imports
and is counted apart. With ``--memory N`` it compiles N distinct kernels and prints the resident size after 100 and
after N.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import sys
import tempfile
import time


def main() -> int:
    """Run it; returns 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default="90,100")
    parser.add_argument("--memory", type=int, default=0, metavar="N")
    args = parser.parse_args()
    os.environ.update(TRITON_KCONTRACT="1", TRITON_CACHE_DIR=tempfile.mkdtemp(prefix="kcontract-bench-"))

    started = time.perf_counter()
    from kcontract import _boot
    from kcontract.hook.observer import Observer

    imported = time.perf_counter() - started
    _boot.start()
    spent: list[float] = []
    inner = Observer.compiled

    def timed(self, **arguments):
        begin = time.perf_counter()
        try:
            return inner(self, **arguments)
        finally:
            spent.append(time.perf_counter() - begin)

    Observer.compiled = timed
    from compiled_cases import cases

    if args.memory:
        return memory(args.memory)
    rows = []
    for capability in map(int, args.targets.split(",")):
        for case in cases():
            before = len(spent)
            begin = time.perf_counter()
            case.compile(capability)
            whole = time.perf_counter() - begin
            assert len(spent) == before + 1, "the hook did not see the compile"
            rows.append((f"{case.name} sm_{capability}", whole - spent[-1], spent[-1]))
    first, *rest = rows
    print(f"first kernel: {1e3 * (imported + first[2]):.1f} ms added to {1e3 * first[1]:.0f} ms, imports included")
    for name, compile_time, added in rest:
        figures = f"compile {1e3 * compile_time:8.1f} ms  added {1e3 * added:6.2f} ms"
        print(f"{name:26} {figures}  ratio {added / compile_time:.4f}")
    over = [added / max(0.005, 0.02 * compile_time) for _, compile_time, added in rest]
    over_tail = sorted(added / max(0.015, 0.05 * compile_time) for _, compile_time, added in rest)
    ratios = sorted(added / compile_time for _, compile_time, added in rest)
    median, tail = statistics.median(over), over_tail[int(0.95 * len(over_tail))]
    ends = f"median {statistics.median(ratios):.4f}, p95 {ratios[int(0.95 * len(ratios))]:.4f}"
    print(f"{len(rest)} kernels: added / compile {ends}")
    print(f"of the bar: median {median:.2f} of max(5 ms, 2 %), p95 {tail:.2f} of max(15 ms, 5 %)")
    return int(median > 1 or tail > 1)


def memory(count: int) -> int:
    """Resident size after 100 and after ``count`` distinct kernels."""
    from compiled_cases import Case, add

    sizes = {}
    for number in range(1, count + 1):
        signature = {"x_ptr": "*fp32", "y_ptr": "*fp32", "out_ptr": "*fp32"}
        Case("add", add, signature, {"n": 1000 + number, "BLOCK": 128}).compile(90)
        if number in (100, count):
            sizes[number] = resident()
            print(f"after {number} kernels: {sizes[number] / 2**20:.1f} MiB resident")
    print(f"growth: {(sizes[count] - sizes[100]) / 2**20:.1f} MiB")
    return 0


def resident() -> int:
    """Resident bytes of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    sys.exit(main())
