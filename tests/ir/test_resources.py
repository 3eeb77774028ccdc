import dataclasses
import subprocess

import compiled
import pytest
from triton.backends.nvidia.compiler import get_ptxas

from kcontract.ir.artifact import Artifact
from kcontract.ir.resources import Resources
from kcontract.ir.target import Target


def artifact(kernel):
    return Artifact.from_compiled(kernel.metadata, kernel.asm)


def without(made, **parts):
    return dataclasses.replace(made, **parts)


def test_a_plain_kernel_has_every_figure_and_its_source():
    found = artifact(compiled.matmul_for(80, block=64, inner=32)).resources
    assert (found.threads, found.cluster, found.setmaxnreg) == (128, (1, 1, 1), ())
    assert (found.frame, found.local, found.spill_bytes, found.spill_stores, found.spill_loads) == (0, 0, 0, 0, 0)
    assert found.shared == found.dynamic_shared > 0 and found.static_shared == 0
    assert 32 <= found.registers <= 255 and found.maxnreg is None and found.tmem_columns == 0
    assert (found.sources["registers"], found.sources["dynamic_shared"], found.sources["threads"]) == (
        "cubin",
        "metadata",
        "ptx",
    )
    assert "maxnreg" not in found.sources and found.problems == ()


@pytest.mark.parametrize("target", compiled.TARGETS)
def test_the_stack_of_sine_and_cosine_is_no_spill(target):
    found = artifact(compiled.sincos_for(target)).resources
    assert found.local == 28 and found.spill_bytes == 0
    assert found.frame in (0, 32), "some assemblers keep the table in registers"
    assert found.spill_stores in (0, None)


@pytest.mark.parametrize("target", compiled.TARGETS)
def test_a_kernel_starved_of_registers_spills_beside_that_stack(target):
    found = artifact(compiled.sincos_for(target, block=2048, maxnreg=32)).resources
    assert (found.registers, found.maxnreg, found.local) == (32, 32, 28)
    assert found.spill_bytes > 100 and found.spill_stores is None


def test_spills_without_a_stack_of_the_program_are_counted_in_bytes():
    found = artifact(compiled.matmul_for(80, inner=32, maxnreg=64)).resources
    assert found.local == 0 and found.spill_bytes == found.frame > 0
    assert found.spill_stores > 1000 and found.spill_loads > 1000


def test_tensor_memory_columns_come_from_metadata():
    found = artifact(compiled.matmul_for(100)).resources
    assert (found.tmem_columns, found.sources["tmem_columns"]) == (128, "metadata")


def test_tensor_memory_is_unknown_without_metadata_and_none_without_its_instructions():
    blackwell = artifact(compiled.matmul_for(100))
    assert without(blackwell, metadata={}).resources.tmem_columns is None
    assert without(artifact(compiled.add_for(100)), metadata={}).resources.tmem_columns == 0


def test_warp_specialisation_counts_all_warps_and_register_moves():
    found = artifact(compiled.specialized_for(100)).resources
    assert found.threads == 256 and found.maxnreg == 256
    assert ("dec", 24) in found.setmaxnreg and {action for action, _ in found.setmaxnreg} == {"inc", "dec"}


def test_clusters_are_read_from_the_launch_directive():
    made = artifact(compiled.matmul_for(90, num_ctas=2))
    assert (made.resources.cluster, made.resources.sources["cluster"]) == ((2, 1, 1), "ptx")
    assert without(made, ptx=None).resources.sources["cluster"] == "metadata"
    assert without(made, ptx=None, metadata={}).resources.sources["cluster"] == "ttgir"


def test_nothing_known_is_none_and_never_zero():
    bare = Artifact("k", Target.parse(90)).resources
    assert bare == Resources()
    made = without(artifact(compiled.matmul_for(80, block=64, inner=32)), metadata={}, ttgir=None)
    assert made.resources.dynamic_shared is None and made.resources.shared is None


def test_attributes_of_the_module_stand_in_for_metadata():
    text = 'module attributes {ttg.shared = 65552 : i32, ttg.tensor_memory_size = 128 : i32, "ttg.num-warps" = 4 : i32'
    found = Artifact("k", Target.parse(100), ttgir=text + ', "ttg.total-num-warps" = 12 : i32} {\n}\n').resources
    assert (found.dynamic_shared, found.tmem_columns, found.threads) == (65552, 128, 384)
    assert set(found.sources.values()) == {"ttgir"} and found.shared is None


@pytest.mark.parametrize("value", [-1, 2**40, True, "128", None, [1], 1.5])
def test_metadata_that_is_no_count_is_unknown(value):
    names = ("shared", "tmem_size", "maxnreg", "num_warps", "num_ctas")
    found = Artifact("k", Target.parse(90), metadata=dict.fromkeys(names, value)).resources
    assert found == Resources()


@pytest.mark.parametrize(
    ("metadata", "cluster"),
    [
        ({"num_ctas": 1, "cluster_dims": [1, 1, 1]}, (1, 1, 1)),
        ({"num_ctas": 4, "cluster_dims": [2, 2, 1]}, (2, 2, 1)),
        ({"num_ctas": 2, "cluster_dims": [2, "x", 1]}, (2, 1, 1)),
        ({"num_ctas": 2}, (2, 1, 1)),
    ],
)
def test_cluster_shapes_of_older_metadata(metadata, cluster):
    assert Artifact("k", Target.parse(90), metadata=metadata).resources.cluster == cluster


def test_damaged_parts_are_problems_and_leave_the_other_figures():
    made = artifact(compiled.add_for(90))
    hurt = without(made, ptx=made.ptx[:900], cubin=made.cubin[:900]).resources
    assert hurt.registers is None and hurt.setmaxnreg is None and hurt.spill_bytes is None
    assert (hurt.threads, hurt.sources["threads"]) == (128, "metadata")
    assert len(hurt.problems) == 2 and "the PTX cannot be read" in hurt.problems[0] and "cubin" in hurt.problems[1]


def assembled(source, folder):
    path = folder / "kernels.ptx"
    path.write_text(".version 8.0\n.target sm_80\n.address_size 64\n" + source)
    subprocess.run([get_ptxas(80).path, "--gpu-name=sm_80", path, "-o", folder / "out"], check=True)
    return (folder / "out").read_bytes()


def test_the_only_function_of_a_cubin_is_the_kernel_and_of_two_it_is_the_named_one(tmp_path):
    one = ".visible .entry a() .reqntid 32 { ret; }\n"
    other = ".visible .entry b() .reqntid 32 { ret; }\n"
    both = assembled(one + other, tmp_path)
    found = Artifact("c", Target.parse(80), cubin=assembled(one, tmp_path)).resources
    assert found.registers is not None and found.problems == ()
    assert Artifact("b", Target.parse(80), cubin=both).resources.registers is not None
    missing = Artifact("c", Target.parse(80), cubin=both).resources
    assert missing.registers is None and missing.problems == ("the cubin holds no function c",)
