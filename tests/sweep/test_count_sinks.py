"""The ledger's rows against a count of float sinks that shares no code with it."""

import os
import sys
from pathlib import Path

import pytest
from compiled import compile_kernel, matmul_for, specialized_for
from count_sinks import count, differences, ledger_rows, main

sys.path.insert(0, str(Path(__file__).parents[1] / "passes"))
import accumulating as kernels

HALF, BRAIN, N = {"x": "*fp16", "o": "*fp16"}, {"x": "*bf16", "o": "*bf16"}, {"n": "i32"}
TILE = {"M": 128, "D": 64, "B": 64}
SAMPLES = [
    ("reduce_sum", HALF, {"N": 4096}, {"reduce": 1, "add": 1}),
    ("reduce_max", HALF, {"N": 4096}, {"reduce": 1}),
    ("scan_sum", HALF, {"N": 1024}, {"scan": 1, "add": 1}),
    ("loop_sum", HALF | N, {"B": 128}, {"add": 1}),
    ("atomic", HALF, {"N": 128}, {"atomic": 1}),
    ("chain5", {"a": "*fp16", "o": "*fp16"}, {"B": 128}, {"add": 4}),
    ("packed_sum", {"x": "*i32", "o": "*i32"} | N, {"B": 128}, {"assembly": 1}),
    ("while_sum", HALF | N, {"B": 128}, {"add": 1}),
    ("decay", BRAIN | N, {"B": 128}, {"add": 1}),
]


@pytest.mark.parametrize(("name", "signature", "constants", "wanted"), SAMPLES, ids=[s[0] for s in SAMPLES])
def test_every_sink_is_a_row_of_a_documented_class(name, signature, constants, wanted):
    text = compile_kernel(getattr(kernels, name), signature, constants, 90).asm["ttgir"]
    assert count(text) == wanted
    assert differences(text, ledger_rows(text)) == []


@pytest.mark.parametrize("target", [80, 90, 100, 120])
def test_matrix_products(target):
    texts = [
        matmul_for(target, block=64, inner=32).asm["ttgir"],
        compile_kernel(kernels.attention, dict.fromkeys("qkvo", "*fp16") | N, TILE, target).asm["ttgir"],
    ]
    if target == 100:
        texts.append(specialized_for(target).asm["ttgir"])
    for text in texts:
        assert count(text)["dot"] + count(text)["mma"] > 0
        assert differences(text, ledger_rows(text)) == []


def test_a_lost_row_and_an_undocumented_class_are_noticed():
    text = compile_kernel(kernels.reduce_sum, HALF, {"N": 4096}, 90).asm["ttgir"]
    rows = ledger_rows(text)
    assert differences(text, rows[:-1]) != []
    assert differences(text, [(operation, "other") for operation, _ in rows]) != []


def test_integers_are_no_sinks():
    text = compile_kernel(kernels.reduce_sum, {"x": "*i32", "o": "*i32"}, {"N": 4096}, 90).asm["ttgir"]
    assert not count(text)
    assert "tt.reduce" in text


@pytest.mark.slow
def test_every_module_of_the_sweep(capsys):
    """``SWEEP_FOLDERS`` names cache folders that ``python tests/sweep`` has filled, separated by colons."""
    folders = os.environ.get("SWEEP_FOLDERS", "")
    if not folders:
        pytest.skip("needs cache folders: run 'python tests/sweep' and set SWEEP_FOLDERS")
    assert main(folders.split(":")) == 0, capsys.readouterr().out
