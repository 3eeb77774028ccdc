"""The reader against Triton's own parser, on a corpus compiled for every target and on hand-written modules."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import triton
import ttgir_oracle

from kcontract.ir.ttgir import reader

HERE = pathlib.Path(__file__).parent
MODULES = ["constructs", "tensor_memory"]
if tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 9):
    MODULES.append("since_triton_3_9")
TARGETS = ("sm75", "sm80", "sm86", "sm89", "sm90", "sm100", "sm120", "sm121")


def generate(folder, every):
    """Compile every N-th case in a process of its own, and give what it wrote."""
    command = [sys.executable, str(HERE / "ttgir_corpus.py"), str(folder), "--every", str(every)]
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / "cache")}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    summary = json.loads(run.stdout.splitlines()[-1])
    paths = sorted(path for path in folder.iterdir() if path.suffix in (".source", ".ttir", ".ttgir", ".glir"))
    assert len(paths) == sum(summary["written"].values())
    return summary, paths


def compare(paths):
    operations, found = 0, []
    for path in paths:
        count, differences = ttgir_oracle.differences(path)
        operations += count
        found += differences
    return operations, found


def test_a_sample_of_kernels_on_every_target(tmp_path):
    summary, paths = generate(tmp_path, 17)
    operations, found = compare(paths)
    assert not found, "\n".join(found[:20])
    assert summary["written"]["ttgir"] >= 55 and operations >= 10_000
    assert all(any(f"{target}." in path.name for path in paths) for target in TARGETS)


@pytest.mark.slow
def test_a_thousand_kernels(tmp_path):
    summary, paths = generate(tmp_path, 1)
    operations, found = compare(paths)
    assert not found, "\n".join(found[:20])
    assert summary["written"]["ttgir"] >= 1_000
    print(f"Triton {summary['triton']}: {summary['written']}, {operations:,} operations, 0 differences")


@pytest.mark.parametrize("name", MODULES)
def test_constructs_no_kernel_shows(name):
    operations, found = ttgir_oracle.differences(HERE / "modules" / f"{name}.mlir")
    assert not found, "\n".join(found)
    assert operations >= 12


def test_the_comparison_notices_a_wrong_operand_order(monkeypatch):
    monkeypatch.setattr(reader, "REORDERED", {})
    _, found = ttgir_oracle.differences(HERE / "modules" / "tensor_memory.mlir")
    assert {line.split(",")[1].split(":")[0].strip() for line in found} == {"ttng.tmem_store", "ttng.tc_gen5_mma"}


def test_the_comparison_notices_a_wrong_type(monkeypatch):
    from kcontract.ir.ttgir import results

    monkeypatch.setitem(results._RULES, "arith.select", results._first)
    results._types.cache_clear()
    _, found = ttgir_oracle.differences(HERE / "modules" / "constructs.mlir")
    results._types.cache_clear()
    assert len(found) == 1 and "arith.select: result types" in found[0]
