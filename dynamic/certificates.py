"""Verdicts of earlier runs, so that a certified kernel is recognised again.

The key is a hash of everything an answer rests on: machine code, host code (each Python file beside the candidate and
the reference, since they may import it), reference, contract, rules and gates,
engine, sizes, dtype and seed. One file a key; a run that had an ERROR is not kept, nor is one with a FAIL, whose
witness would be missing.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import itertools
import json
import os
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from kcontract.dynamic.gates.bench import Bench
from kcontract.model import Basis, Status, Verdict

#: More Python files than this beside the candidate and no verdict is recognised: it may import any of them.
_MOST = 400


def digest(parts: Iterable[str]) -> str:
    """SHA-256 of texts, each ended by a zero byte."""
    made = hashlib.sha256()
    for part in parts:
        made.update(part.encode() + b"\0")
    return made.hexdigest()


def folder() -> Path:
    """Where verdicts are kept: ``kcontract/verdicts`` under ``XDG_CACHE_HOME`` (default ``~/.cache``)."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "kcontract" / "verdicts"


@cache
def _own_code() -> str:
    """Hash of the code that runs candidates: an answer may change with it."""
    root = Path(__file__).parent
    return digest(path.read_text() for path in sorted(root.rglob("*.py")))


class Entry:
    """The place of one run's verdicts."""

    def __init__(self, base: Path, bench: Bench, kernels: Sequence[str], gates: Sequence[str]) -> None:
        import torch

        problem = bench.problem
        named = {problem.candidate.path, *(str(problem.origin.get(k)) for k in ("candidate", "reference"))}
        folders = sorted({Path(f).resolve().parent for f in named if Path(f).is_file()})
        beside = (f for folder in folders for pattern in ("*.py", "*/*.py") for f in folder.glob(pattern))
        files = sorted(set(itertools.islice(beside, _MOST + 1)))
        self.trusted = len(files) <= _MOST  # else a module that the candidate imports could change unseen
        texts = [f"{f}\0{f.read_text(errors='replace')}" for f in files[:_MOST] if f.is_file()]
        texts += [Path(f).read_text(errors="replace") for f in sorted(named) if f.endswith(".json")]
        run = (bench.engine, bench.dtype, bench.seed, bench.thorough, sorted(bench.spec.dims.items()))
        about = (problem.name, *run, repr(problem.init), bench.candidate.limits)
        versions = torch.__version__, importlib.metadata.version("triton")
        everything = [*kernels, *texts, repr(problem.contract), repr(about), *gates, _own_code(), *versions]
        self.path = base / f"{digest(everything)}.json"

    def load(self) -> tuple[Verdict, ...] | None:
        """The verdicts kept, None where there are none."""
        if not self.trusted:
            return None
        try:
            rows = json.loads(self.path.read_text())
            return tuple(
                Verdict(r["gate"], Status(r["status"]), Basis(r["basis"]), r["reason"], r["level_of_ir"], r["engine"])
                for r in rows
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def save(self, verdicts: Sequence[Verdict]) -> None:
        """Keep the verdicts. A folder that cannot be written is no reason to fail: they are found again."""
        if any(v.status in (Status.ERROR, Status.FAIL) for v in verdicts):
            return
        rows = [
            {"gate": v.gate, "status": v.status.value, "basis": v.basis.value, "reason": v.reason,
             "level_of_ir": v.level_of_ir, "engine": v.engine}
            for v in verdicts
        ]  # fmt: skip
        partial = self.path.with_suffix(f".{os.getpid()}.partial")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(json.dumps(rows))
            partial.replace(self.path)
        except OSError:
            partial.unlink(missing_ok=True)
