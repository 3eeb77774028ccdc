"""Runs a program once a target under an engine and collects what was compiled, launched and found.

The program is started as it stands, with an environment that puts the engine into every Python process of it
(``site/sitecustomize.py``). Once a target, not once for all: programs choose tile sizes and even kernels by the device
they see. What it compiled is checked here, after it has ended, together with all its launches.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kcontract.dynamic.engines import devices, records
from kcontract.errors import UsageError
from kcontract.ir.launch import Fact, Launch
from kcontract.model import Report

#: More distinct launches of one specialisation than this are folded into one with ranges.
MOST_LAUNCHES = 64
#: Seconds the program is given to end after an interrupt.
_GRACE = 10.0

#: Set for the program. torch.compile and TorchScript would hide launches or refuse the shim's functions.
_SET = {"TORCHDYNAMO_DISABLE": "1", "PYTORCH_JIT": "0", "CUDA_VISIBLE_DEVICES": "", "TRITON_KCONTRACT": "0"}
#: Taken from it: they make Triton keep too little, or compile again what a child has compiled.
_UNSET = ("TRITON_STORE_BINARY_ONLY", "TRITON_ALWAYS_COMPILE")


@dataclass(frozen=True, slots=True)
class Failure:
    """One kernel that was not compiled, or that Triton refused to load because it is over a limit of the device.

    ``candidate`` says it was one configuration of an autotuner, which went on with the others; ``aborted`` that the
    compiler died of it. ``entry`` is its folder in the cache, where there is one.
    """

    kernel: str
    reason: str
    candidate: bool
    aborted: bool = False
    entry: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of the program for one target gave.

    ``status`` is the program's exit status, negative for a signal; ``sentences`` say what went wrong with it.
    ``cache`` holds what was compiled: ``compiled`` maps an entry of it to kernel and seconds, ``launches`` to the
    distinct launches. ``tuners`` maps an autotuner's kernel to its (offered, compiled) configurations.
    """

    target: str
    cache: Path
    status: int
    interrupted: bool
    triton: str | None
    sentences: tuple[str, ...]
    compiled: Mapping[str, tuple[str, float]]
    launches: Mapping[str, tuple[Launch, ...]]
    failures: tuple[Failure, ...]
    refused: tuple[Failure, ...]
    tuners: Mapping[str, tuple[int, int]]


def command_line(command: Sequence[str]) -> list[str]:
    """The command as it will be started. Raises ``UsageError`` for what cannot be run.

    A Python file is given to this Python, and a bare ``python`` means this Python.
    """
    if not command:
        raise UsageError("no program given; write it after --, as in: kcontract run -- python prog.py")
    first, *rest = command
    if first.endswith(".py"):
        first, rest = sys.executable, list(command)
    elif first in ("python", "python3"):
        first = sys.executable
    if shutil.which(first) is None:
        raise UsageError(f"{first}: no such program")
    if Path(first).name.startswith("python") and rest and not rest[0].startswith("-") and not Path(rest[0]).exists():
        raise UsageError(f"{rest[0]}: no such file")
    if os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "on", "true", "yes", "y"):
        raise UsageError("TRITON_INTERPRET is set: Triton's interpreter compiles nothing; unset it and run again")
    return [first, *rest]


def run(
    command: Sequence[str],
    target: str,
    folder: Path,
    *,
    engine: str = "compile",
    max_configs: int | None = None,
    shard: tuple[int, int] = (0, 1),
    stdout: Any = None,
) -> Run:
    """Run the program for ``target``; kernels are kept in ``folder/TARGET``, events in ``folder/TARGET.jsonl``.

    ``shard`` is (index from 0, number of shards). Raises ``UsageError`` for an unknown target or program.
    """
    name = devices.device(target).target.name
    cache, events = folder.absolute() / name, folder.absolute() / f"{name}.jsonl"
    cache.mkdir(parents=True, exist_ok=True)
    events.unlink(missing_ok=True)
    import kcontract

    package = Path(kcontract.__file__).parent
    settings = records.Settings(
        engine=engine,
        target=name,
        records=str(events),
        cache=str(cache),
        package=str(package),
        max_configs=max_configs,
        shard=shard[0],
        shards=shard[1],
    )
    environment = {key: value for key, value in os.environ.items() if key not in _UNSET}
    path = [str(Path(__file__).parent / "site"), *filter(None, [environment.get("PYTHONPATH")])]
    environment |= {
        **_SET,
        **settings.environment(),
        "TRITON_CACHE_DIR": str(cache),
        "PYTHONPATH": os.pathsep.join(path),
    }
    status, interrupted = _wait(subprocess.Popen(command_line(command), env=environment, stdout=stdout))
    return _collect(name, cache, events, status, interrupted, runs=engine != "compile")


def _wait(process: subprocess.Popen[bytes]) -> tuple[int, bool]:
    """Exit status, and whether an interrupt came while the program ran; the terminal sent it to the program too."""
    try:
        return process.wait(), False
    except KeyboardInterrupt:
        try:
            return process.wait(_GRACE), True
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.kill()
            return process.wait(), True


def check(found: Run, *, select: Iterable[str] = (), deep: bool = False) -> Iterator[Report | str]:
    """Check each specialisation with its launches: reports, and a sentence for what could not be read.

    A configuration that an autotuner tried and Triton refused is left out: it never runs.
    """
    from kcontract.ir.loaders import Problem, load_cache
    from kcontract.passes.base import check as check_artifact

    select = list(select)
    left_out = {failure.entry for failure in found.refused if failure.candidate}
    for entry in found.compiled:
        for artifact in load_cache(found.cache / entry) if entry not in left_out else ():
            if not isinstance(artifact, Problem):
                yield check_artifact(artifact, launches=found.launches.get(entry, ()), select=select, deep=deep)
            elif artifact.is_fault:  # else compiled for a GPU of another maker
                yield str(artifact)


def _collect(target: str, cache: Path, path: Path, status: int, interrupted: bool, *, runs: bool = False) -> Run:
    events: dict[str, list[dict[str, Any]]] = {}
    for event in records.read(path):
        events.setdefault(event["kind"], []).append(event)
    compiles = events.get("compile", [])
    entries = {event["hash"]: event["entry"] for event in compiles}
    launches: dict[str, dict[object, Launch]] = {}
    for event in (event for event in events.get("launch", []) if event["hash"] in entries):
        grid, values = tuple(event["grid"]), event["arguments"]
        facts = {name: Fact(value, value, abs(value) or 1) for name, value in values.items()}
        key = (grid, tuple(values.items()))
        launches.setdefault(entries[event["hash"]], {})[key] = Launch(grid, facts, target)
    refusals: dict[str, tuple[str, bool]] = {}
    for event in (event for event in events.get("refused", []) if event["hash"] in entries):
        reason, candidate = refusals.get(event["hash"], (event["error"], True))
        refusals[event["hash"]] = reason, candidate and event["candidate"]
    tuners: dict[str, tuple[int, int]] = {}
    for event in events.get("tuner", []):
        offered, compiled = tuners.get(event["kernel"], (0, 0))
        tuners[event["kernel"]] = max(offered, event["offered"]), max(compiled, event["compiled"])
    kernels = {event["entry"]: (event["kernel"], event["seconds"]) for event in reversed(compiles)}
    failures = [
        Failure(event["kernel"], event["error"], event["candidate"], event["aborted"])
        for event in events.get("failed", [])
    ]
    refused = [
        Failure(kernels[entries[key]][0], reason, candidate, entry=entries[key])
        for key, (reason, candidate) in refusals.items()
    ]
    return Run(
        target=target,
        cache=cache,
        status=status,
        interrupted=interrupted,
        triton=next((event["triton"] for event in events.get("process", [])), None),
        sentences=tuple(_sentences(status, interrupted, events, runs)),
        compiled=dict(reversed(kernels.items())),
        launches={entry: _folded(tuple(distinct.values())) for entry, distinct in launches.items()},
        failures=tuple(dict.fromkeys(failures)),
        refused=tuple(refused),
        tuners=tuners,
    )


def _folded(launches: tuple[Launch, ...]) -> tuple[Launch, ...]:
    """The launches, or one that covers them all when there are very many: largest grid, ranges, common divisors."""
    if len(launches) <= MOST_LAUNCHES:
        return launches
    values: dict[str, list[int]] = {}
    for launch in launches:
        for name, fact in launch.arguments.items():
            values.setdefault(name, []).append(fact.low)
    facts = {name: Fact(min(seen), max(seen), math.gcd(*seen) or 1) for name, seen in values.items()}
    x, y, z = (max(launch.grid[axis] for launch in launches) for axis in range(3))
    return (Launch((x, y, z), facts, launches[0].device),)


def _sentences(
    status: int, interrupted: bool, events: Mapping[str, Sequence[Mapping[str, Any]]], runs: bool
) -> Iterator[str]:
    processes, ended = events.get("process", ()), next(iter(reversed(events.get("failure", ()))), None)
    if interrupted:
        yield "interrupted: what was compiled until then follows"
    if any(event["interpreted"] for event in processes):
        yield "the program sets TRITON_INTERPRET: its kernels are interpreted in Python and none is compiled"
    if ended is not None and ended["missing"] == "triton":
        yield "the program's Python has no Triton: install triton 3.6 to 3.9 for it"
    elif not processes:
        yield (
            "no process of the program imported Triton, so nothing was compiled "
            "(a Python started with -I, -E or -S cannot be reached)"
        )
    if status == 0 or interrupted:
        return
    if ended is not None:
        yield f"the program failed with exit status {status}: {ended['error']} ({ended['place']})"
    elif status < 0:
        yield f"the program was killed by {signal.Signals(-status).name}"
    else:
        yield f"the program ended with exit status {status}"
    stopped = [event for kind in ("failed", "refused") for event in events.get(kind, ()) if not event["candidate"]]
    if events.get("launch") and not stopped and not runs:
        yield (
            "it failed after a launch: nothing is run here, so a program that needs the value of a kernel's result "
            "finds zeros"
        )
