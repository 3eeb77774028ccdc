"""Decoded kernels are kept on disk, and a damaged entry is decoded again."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from faulty_ptx import CASES

from kcontract.dynamic.engines.simulator import cache, kernel
from kcontract.dynamic.engines.simulator.engine import prepare


def result(text: str) -> list[int]:
    out = np.zeros(1024, "u4")
    grid = prepare(kernel._decode(text, "test"), (1, 1, 1), {"in": np.arange(1024, dtype="u4"), "out": out}, 16384)
    grid.run()
    return out.tolist()


def test_a_second_process_reads_what_the_first_has_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    text = CASES[0].text(False)
    first = result(text)
    (entry,) = tmp_path.rglob("*.npz")
    monkeypatch.setattr(kernel, "generate", lambda *_: pytest.fail("it was decoded again"))
    assert result(text) == first and first[:2] == [32, 33]
    assert cache.load(text + "\n") is None
    monkeypatch.undo()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    entry.write_bytes(entry.read_bytes()[:100])
    assert result(text) == first
