"""Extra evidence on a GPU: one more run of the candidate under compute-sanitizer, or compiled with Triton's ConSan.

What such a run reports is a fault. That it reports nothing certifies nothing: the instrumented code is not the code
that ships, and it is said as a note, never as a verdict.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from kcontract.dynamic.gates.answers import unfit
from kcontract.dynamic.gates.bench import Bench
from kcontract.dynamic.sandbox.candidate import Candidate, Limits
from kcontract.dynamic.sandbox.channel import Closed
from kcontract.errors import UsageError

#: The gate that a tool's report belongs to.
TOOLS = {"memcheck": "MEM-01", "initcheck": "ORD-02", "racecheck": "SYN-01", "synccheck": "SYN-01", "consan": "SYN-01"}
#: compute-sanitizer's words for a fault, as its manual lists them a tool.
_FAULT = re.compile(r"^=========\s+(?:Error: |Warning: )?((?:Invalid |Uninitialized |Misaligned |Race reported|Barrier "
                    r"error|Out-of-range|Potential \w+ hazard|Divergent thread).*)")  # fmt: skip
_PLACE = re.compile(r"^=========\s+at (.*)")
_ASSERTION = re.compile(r"^(\S+:\d+): .*Assertion `(.*)` failed", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one tool said: ``fault`` in a sentence, empty where it saw none; else ``note``."""

    gate: str
    fault: str = ""
    note: str = ""


def chosen(names: Iterable[str], engine: str) -> tuple[str, ...]:
    """The tools of ``--sanitizer``. Raises ``UsageError`` for an unknown one, another engine, or one not installed."""
    tools = tuple(dict.fromkeys(n.strip() for name in names for n in name.split(",") if n.strip()))
    for tool in tools:
        if tool not in TOOLS:
            raise UsageError(f"no sanitizer {tool!r}; there are {', '.join(TOOLS)}")
    for tool in tools:
        if not torch.cuda.is_available():
            raise UsageError(f"--sanitizer {tool} needs a CUDA device, and there is none")
        if engine != "gpu":
            raise UsageError(f"--sanitizer {tool} needs --engine gpu, not {engine}")
        if tool != "consan" and shutil.which("compute-sanitizer") is None:
            raise UsageError(f"--sanitizer {tool} needs compute-sanitizer on PATH; it comes with the CUDA toolkit")
    return tools


def look(bench: Bench, tool: str) -> Evidence:
    """Run the candidate under a tool, at the working sizes and at odd ones; minutes, for what compiles slowly."""
    gate, tried = TOOLS[tool], 0
    samples = [s for s in (bench.nominal(), bench.uneven("CMP-03", "odd sizes")) if s is not None]
    limits = Limits(load=300.0, call=300.0)
    with Candidate(bench.candidate.entry, "gpu", init=bench.candidate.init, limits=limits, tool=tool) as other:
        other.pinned = bench.candidate.pinned
        try:
            failure = other.load(bench.candidate.state)
            if failure is not None:
                return Evidence(gate, note=f"{tool} could not run it: {failure}")
            for sample in samples:
                answer = other.call(sample.inputs)
                tried += not unfit(answer)
                if answer.failure is not None and answer.failure.kind != "raised":
                    break
        except (Closed, TimeoutError) as error:
            return Evidence(gate, note=f"{tool} did not start: {error or 'no answer'}")
        report = other.report()
        printed = other.printed.decode(errors="replace")
    if fault := said(tool, report if tool != "consan" else printed):
        return Evidence(gate, fault)
    if not tried:
        return Evidence(gate, note=f"{tool} could not run it: {unfit(answer)}")
    return Evidence(gate, note=f"{tool} saw nothing on {tried} inputs; an instrumented run certifies nothing")


def said(tool: str, text: str) -> str:
    """The first fault in a tool's report, in a sentence; empty where there is none."""
    if tool == "consan":
        found = _ASSERTION.search(text)
        return f"ConSan: {found[2]} ({found[1]})" if found else ""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if fault := _FAULT.match(line):
            places = (p[1] for later in lines[at + 1 : at + 4] if (p := _PLACE.match(later)))
            return f"compute-sanitizer {tool}: {fault[1].rstrip('.')}" + "".join(f" at {p}" for p in places)
    return ""
