"""Runs each example under ``TRITON_KCONTRACT=1`` and shows what is caught, with no GPU.

Exits with 1 when a faulty kernel is not caught at its line or a repaired twin is not silent.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
# example file -> kernel, rule, and the text of the source line it is caught at; every other kernel stays silent
EXPECTED = {
    "half_matmul.py": [
        ("matmul_fp16_sum", "half-precision-accumulator", "acc = tl.dot(a, b, acc, out_dtype=tl.float16)")
    ],
    "half_sum.py": [("row_sum_fp16", "half-precision-accumulator", "tl.store(out_ptr + row, tl.sum(x, axis=0))")],
    "loop_sum.py": [
        ("column_sum_bf16", "half-precision-accumulator", "acc += tl.load(x_ptr + row * BLOCK + cols)"),
    ],
    "atomic_sum.py": [("total_by_atomics", "unordered-float-atomic", "tl.atomic_add(out_ptr, tl.sum(x, axis=0))")],
    "combine.py": [("mean_by_averages", "unorderable-combine", "tl.store(out_ptr, tl.reduce(x, 0, average_of_two))")],
    "split_k.py": [
        ("split_matmul", "half-precision-partials", "tl.store(part_ptr + place, acc.to(part_ptr.dtype.element_ty))"),
    ],
    "tensor_memory.py": [("two_products", "over-budget", "first = tl.dot(scaled, b, first)")],
    "register_pool.py": [("greedy", "over-budget", "y = tl.inline_asm_elementwise(")],
}


def run(name: str) -> list[tuple[str, str, str]]:
    """Compile one example under kcontract; returns (kernel, rule, source line) of each finding reported."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.jsonl"
        env = {
            **os.environ,
            "TRITON_KCONTRACT": "1",
            "TRITON_KCONTRACT_REPORT": str(report),
            "TRITON_DEFAULT_FP_FUSION": "1",  # Triton 3.9 warns where it is not set
            "TRITON_CACHE_DIR": str(Path(folder) / "cache"),
        }
        subprocess.run([sys.executable, HERE / name], env=env, check=True)
        records = [json.loads(line) for line in report.read_text().splitlines()]
    return [
        (record["kernel"], record["rule"], Path(record["file"]).read_text().splitlines()[record["line"] - 1].strip())
        for record in records
        if record["type"] == "finding" and record["level"] != "note"
    ]


def main() -> int:
    """Run all examples."""
    wrong = 0
    for name, expected in EXPECTED.items():
        print(f"\n=== examples/{name}", flush=True)
        caught = run(name)
        if caught != expected:
            wrong += 1
            print(f"!!! expected {expected}, caught {caught}")
        else:
            names = ", ".join(f"{kernel} ({rule})" for kernel, rule, _ in caught)
            print(f"caught as expected: {names}; the repaired twin is silent")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
