"""Feeds mutated compiler output to every reader and counts what is not an answer.

    python tests/fuzz/run.py [--count 1000000] [--workers 2] [--seed 0] [--keep build/fuzz] [--replay FILE]

Seeds are compiled by the Triton that is installed. Each input runs in a worker of at most 512 MB with an alarm after
two seconds of processor time. A fault is any exception but ``InputError``, the alarm, or the death of a worker; its
input is kept as ``READER-INDEX`` and the exit status is 1. ``--replay build/fuzz/ptx-123`` shows the traceback of one.
Ctrl-C stops early and reports what was done.
"""

import argparse
import multiprocessing
import os
import queue
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent)]

MEMORY, ALARM, STUCK = 512 * 2**20, 2.0, 20.0
#: How often each reader's turn comes.
SHARES = {"ttgir": 30, "ptx": 30, "json": 15, "cubin": 20, "cache": 5}
_WINDOW = 4000


class Alarm(BaseException):
    """An input took more than ``ALARM`` seconds of processor time, which a busy machine does not stretch."""


def write_seeds(folder: Path) -> None:
    """Compiles kernels and writes one file a seed, named READER-NUMBER."""
    import compiled
    from exercise import pack

    kernels = [compiled.add_for(75), compiled.sincos_for(80, block=128), compiled.inlined_for(90)]
    kernels += [compiled.matmul_for(target, block=64, inner=32) for target in (80, 90, 100)]
    kernels += [compiled.calling_for(80), compiled.specialized_for(100)]
    for number, kernel in enumerate(kernels):
        texts = {kind: kernel.asm[kind] for kind in ("ttgir", "ptx", "cubin")}
        parts = {kind: text if isinstance(text, bytes) else text.encode() for kind, text in texts.items()}
        metadata = Path(next(path for name, path in kernel.metadata_group.items() if name.endswith(".json")))
        parts["json"] = metadata.with_name(metadata.name.removeprefix("__grp__")).read_bytes()
        name = kernel.metadata.name
        parts["cache"] = pack({f"{name}.{kind}": body[:20_000] for kind, body in parts.items()})
        for kind, body in parts.items():
            (folder / f"{kind}-{number}").write_bytes(body)


def read_seeds(folder: Path) -> dict[str, list[bytes]]:
    """Seeds by reader."""
    seeds: dict[str, list[bytes]] = {reader: [] for reader in SHARES}
    for path in sorted(folder.iterdir()):
        seeds[path.name.partition("-")[0]].append(path.read_bytes())
    assert all(seeds.values()), "a reader has no seed"
    return seeds


def shortened(rng: random.Random, text: bytes) -> bytes:
    """A text of about ``_WINDOW`` bytes: without debug sections and without some lines of the middle."""
    text = text.partition(b"\n\t.section")[0]
    lines = text.split(b"\n")
    if len(text) > _WINDOW:
        kept = len(lines) * _WINDOW // len(text)
        head, tail = kept // 3, kept // 6
        middle = rng.randrange(head, max(head + 1, len(lines) - tail - kept // 2))
        lines = lines[:head] + lines[middle : middle + kept // 2] + lines[-tail:]
    return b"\n".join(lines)


def make(seed: int, index: int, seeds: dict[str, list[bytes]]) -> tuple[str, bytes]:
    """The reader and the input of one index; the same for the same seeds."""
    from mutations import mutate

    rng = random.Random(f"{seed}:{index}")
    (reader,) = rng.choices(list(SHARES), weights=list(SHARES.values()))
    content = rng.choice(seeds[reader])
    if (reader == "ptx" and rng.random() < 0.95) or (reader == "ttgir" and len(content) > 2 * _WINDOW):
        content = shortened(rng, content)
    return reader, mutate(rng, content, seeds[reader])


def attempt(reader: str, content: bytes) -> tuple[str, float]:
    """What one input led to ("accepted", "refused", or a fault in words), and the processor seconds it took."""
    from exercise import accepted

    def ring(signum: int, frame: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGPROF, ring)
    started = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, ALARM)
    try:
        outcome = "accepted" if accepted(reader, content) else "refused"
    except Alarm as error:
        outcome = f"took over {ALARM:.0f} s {_place(error)}"
    except Exception as error:
        outcome = f"{type(error).__name__} {_place(error)}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return outcome, time.process_time() - started


def _place(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f"{os.sep}tests{os.sep}" not in f.filename]
    return f"in {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "in the driver"


def work(number, options, indices, current, results) -> None:
    """A worker: examines indices and reports once a second and at each fault."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    seeds = read_seeds(Path(options["seeds"]))
    outcomes: Counter[tuple[str, str]] = Counter()
    slowest, told = (0.0, "", -1), time.perf_counter()
    for index in indices:
        current[number] = index
        reader, content = make(options["seed"], index, seeds)
        outcome, seconds = attempt(reader, content)
        outcomes[reader, outcome] += 1
        slowest = max(slowest, (seconds, reader, index))
        if outcome not in ("accepted", "refused"):
            keep(options["keep"], reader, index, content)
        if time.perf_counter() - told > 1 or index == indices[-1]:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            results.put((number, outcomes, slowest, peak))
            outcomes, told = Counter(), time.perf_counter()
    results.close()
    results.join_thread()


def keep(folder: str, reader: str, index: int, content: bytes) -> None:
    """Writes one faulty input down."""
    os.makedirs(folder, exist_ok=True)
    (Path(folder) / f"{reader}-{index}").write_bytes(content)


class Run:
    """The parent: starts workers, gathers their reports, replaces those that die or hang."""

    def __init__(self, options: dict, count: int, workers: int) -> None:
        self.options, self.count = options, count
        self.context = multiprocessing.get_context("spawn")
        self.current = self.context.Array("q", [-1] * workers, lock=False)
        self.results = self.context.Queue()
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.slowest, self.peak = (0.0, "", -1), 0
        self.shares = [range(number, count, workers) for number in range(workers)]
        self.seen = [(-1, time.monotonic())] * workers
        self.workers = [self.start(number, share) for number, share in enumerate(self.shares)]

    def start(self, number: int, indices: range):
        arguments = (number, self.options, indices, self.current, self.results)
        worker = self.context.Process(target=work, args=arguments, daemon=True)
        worker.start()
        return worker

    def gather(self, wait: float) -> None:
        try:
            while True:
                _, outcomes, slowest, peak = self.results.get(timeout=wait)
                self.outcomes += outcomes
                self.slowest, self.peak = max(self.slowest, slowest), max(self.peak, peak)
        except queue.Empty:
            pass

    def watch(self) -> bool:
        """Whether any worker is still at it."""
        busy = False
        for number, worker in enumerate(self.workers):
            index, since = self.seen[number]
            if self.current[number] != index:
                self.seen[number] = (self.current[number], time.monotonic())
            if worker.exitcode == 0:
                continue
            busy = True
            hung = index >= 0 and self.current[number] == index and time.monotonic() - since > STUCK
            if worker.exitcode is not None or hung:
                self.replace(number, "hung" if hung else f"died with {worker.exitcode}")
        return busy

    def replace(self, number: int, reason: str) -> None:
        self.workers[number].kill()
        index = self.current[number]
        if index < 0:
            raise SystemExit(f"a worker {reason} before its first input")
        reader, content = make(self.options["seed"], index, read_seeds(Path(self.options["seeds"])))
        self.outcomes[reader, f"worker {reason}"] += 1
        keep(self.options["keep"], reader, index, content)
        rest = self.shares[number]
        self.shares[number] = rest[rest.index(index) + 1 :]
        self.seen[number] = (-1, time.monotonic())
        self.current[number] = -1
        self.workers[number] = self.start(number, self.shares[number])

    def stop(self) -> None:
        for worker in self.workers:
            worker.kill()

    def faults(self) -> int:
        return sum(n for (_, outcome), n in self.outcomes.items() if outcome not in ("accepted", "refused"))

    def report(self, seconds: float) -> None:
        done = sum(self.outcomes.values())
        print(f"\n{done} inputs in {seconds:.0f} s ({done / max(seconds, 0.001):.0f} a second), {self.faults()} faults")
        for reader in SHARES:
            mine = {outcome: n for (name, outcome), n in self.outcomes.items() if name == reader}
            print(f"  {reader:6}" + "".join(f"  {outcome}: {n}" for outcome, n in sorted(mine.items())))
        print(f"  slowest {self.slowest[0]:.3f} s ({self.slowest[1]}, index {self.slowest[2]}); ", end="")
        print(f"peak memory of a worker {self.peak / 2**20:.0f} MiB")
        if self.faults():
            print(f"  the inputs are in {self.options['keep']}")


def main(arguments: list[str] | None = None) -> int:
    """Run it; returns 1 where a fault was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", default=str(ROOT / "build" / "fuzz"))
    parser.add_argument("--replay", metavar="FILE")
    parser.add_argument("--write-seeds", metavar="FOLDER", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.write_seeds:
        write_seeds(Path(args.write_seeds))
        return 0
    if args.replay:
        from exercise import accepted

        path = Path(args.replay)
        print("accepted" if accepted(path.name.partition("-")[0], path.read_bytes()) else "refused")
        return 0
    with tempfile.TemporaryDirectory(prefix="kcontract-fuzz-") as folder:
        subprocess.run([sys.executable, __file__, "--write-seeds", folder], check=True)
        started = told = time.monotonic()
        run = Run({"seeds": folder, "seed": args.seed, "keep": args.keep}, args.count, args.workers)
        try:
            while run.watch():
                run.gather(0.2)
                if time.monotonic() - told > 10:
                    told = time.monotonic()
                    print(f"{sum(run.outcomes.values())} of {args.count}, {run.faults()} faults", flush=True)
        except KeyboardInterrupt:
            print("stopped")
        finally:
            run.stop()
            run.gather(0.2)
        run.report(time.monotonic() - started)
        return 1 if run.faults() else 0


if __name__ == "__main__":
    sys.exit(main())
