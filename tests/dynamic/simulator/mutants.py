"""Runs damaged PTX in the simulator and says how each run ended.

    python tests/dynamic/simulator/mutants.py [--count 2000] [--seed 0]

Real launches are made once; a mutant is the PTX of one of them with one to three tokens or lines deleted, replaced or
doubled, launched on the same buffers, every other one in checked mode. It may run, or end in one sentence that names a
line of the PTX. Anything else is a defect: another exception, a sentence without a line, or more than ``SECONDS`` of
processor time.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

SECONDS = 20.0
_TOKEN = re.compile(r"[%$@!.\w]+|[\[\]{}(),;:+\-|<>]")
_NUMBERS = ("0", "-1", "1", "3", "64", "255", "65536", "2147483648", "18446744073709551615", "0f7FC00000")
#: How a run may end well.
GOOD = ("ran", "fault", "refused")


class Alarm(BaseException):
    """A mutant took more than ``SECONDS``."""


@dataclass(frozen=True)
class Seed:
    """One real launch: its PTX without debug sections, and what it was launched with."""

    name: str
    text: str
    grid: Any


def launches() -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Name, target and call of each launch."""
    import simulated_kernels as K
    import torch

    x, y, o = torch.randn(300), torch.randn(300), torch.zeros(512)
    h = [torch.randn(64, 64).half() for _ in range(3)]
    f = torch.zeros(64, 64)
    a, b, c = torch.randn(128, 64).half(), torch.randn(64, 64).half(), torch.zeros(128, 64).half()
    for target in ("sm_80", "sm_90", "sm_100"):
        yield "add", target, lambda: K.add[(2,)](x, y, o, 300, BLOCK=256, num_warps=2)
        yield "softmax", target, lambda: K.softmax[(2,)](x, o, 100, 128, BLOCK=128, num_warps=2)
        yield "atomics", target, lambda: K.float_atomics[(2,)](h[0], o, 300, BLOCK=256, num_warps=2)
        yield (
            "matmul",
            target,
            lambda: K.matmul[(1, 1)](h[0], h[1], f, 64, 64, 64, BM=64, BN=64, BK=32, STAGES=2, TRANS=False),
        )
    for target in ("sm_90", "sm_100"):
        for specialise in (False, True):
            yield (
                f"tma matmul {specialise}",
                target,
                lambda specialise=specialise: K.tma_matmul[(1, 1)](
                    a, b, c, 128, 64, 64, BM=128, BN=64, BK=32, SPECIALISE=specialise
                ),
            )


def seeds() -> list[Seed]:
    """Make the launches. Their tensors live as long as the seeds."""
    import torch
    import triton

    from kcontract.dynamic.engines.simulator.driver import simulate

    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8))
    made: list[Seed] = []
    for name, target, call in launches():
        with simulate(target) as driver:
            call()
            assert driver.last is not None
            text = driver.last.kernel.function.source.text.partition("\n\t.section")[0]
            made.append(Seed(f"{name} {target}", text, driver.last))
        kept.append(call)
    return made


kept: list[Callable[[], Any]] = []


def mutate(rng: random.Random, text: str) -> str:
    """The text after one to three changes of a token or a line of its functions."""
    lines = text.split("\n")
    first = next(k for k, line in enumerate(lines) if ".entry" in line)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(first, len(lines))
        way = rng.randrange(8)
        if way == 0:
            del lines[at]
        elif way == 1:
            lines.insert(rng.randrange(first, len(lines)), lines[at])
        elif way == 2:
            lines[at] = lines[rng.randrange(first, len(lines))]
        else:
            tokens = list(_TOKEN.finditer(lines[at]))
            donors = _TOKEN.findall(lines[rng.randrange(first, len(lines))])
            if tokens:
                token = rng.choice(tokens)
                others = (token[0] * 2, rng.choice(_NUMBERS), "", *donors)
                new = token[0] + " " + token[0] if way == 3 else rng.choice(others)
                lines[at] = lines[at][: token.start()] + new + lines[at][token.end() :]
    return "\n".join(lines)


def make(seed: int, index: int, all_seeds: list[Seed]) -> tuple[Seed, str, bool]:
    """The launch, the text and whether it is checked, of one mutant; the same for the same numbers."""
    rng = random.Random(f"{seed}:{index}")
    chosen = rng.choice(all_seeds)
    return chosen, mutate(rng, chosen.text), index % 2 == 1


def attempt(seed: Seed, text: str, checked: bool) -> str:
    """How the launch of a text ended: ``ran``, ``fault KIND``, ``refused``, or what is wrong with how it ended."""
    from kcontract.dynamic.engines.simulator import kernel as decoded
    from kcontract.dynamic.engines.simulator import memory
    from kcontract.dynamic.engines.simulator.engine import block_of
    from kcontract.dynamic.engines.simulator.faults import Fault
    from kcontract.dynamic.engines.simulator.launch import Grid
    from kcontract.dynamic.engines.simulator.options import Options
    from kcontract.errors import KContractError

    def ring(signum: int, frame: FrameType | None) -> None:
        raise Alarm

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        kernel = decoded.decode(text)
        old = seed.grid
        admitted = memory.Global()
        for region in old.memory.regions:
            admitted.add(region.name, region.start, region.size)
        block = block_of(kernel.function.directives.get("reqntid") or old.block)
        shared = old.shared_bytes - old.kernel.shared_static
        options = Options(checked=checked, patience=0.3)
        Grid(kernel, old.extent, block, old.cluster, shared, admitted, bytearray(old.parameters), options).run()
        return "ran"
    except KContractError as error:
        message = str(error)
        if "\n" in message or len(message) > 1500:
            return f"not one sentence: {message[:100]!r}"
        if not re.search(r"PTX line \d+", message) and "holds no kernel" not in message:
            return f"no line: {message[:100]}"
        return f"fault {error.kind}" if isinstance(error, Fault) else "refused"
    except Alarm as error:
        return f"took over {SECONDS:.0f} s {_place(error)}"
    except BaseException as error:
        return f"{type(error).__name__} {_place(error)}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        decoded._KERNELS.clear()


def _place(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"in {Path(frame.filename).name}:{frame.lineno}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    outcomes: Counter[str] = Counter()
    by_seed: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        all_seeds = seeds()
        slowest = 0.0
        for index in range(options.count):
            seed, text, checked = make(options.seed, index, all_seeds)
            start = time.process_time()
            outcome = attempt(seed, text, checked)
            slowest = max(slowest, time.process_time() - start)
            outcomes[outcome] += 1
            by_seed[seed.name] += 1
            if not outcome.startswith(GOOD):
                print(f"{index} ({seed.name}): {outcome}", flush=True)
    for outcome, count in outcomes.most_common():
        print(f"{count:6} {outcome}")
    bad = sum(count for outcome, count in outcomes.items() if not outcome.startswith(GOOD))
    print(f"{options.count} mutants of {len(by_seed)} kernels, {bad} without an answer, slowest {slowest:.1f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
