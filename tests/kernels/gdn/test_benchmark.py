"""The peers' part of `benchmarks/gdn_backward.py`: nothing is tuned, and nothing can hang it."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "gdn_backward.py"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("gdn_backward", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_child_past_its_limit_is_ended_with_what_it_started(benchmark, tmp_path):
    alive = tmp_path / "alive"
    grandchild = f"import time, pathlib; time.sleep(4); pathlib.Path({str(alive)!r}).touch()"
    child = f"import subprocess, sys; print('begun'); subprocess.run([sys.executable, '-c', {grandchild!r}])"
    begun = time.monotonic()
    assert benchmark.bounded([sys.executable, "-c", child], 1.5) is None
    assert time.monotonic() - begun < 4
    time.sleep(4)
    assert not alive.exists()


def test_a_child_within_its_limit_gives_what_it_printed(benchmark):
    assert benchmark.bounded([sys.executable, "-c", "print('done')"], 60) == "done\n"


def test_a_pinned_autotuner_keeps_the_first_configuration_of_four_warps(benchmark, monkeypatch):
    triton = pytest.importorskip("triton")
    from triton.runtime.autotuner import Autotuner

    monkeypatch.setattr(Autotuner, "__init__", Autotuner.__init__)  # puts the original back
    configs = [triton.Config({"B": b}, num_warps=w) for w in (2, 4) for b in (32, 64)]

    @triton.jit
    def kernel(x, B):
        pass

    def kernels():
        return [triton.autotune(some, key=[])(kernel) for some in (configs, configs[:2], [])]

    assert [len(x.configs) for x in kernels()] == [4, 2, 1]
    benchmark.pin_autotuners()
    pinned = [x.configs for x in kernels()]
    assert [len(x) for x in pinned] == [1, 1, 1]
    assert pinned[0] == [configs[2]] and pinned[1] == [configs[0]]


def test_a_peer_that_fails_or_is_not_installed_or_hangs_gets_a_line(benchmark, monkeypatch):
    assert benchmark.peer_line("flash_qla", "1x64x1x1", 1.0) == "flash_qla: not installed"
    monkeypatch.setitem(benchmark.PEERS, "fla", "json")  # a module that is there and is no peer
    monkeypatch.setattr(benchmark, "LIMIT", 0.01)
    assert benchmark.peer_line("fla", "1x64x1x1", 1.0) == "1x64x1x1 fla: not done in 0.01 s"
    monkeypatch.setattr(benchmark, "bounded", lambda *_: "")
    assert benchmark.peer_line("fla", "1x64x1x1", 1.0) == "1x64x1x1 fla: failed, see its error above"
    times = '{"device": 2.0, "eager": 3.0, "launches": 5, "forward": 1.0}'
    monkeypatch.setattr(benchmark, "bounded", lambda *_: f"noise\n{times}\n")
    line = benchmark.peer_line("fla", "1x64x1x1", 0.5)
    assert "ratio 4.00 of ours" in line and benchmark.PINNED in line
