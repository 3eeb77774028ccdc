"""On a CUDA device: launches, autotuning and torch.compile under kcontract, each way a kernel can come to run."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import World

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", autouse=True)
def device() -> None:
    query = "import ctypes; raise SystemExit(ctypes.CDLL('libcuda.so.1').cuInit(0) != 0)"
    if subprocess.run([sys.executable, "-c", query], capture_output=True).returncode:
        pytest.skip("no CUDA device")
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")


LAUNCH = """
import torch, kernels_used as k
x, y = torch.randn(128, device="cuda"), torch.zeros(128, device="cuda")
for _ in range(3):
    k.{kernel}[(1,)](x, y, 128)
assert torch.equal(x, y)
"""


def test_launches(world: World) -> None:
    world.run(LAUNCH.format(kernel="clean"))
    assert world.checked() == ["clean"]  # a miss; the in-process hits need no second look
    world.run(LAUNCH.format(kernel="clean"))
    assert world.checked() == ["clean"] * 2  # a hit on disk


def test_error_mode_stops_the_launch(world: World) -> None:
    for _ in range(2):
        started = world.start(LAUNCH.format(kernel="violation"), "error", FAKE_RULES="1")
        output = started.communicate(timeout=120)[1]
        assert started.returncode == 1
        assert "KContractViolation: violation for sm_" in output.splitlines()[-3]


TUNED = """
import torch, triton, kernels_used as k
tuned = triton.autotune([triton.Config({{}}, num_warps=w) for w in (8, 4, 2)], key=[])(k.{kernel})
x, y = torch.randn(128, device="cuda"), torch.zeros(128, device="cuda")
tuned[(1,)](x, y, N=128)
assert torch.equal(x, y)
print("best", tuned.best_config.num_warps)
"""


def test_autotuning_drops_a_candidate_that_does_not_fit(world: World) -> None:
    world.run(TUNED.format(kernel="clean"))
    assert world.checked() == ["clean"] * 3
    for _ in range(2):  # misses, then hits
        output = world.run(TUNED.format(kernel="misfit"), "error", FAKE_RULES="1")
        assert "candidate refused: misfit" in output
        assert "best 8" not in output


MODEL = """
import torch, torch._dynamo.utils
from torch._inductor.async_compile import AsyncCompile
if {workers}:
    AsyncCompile.wait_pool_ready()
@torch.compile
def model(x, w):
    h = torch.nn.functional.layer_norm(x, (512,)) @ w
    return torch.softmax(h, -1).sum(0) + torch.sin(x).amax(0)
if __name__ == "__main__":
    x, w = torch.randn(256, 512, device="cuda"), torch.randn(512, 512, device="cuda")
    model(x, w)
    torch.cuda.synchronize()
    print("hits", torch._dynamo.utils.counters["inductor"]["fxgraph_cache_hit"])
"""


def compile_model(world: World, mode: str = "1", *, threads: int, rules: str = "every") -> str:
    folder = world.folder / "inductor"
    more = {"TORCHINDUCTOR_CACHE_DIR": str(folder), "TORCHINDUCTOR_COMPILE_THREADS": str(threads), "FAKE_RULES": rules}
    environ = world.environment(mode, **more)
    del environ["TRITON_CACHE_DIR"]  # torch names one of its own
    command = [world.python, "-c", MODEL.format(workers=threads > 1)]
    done = subprocess.run(command, env=environ, cwd=world.folder, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def read_in_full(world: World) -> bool:
    """Whether each kernel was read with its TTGIR, PTX and cubin."""
    evidence = [r["evidence"] for r in world.records("finding")]
    print(evidence)
    return bool(evidence) and all(e == {"ttgir": True, "ptx": True, "cubin": True} for e in evidence)


def said(output: str) -> int:
    return output.count("hazard[by-name]")


def test_torch_compile_cold_and_from_its_caches(world: World) -> None:
    cold = compile_model(world, threads=1)
    kernels = world.checked()
    print(cold, kernels)
    assert "hits 0" in cold
    assert len(kernels) >= 2
    assert said(cold) == len(kernels)

    world.report.unlink()
    hit = compile_model(world, threads=1)
    assert "hits 1" in hit
    launched = world.checked()
    assert launched and set(launched) <= set(kernels)
    assert said(hit) == len(launched)
    assert read_in_full(world)

    for folder in Path(world.folder / "inductor").glob("triton*"):  # the bundle in torch's cache is left
        shutil.rmtree(folder)
    world.report.unlink()
    bundled = compile_model(world, threads=1)
    assert "hits 1" in bundled
    assert sorted(world.checked()) == sorted(launched)
    assert said(bundled) == len(launched)
    assert read_in_full(world)


def test_compile_workers_speak_through_the_parent(world: World) -> None:
    output = compile_model(world, threads=4)
    kernels = world.checked()
    print(output, kernels)
    assert len(kernels) >= 2
    assert said(output) == len(kernels)
    keys = [r["key"] for r in world.records() if r["gate"] == "PRC-02"]
    assert len(keys) == len(set(keys))  # the parent did not check again what its workers had checked
    assert list(world.temporary.glob("kcontract-*")) == []


def test_torch_compile_in_error_mode_without_violations(world: World) -> None:
    compile_model(world, "error", threads=4, rules="1")
    assert len(world.checked()) >= 2
