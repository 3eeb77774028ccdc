"""The seam in torch: what makes a launcher was looked at, also when nothing was compiled. The GPU test runs it all."""

from __future__ import annotations

import importlib.util

import pytest

from .conftest import World

STANDIN = """
import types
class StaticTritonCompileResult:
    def make_launcher(self):
        return "loaded"
heuristics = types.ModuleType("heuristics")
heuristics.StaticTritonCompileResult = StaticTritonCompileResult
from kcontract.hook.inductor import install
install(heuristics)
"""
TORCH = "import torch._inductor.runtime.triton_heuristics as heuristics\n"
PRELUDE = """
import types, sys
import kernels_used as k

def static(kernel, path, hash="0" * 52):
    result = object.__new__(heuristics.StaticTritonCompileResult)
    result.compile_meta = {"device_type": "cuda", "cc": 80}
    result.kernel = types.SimpleNamespace(hash=hash, name=kernel, cubin_path=path, shared=0, num_warps=4)
    result.kernel.load_kernel = lambda device: sys.exit("loaded")
    return result

def launch(result):
    try:
        print(result.make_launcher())
    except SystemExit as error:
        print(error)
    except Exception as error:
        print(type(error).__name__)
"""


def compiled(world: World, kernel: str) -> str:
    """Path of the cubin of a kernel compiled before, without kcontract."""
    code = f"import kernels_used as k; print(k.compile(k.{kernel}).metadata_group['{kernel}.cubin'])"
    return repr(world.run(code, None).strip())


def test_a_restored_kernel_is_checked_once(world: World) -> None:
    path = compiled(world, "hazard")
    output = world.run(STANDIN + PRELUDE + f"for _ in range(2): launch(static('hazard', {path}))", FAKE_RULES="1")
    assert output.count("found a hazard") == 1
    assert output.count("loaded") == 2
    assert [r["reason"] for r in world.records() if r["gate"] == "PRC-02"] == ["found a hazard, wanted none"]


def test_a_bundle_without_its_files_is_undecided(world: World) -> None:
    (world.folder / "clean.cubin").write_bytes(b"")
    world.run(STANDIN + PRELUDE + f"launch(static('clean', {str(world.folder / 'clean.cubin')!r}))")
    assert {r["status"] for r in world.records() if r["gate"] == "PRC-02"} == {"UNDECIDED"}
    assert {r["target"] for r in world.records()} == {"sm_80"}


def test_error_mode_refuses_before_the_kernel_is_loaded(world: World) -> None:
    path = compiled(world, "violation")
    code = STANDIN + PRELUDE + f"for _ in range(2): launch(static('violation', {path}))"
    output = world.run(code, "error", FAKE_RULES="1")
    assert output.count("KContractViolation\n") == 2
    assert "loaded" not in output


def test_a_result_we_do_not_understand_is_left_to_torch(world: World) -> None:
    code = STANDIN + PRELUDE + "result = static('clean', None); del result.kernel.hash; launch(result)"
    output = world.run(code)
    assert "kcontract: cannot look at kernels of this torch version: AttributeError" in output
    assert "loaded\n" in output


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_the_seam_is_there_in_torch(world: World) -> None:
    path = compiled(world, "hazard")
    code = (
        TORCH
        + PRELUDE
        + f"launch(static('hazard', {path}))"
        + """
import pickle
made = heuristics.TritonCompileResult(k.compile(k.note), None, {}, {})
data = pickle.dumps({**made.__getstate__()["kernel"], "src": None, "hash": "1" * 52})
restored = object.__new__(heuristics.TritonCompileResult)
restored.__setstate__({"kernel": pickle.loads(data), "config": None, "compile_meta": {}, "inductor_meta": {}})
launch(restored)
result = static("clean", None, "2" * 52)
result.reload_cubin_path = lambda: 1 / 0
launch(result)
"""
    )
    output = world.run(code, FAKE_RULES="1")
    assert output.count("found a hazard") == 1
    assert "loaded\nAttributeError\nZeroDivisionError\n" in output
    assert world.checked() == ["hazard", "note", "note", "clean"]
