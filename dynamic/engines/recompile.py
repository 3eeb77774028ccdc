"""Compiles a kernel again from the TTIR that Triton keeps beside it: for another target, or with other options.

Why: whether a kernel fits sm_120 is known only once it is compiled for sm_120, and a suggestion ("two stages fit") is
worth something only once it has been compiled. Each compile is a process of its own: one that Triton aborts is a
sentence here. What the front end decided by target (fp8 types, dot precision) stays as it was.

Run as a module it is that process: it reads a request from standard input and leaves the files in a folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace

from kcontract.ir.artifact import Artifact
from kcontract.ir.loaders import Problem, load_cache
from kcontract.ir.target import Target

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion")
SECONDS = 120


def options_of(artifact: Artifact) -> dict[str, object]:
    """The options an artifact was compiled with, as far as they can be given again."""
    return {name: artifact.metadata[name] for name in OPTIONS if artifact.metadata.get(name) is not None}


def recompile(artifact: Artifact, target: Target, options: Mapping[str, object]) -> Artifact | str:
    """The kernel compiled for ``target``, or a sentence that says why not."""
    source = f"{artifact.origin}.ttir"
    if not os.path.isfile(source):
        return f"{artifact.kernel} cannot be compiled for {target}: there is no {os.path.basename(source)} beside it"
    if target.capability is None:
        return f"{artifact.kernel} cannot be compiled for {target}: Triton compiles for sm_NN targets"
    with tempfile.TemporaryDirectory(prefix="kcontract-recompile-") as folder:
        request = {"source": source, "capability": target.capability, "options": dict(options), "folder": folder}
        command = [sys.executable, "-m", __name__]
        environment = {**os.environ, "TRITON_KCONTRACT": "0", "TRITON_CACHE_DIR": folder}
        try:
            done = subprocess.run(
                command, input=json.dumps(request), capture_output=True, text=True, timeout=SECONDS, env=environment
            )
        except subprocess.TimeoutExpired:
            return f"{artifact.kernel} for {target}: the compile took more than {SECONDS} s and was stopped"
        if done.returncode != 0:
            lines = [line for line in (done.stderr or "").splitlines() if line.strip()]
            return f"{artifact.kernel} does not compile for {target}: {lines[-1][:300] if lines else 'it was aborted'}"
        found = next((item for item in load_cache(folder) if not isinstance(item, Problem)), None)
        if found is None:
            return f"{artifact.kernel} for {target}: the compiler left nothing"
        return replace(found, origin=artifact.origin)  # where its TTIR is, to compile it yet again


def alternatives(artifact: Artifact, resource: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Options that may bring a resource into its budget, the least change first, each with a phrase."""
    options = options_of(artifact)
    stages, warps = options.get("num_stages"), options.get("num_warps")
    if resource == "shared memory" and isinstance(stages, int):
        for fewer in range(stages - 1, 0, -1):
            yield f"num_stages={fewer}", {**options, "num_stages": fewer}
    if resource in ("registers", "threads") and isinstance(warps, int):
        while warps > 1:
            warps //= 2
            yield f"num_warps={warps}", {**options, "num_warps": warps}


def _serve() -> None:
    import triton
    from triton.backends.compiler import GPUTarget

    request = json.load(sys.stdin)
    triton.compile(request["source"], target=GPUTarget("cuda", request["capability"], 32), options=request["options"])


if __name__ == "__main__":
    _serve()
