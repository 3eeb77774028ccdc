"""The sweep: compiles what liger-kernel and fla-core launch, for each target, and writes a manifest.

    python tests/sweep liger --target sm_90,sm_100 --out sweep/ [--max-configs N] [--cases NAME ...]

Run it with the Python that has the library (``pip install --no-deps liger-kernel fla-core einops transformers``) and
kcontract on its path. ``OUT/LIBRARY/TARGET`` is a Triton cache folder, ``OUT/LIBRARY/TARGET.manifest.json`` says for
each public operation whether it was reached, and if not why, and for each kernel how many specialisations there are.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
import time
from pathlib import Path
from typing import Any

from left_out import LEFT_OUT

HERE = Path(__file__).resolve().parent
PROGRAMS = {"liger": ("liger.py", "liger-kernel"), "fla": ("fla_core.py", "fla-core")}


def main() -> int:
    """Sweep one library; 0 where every public operation is a case that ended or is left out with a reason."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=PROGRAMS)
    parser.add_argument("--target", default="sm_90,sm_100")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--max-configs", type=int, default=1)
    parser.add_argument("--cases", nargs="*", default=[])
    args = parser.parse_args()
    manifests = [
        sweep(args.library, target, args.out, args.max_configs, args.cases) for target in args.target.split(",")
    ]
    for manifest in manifests:
        print(summary(manifest))
    return int(any(manifest["not_reached"] or manifest["unlisted"] for manifest in manifests))


def sweep(library: str, target: str, out: Path, max_configs: int, cases: list[str]) -> dict[str, Any]:
    """Run the library's program for one target; returns the manifest it has written."""
    from kcontract.dynamic.engines import session

    program, distribution = PROGRAMS[library]
    folder = out / library
    log = folder / f"{target}.cases.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    start = time.monotonic()
    found = session.run(
        [sys.executable, str(HERE / program), str(log.absolute()), *cases], target, folder, max_configs=max_configs
    )
    first, *lines = map(json.loads, log.read_text().splitlines())
    public, known = set(first["public"]), first["cases"]
    states = {record["case"]: record for record in lines}
    kernels: dict[str, list[float]] = {}
    for kernel, seconds in found.compiled.values():
        kernels.setdefault(kernel, []).append(seconds)
    manifest = {
        "library": distribution,
        "version": importlib.metadata.version(distribution),
        "triton": found.triton,
        "target": target,
        "max_configs": max_configs,
        "seconds": round(time.monotonic() - start, 1),
        "status": found.status,
        "reached": sorted(name for name, record in states.items() if record["state"] == "ended"),
        "not_reached": {
            name: record.get("reason", "the program died in it")
            for name, record in sorted(states.items())
            if record["state"] != "ended"
        },
        "left_out": LEFT_OUT[library],
        "unlisted": sorted(public - {name.partition("/")[0] for name in known} - LEFT_OUT[library].keys()),
        "kernels": {
            kernel: {"specialisations": len(seconds), "seconds": round(sum(seconds), 2)}
            for kernel, seconds in sorted(kernels.items())
        },
        "configurations": {name: list(counts) for name, counts in sorted(found.tuners.items())},
        "failures": [
            {"kernel": failure.kernel, "reason": failure.reason, "candidate": failure.candidate}
            for failure in (*found.failures, *found.refused)
        ],
    }
    (folder / f"{target}.manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


def summary(manifest: dict[str, Any]) -> str:
    """One line."""
    specialisations = sum(kernel["specialisations"] for kernel in manifest["kernels"].values())
    return (
        f"{manifest['library']} {manifest['version']} {manifest['target']} Triton {manifest['triton']}: "
        f"{len(manifest['reached'])} cases reached, {len(manifest['not_reached'])} not, {len(manifest['left_out'])} "
        f"left out; {len(manifest['kernels'])} kernels, {specialisations} specialisations, "
        f"{len(manifest['failures'])} failures, {manifest['seconds']} s"
    )


if __name__ == "__main__":
    raise SystemExit(main())
