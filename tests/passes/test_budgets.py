"""Budgets on real compiler output: what fits passes, what does not is a violation, what is unknown stays undecided."""

import accumulating
import budgets
import compiled
import pytest
import triton.language as tl

from kcontract.ir.artifact import Artifact
from kcontract.ir.launch import Launch
from kcontract.ir.resources import Resources
from kcontract.ir.target import Target
from kcontract.model import Level, Status
from kcontract.passes.analysis.occupancy import occupancy
from kcontract.passes.base import check


def artifact(made):
    return Artifact.from_compiled(made.metadata, made.asm)


def judge(made, **more):
    """(status, messages of violations) of RES-02."""
    report = check(made if isinstance(made, Artifact) else artifact(made), select=["RES-02"], **more)
    assert report.errors == ()
    verdict = next(v for v in report.verdicts if v.gate == "RES-02")
    return verdict.status, [f.message for f in report.findings if f.level is Level.VIOLATION]


@pytest.mark.parametrize("target", compiled.TARGETS)
def test_ordinary_kernels_fit(target):
    assert judge(compiled.add_for(target)) == (Status.PASS, [])
    assert judge(compiled.sincos_for(target)) == (Status.PASS, [])


def test_tensor_memory_after_promotion():
    import triton

    needed = 576 if triton.__version__.startswith("3.9") else 544
    status, (message,) = judge(budgets.two_products_for(256))
    assert (status, message) == (Status.FAIL, f"{needed} Tensor Memory columns needed, wanted at most 512 on sm_100")
    assert judge(budgets.two_products_for(128)) == (Status.PASS, [])


def test_the_finding_stands_at_the_product():
    report = check(artifact(budgets.two_products_for(256)), select=["over-budget"])
    assert "tl.dot(" in budgets.source_line(report.findings[0].location.user())


@pytest.mark.parametrize(("target", "status"), [(90, Status.PASS), (120, Status.FAIL)])
def test_shared_memory_by_target(target, status):
    signature = {"a": "*fp16", "b": "*fp16", "c": "*fp16", "K": "i32"}
    constants = {"M": 128, "N": 256, "B": 256, "T": tl.float32}
    made = compiled.compile_kernel(accumulating.dot, signature, constants, target, num_warps=8, num_stages=1)
    found, messages = judge(made)
    assert found is status
    assert all("bytes of shared memory needed, wanted at most 101376 on sm_120" in message for message in messages)


def test_registers_of_a_block():
    made = artifact(compiled.add_for(90))
    fat = Artifact("k", made.target, ptx=made.ptx, cubin=made.cubin, metadata={**made.metadata, "num_warps": 4})
    assert judge(fat)[0] is not Status.FAIL
    # 255 registers are 8160 a warp, allocated as 8192; 32 warps
    assert budgets.registers(Resources(registers=255, threads=1024), made.target) == 8192 * 32


def test_warp_specialised_kernels_fit():
    assert judge(compiled.specialized_for(100)) == (Status.PASS, [])


def test_register_pool_that_hangs():
    status, (message,) = judge(budgets.pool_for("inc", 232))
    assert status is Status.FAIL
    assert message == "464 registers a thread of all warp groups together needed, wanted at most 256 on sm_90"
    assert judge(budgets.pool_for("dec", 96)) == (Status.PASS, [])


def test_missing_metadata_is_undecided_never_a_pass():
    full = artifact(compiled.add_for(90))
    for parts in ({}, {"ptx": full.ptx}, {"ttgir": full.ttgir}, {"cubin": full.cubin}):
        assert judge(Artifact(full.kernel, full.target, **parts))[0] is Status.UNDECIDED


def test_unknown_target_is_undecided():
    full = artifact(compiled.add_for(90))
    unknown = Artifact(full.kernel, Target.parse("sm_199"), full.ttgir, full.ptx, full.cubin, full.metadata)
    assert judge(unknown) == (Status.UNDECIDED, [])


def test_grid_of_a_launch():
    made = artifact(compiled.add_for(90))
    status, (message,) = judge(made, launches=(Launch((1, 65538, 1)),))
    assert (status, message) == (Status.FAIL, "65538 programs along y needed, wanted at most 65535 on sm_90")
    assert judge(made, launches=(Launch((2**31 - 1, 65535, 65535)),)) == (Status.PASS, [])


class TestSpills:
    def notes(self, made):
        return [f.message for f in check(artifact(made), select=["over-budget"]).findings if f.level is Level.NOTE]

    def test_a_bound_on_registers_spills(self):
        (message,) = self.notes(compiled.matmul_for(90, maxnreg=96))
        assert "bytes a thread spilled to memory" in message

    def test_sine_and_cosine_do_not(self):
        assert self.notes(compiled.sincos_for(90)) == []
        assert self.notes(compiled.sincos_for(80)) == []


@pytest.mark.parametrize(
    ("resources", "target", "wanted"),
    [
        # registers a warp: 64 * 32 = 2048; 4 warps: 8192 of 65536
        (Resources(registers=64, threads=128, shared=0), "sm_90", (8, "registers")),
        (Resources(registers=32, threads=128, shared=98304), "sm_90", (2, "shared memory")),
        (Resources(registers=16, threads=1024, shared=0), "sm_90", (2, "threads")),
        (Resources(registers=16, threads=32, shared=0), "sm_90", (32, "blocks")),
        (Resources(registers=64, threads=128, shared=1000, tmem_columns=257), "sm_100", (1, "Tensor Memory")),
    ],
)
def test_occupancy(resources, target, wanted):
    assert occupancy(resources, Target.parse(target)) == wanted


def test_occupancy_of_the_unknown():
    assert occupancy(Resources(registers=64, threads=128), Target.parse("sm_90")) is None
    assert occupancy(Resources(registers=64, threads=128, shared=0), Target.parse("sm_110")) is None
