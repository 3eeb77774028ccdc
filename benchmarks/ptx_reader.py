"""How fast PTX and cubins are read, on what Triton makes of a few kernels.

    python benchmarks/ptx_reader.py [--targets 90,100] [--seconds 1]

One line a case: megabytes of PTX a second for the statements (``parse``), for statements and instruction objects, and
for all operands too; the first beside the bar of 5 MB/s. Then the cubin reader's milliseconds a kernel. Each figure is
the best of the repeats that fit the time.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable

BAR = 5.0


def best(work: Callable[[], object], seconds: float) -> float:
    """The shortest of the runs of ``work`` that fit ``seconds``, at least three, in CPU seconds."""
    shortest, end, runs = float("inf"), time.perf_counter() + seconds, 0
    while runs < 3 or time.perf_counter() < end:
        started = time.process_time_ns()
        work()
        shortest, runs = min(shortest, (time.process_time_ns() - started) / 1e9), runs + 1
    return shortest


def main() -> int:
    """Run it; returns 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default="90,100")
    parser.add_argument("--seconds", type=float, default=1.0)
    args = parser.parse_args()
    os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(prefix="kcontract-bench-")

    from compiled_cases import cases

    from kcontract.ir import cubin
    from kcontract.ir.ptx import parse

    missed = False
    for capability in map(int, args.targets.split(",")):
        for case in cases():
            kernel = case.compile(capability)
            text, binary = kernel.asm["ptx"], kernel.asm["cubin"]

            def instructions(text: str = text) -> None:
                for function in parse(text).functions:
                    _ = function.instructions

            def operands(text: str = text) -> None:
                for instruction in parse(text).instructions:
                    _ = instruction.operands

            share = args.seconds / 4
            rates = [len(text) / 1e6 / best(work, share) for work in (lambda t=text: parse(t), instructions, operands)]
            cubin_ms = best(lambda b=binary: cubin.read(b), share) * 1e3
            missed |= rates[0] < BAR
            print(
                f"{case.name} sm_{capability}: {len(text) / 1e3:.0f} kB of PTX at {rates[0]:.1f} MB/s "
                f"({rates[0] / BAR:.1f} x the bar), instructions too {rates[1]:.1f}, operands too {rates[2]:.1f}; "
                f"{len(binary) / 1e3:.0f} kB of cubin in {cubin_ms:.3f} ms",
                flush=True,
            )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
