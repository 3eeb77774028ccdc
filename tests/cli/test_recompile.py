"""``check --target`` and ``check --suggest`` compile again what Triton kept, and judge the result."""

import re
import subprocess
import sys
import warnings

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kcontract.dynamic.engines.recompile import alternatives, options_of, recompile
from kcontract.ir.artifact import Artifact
from kcontract.ir.loaders import load_cache
from kcontract.ir.target import Target
from kcontract.passes.base import check


@triton.jit
def matmul(a, b, c, K, M: tl.constexpr, N: tl.constexpr, B: tl.constexpr):
    rows, cols, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, B)
    acc = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, K, B):
        left = tl.load(a + rows[:, None] * K + (start + depth)[None, :])
        acc = tl.dot(left, tl.load(b + (start + depth)[:, None] * N + cols[None, :]), acc)
    tl.store(c + rows[:, None] * N + cols[None, :], acc)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache with one kernel of five stages, too large for sm_90."""
    folder = tmp_path_factory.mktemp("cache")
    types = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "K": "i32", **dict.fromkeys("MNB", "constexpr")}
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(4)}
    source = ASTSource(matmul, types, {"M": 128, "N": 256, "B": 64}, aligned)
    with triton.knobs.cache.scope(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        triton.knobs.cache.dir = str(folder)
        triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8, "num_stages": 6})
    return folder


def kcontract(*arguments):
    return subprocess.run([sys.executable, "-m", "kcontract", *map(str, arguments)], capture_output=True, text=True)


def test_each_suggestion_was_compiled_and_fits(cache):
    done = kcontract("check", "--suggest", "--gate", "RES-02", cache)
    assert done.returncode == 1
    assert re.search(r"help: num_stages=\d fits \(compiled and checked:", done.stdout)
    (artifact,) = load_cache(cache)
    stages = int(done.stdout.split("num_stages=")[1].split(" ")[0])
    made = recompile(artifact, artifact.target, {**options_of(artifact), "num_stages": stages})
    assert check(made, select=["over-budget"]).open_findings() == ()
    over = recompile(artifact, artifact.target, {**options_of(artifact), "num_stages": stages + 1})
    assert check(over, select=["over-budget"]).open_findings() != ()


def test_another_target_is_a_hazard_and_the_compiled_one_a_violation(cache):
    done = kcontract("check", "--target", "sm_120", "--gate", "RES-02", cache)
    assert done.returncode == 0
    assert "hazard[over-budget]" in done.stdout
    assert "wanted at most 101376 on sm_120" in done.stdout
    done = kcontract("check", "--target", "sm_90", "--gate", "RES-02", cache)
    assert done.returncode == 1
    assert "violation[over-budget]" in done.stdout


def test_suggestions_for_another_target(cache):
    done = kcontract("check", "--target", "sm_120", "--suggest", "--gate", "RES-02", cache)
    assert re.search(r"num_stages=\d fits \(compiled and checked:", done.stdout)


def test_options_are_those_it_was_compiled_with(cache):
    (artifact,) = load_cache(cache)
    assert options_of(artifact)["num_warps"] == 8
    phrases = [phrase for phrase, _ in alternatives(artifact, "shared memory")]
    assert phrases == ["num_stages=5", "num_stages=4", "num_stages=3", "num_stages=2", "num_stages=1"]
    assert list(alternatives(artifact, "tensor memory")) == []


def test_what_cannot_be_compiled_again_is_a_sentence(cache, tmp_path):
    (artifact,) = load_cache(cache)
    lost = Artifact(artifact.kernel, artifact.target, artifact.ttgir, origin=str(tmp_path / "matmul"))
    assert "there is no matmul.ttir beside it" in recompile(lost, Target.parse("sm_80"), {})
    (tmp_path / "matmul.ttir").write_text("module {")
    assert "does not compile for sm_80" in recompile(lost, Target.parse("sm_80"), {})
    assert "does not compile for sm_15" in recompile(artifact, Target.parse("sm_15"), {})
