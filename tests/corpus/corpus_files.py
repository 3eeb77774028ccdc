"""The corpus: kernels with one fault each beside a repaired twin (``faulty/``), and honest kernels (``honest/``).

A file is a KernelBench file: ``Model`` is right, ``ModelNew`` is judged, ``Repaired`` is its twin without the fault.
Constants at its top, read without importing it, say what is wanted:

- ``SOURCE``: the public report, or what fault of our own it is.
- ``EXPECT``: gates that ``ModelNew`` must fail. ``EXPECT_STATIC``: rules that must report it.
- ``ALSO``: gates that may fail for the same fault; ``"values"`` stands for all that compare values.
- ``CONTRACT``: policies its author declares.
- ``ENGINE = "gpu"``: shown on a GPU only. ``DEVICES``: GPUs it takes. ``CAPABILITY``, ``TRITON``: the only compute
  capability, and the start of the only Triton version, whose compiler makes the fault.
- ``MISSED``: why no gate is expected to see it.
- ``FRESH``: the customary check passes in memory that nobody has used before (zeros). ``CUSTOMARY``: the engine that
  runs the customary check, where the simulator stops at an access that a GPU lets pass.

What a file does not say is not so.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import triton

from kcontract.dynamic.oracle import outputs_of
from kcontract.dynamic.problems import kernelbench
from kcontract.dynamic.problems.problem import Problem
from kcontract.dynamic.sandbox.candidate import Candidate
from kcontract.dynamic.verify import Result
from kcontract.model import Accumulator, Contract, Determinism, NanPolicy, Status, Subnormals

FOLDER = Path(__file__).parent
#: Gates that judge the values of a result: a value that is wrong on all inputs is wrong in each of them.
VALUES = ("CMP-01", "CMP-02", "CMP-03", "ORD-01", "ORD-03", "PRC-01", "CFG-01", "EXC-01", "EXC-02", "HON-01")
_POLICIES = {"accumulator": Accumulator, "nan": NanPolicy, "subnormals": Subnormals, "determinism": Determinism}
_HEADER = ("SOURCE", "EXPECT", "EXPECT_STATIC", "ALSO", "CONTRACT", "ENGINE", "DEVICES", "MISSED", "FRESH", "CUSTOMARY",
           "CAPABILITY", "TRITON")  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One file of the corpus; the constants of its head by name, and the ``classes`` that can be judged."""

    path: Path
    head: dict[str, Any]
    classes: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def expect(self) -> tuple[str, ...]:
        return tuple(self.head.get("EXPECT", ()))

    @property
    def also(self) -> tuple[str, ...]:
        also = self.head.get("ALSO", ())
        return VALUES if also == "values" else tuple(also)

    def left_out(self, engine: str) -> str:
        """Why it is not judged on this engine here; empty where it is."""
        if self.head.get("ENGINE", engine) != engine:
            return f"shown on the engine {self.head['ENGINE']} only"
        version, capability = self.head.get("TRITON", ""), self.head.get("CAPABILITY")
        if not triton.__version__.startswith(version):
            return f"shown by Triton {version}x only"
        if capability is not None and torch.cuda.get_device_capability() != tuple(capability):
            return "shown on compute capability {}.{} only".format(*capability)
        devices = self.head.get("DEVICES", 1)
        if devices > 1 and devices > torch.cuda.device_count():
            return f"needs {devices} CUDA devices"
        return ""

    def problem(self, name: str = "ModelNew") -> Problem:
        loaded = kernelbench.load(str(self.path), name=name)
        declared = {k: _POLICIES[k](v) if k in _POLICIES else v for k, v in self.head.get("CONTRACT", {}).items()}
        return replace(loaded, contract=replace(Contract(), **declared))

    def disagreement(self, name: str, result: Result) -> str:
        """What a verdict on one of its classes says that it must not, or leaves out; empty where all is as wanted."""
        failed = {v.gate for v in result.report.verdicts if v.status is Status.FAIL}
        errors = [v.gate for v in result.report.verdicts if v.status is Status.ERROR]
        faulty = name == "ModelNew" and bool(self.expect or self.head.get("EXPECT_STATIC"))
        wanted = set(self.expect) if faulty and not self.head.get("MISSED") else set()
        allowed = set(self.expect) | set(self.also) if faulty else set()
        if self.head.get("DEVICES", 1) == 1 and torch.cuda.device_count() > 1:
            allowed.add("RES-01")  # most launches here are not guarded, which shows where there are several GPUs
        rules = {f.rule for f in result.report.findings}
        unreported = [r for r in self.head.get("EXPECT_STATIC", ()) if r not in rules] if faulty else []
        parts = {
            "not found": sorted(wanted - failed),
            "false alarm": sorted(failed - allowed),
            "error": errors,
            "no finding": unreported,
        }
        return "; ".join(f"{what}: {', '.join(gates)}" for what, gates in parts.items() if gates)


def cases(folder: str) -> list[Case]:
    """The files of ``faulty`` or ``honest``."""
    return [read(path) for path in sorted((FOLDER / folder).glob("*.py"))]


def read(path: Path) -> Case:
    """A file's head and classes, without importing it."""
    head, classes = {}, []
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            if statement.targets[0].id in _HEADER:
                head[statement.targets[0].id] = ast.literal_eval(statement.value)
        elif isinstance(statement, ast.ClassDef) and statement.name in ("ModelNew", "Repaired"):
            classes.append(statement.name)
    return Case(path, head, tuple(classes))


def customary(case: Case, engine: str, name: str = "ModelNew") -> str:
    """The check that public benchmarks make: five random inputs at the native shape, allclose with 1e-2.

    Empty where it passes.
    """
    problem = case.problem(name)
    engine = case.head.get("CUSTOMARY", engine) if engine != "gpu" else engine
    torch.manual_seed(0)
    reference = problem.reference()
    state = [(n, t.detach()) for n, t in (*reference.named_parameters(), *reference.named_buffers())]
    with Candidate(problem.candidate, engine, init=problem.init) as candidate, torch.no_grad():
        if failure := candidate.load(state):
            return str(failure)
        for trial in range(5):
            torch.manual_seed(trial)
            inputs = [v.detach() if isinstance(v, torch.Tensor) else v for v in problem.inputs()]
            wanted = reference(*[v.clone() for v in inputs])
            answer = candidate.call(inputs, poison="zero" if case.head.get("FRESH") else None)
            if answer.failure:
                return str(answer.failure)
            for found, right in zip(answer.values, outputs_of(wanted), strict=True):
                if not torch.allclose(found.float(), right.float(), rtol=1e-2, atol=1e-2):
                    return f"trial {trial} is off by {(found.float() - right.float()).abs().max():.3g}"
    return ""
