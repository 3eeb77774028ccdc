import dataclasses

import pytest
from triton.backends.compiler import GPUTarget

from kcontract.errors import InputError
from kcontract.ir.target import SOURCES, TABLE, Target


@pytest.mark.parametrize(
    "given",
    [
        *("sm_90", "sm_90a", "sm90", "SM_90", "cuda:90", 90, "90", ("cuda", 90, 32), GPUTarget("cuda", 90, 32)),
        *({"backend": "cuda", "arch": 90, "warp_size": 32}, TABLE[90]),
    ],
)
def test_all_spellings_name_the_same_target(given):
    assert Target.parse(given) is TABLE[90]


def test_limits_of_the_documents():
    opt_in = {75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227, 120: 99, 121: 99}
    assert {key: row.shared_per_block for key, row in TABLE.items()} == {key: kib * 1024 for key, kib in opt_in.items()}
    assert TABLE[90].shared_per_block == 232448
    assert {key for key, row in TABLE.items() if row.tmem_columns} == {100, 103, 110}
    assert TABLE[100].tmem_columns == 512
    assert all(row.registers_per_thread == 255 and row.threads_per_block == 1024 for row in TABLE.values())
    assert (TABLE[75].threads_per_sm, TABLE[80].threads_per_sm, TABLE[120].threads_per_sm) == (1024, 2048, 1536)
    assert (TABLE[89].cluster_portable, TABLE[90].cluster_portable, TABLE[90].cluster_max) == (1, 8, 16)
    assert TABLE[120].cluster_max is None, "no document states it"
    assert TABLE[90].grid == (2147483647, 65535, 65535)


def test_every_limit_has_a_source():
    limits = {field.name for field in dataclasses.fields(Target)} - {"name", "vendor", "capability", "warp_size"}
    assert set(SOURCES) == limits


def test_a_number_that_the_table_lacks_is_unknown_and_no_error():
    target = Target.parse("sm_777")
    assert (target.name, target.is_nvidia, target.is_known, target.shared_per_block) == ("sm_777", True, False, None)


@pytest.mark.parametrize(
    ("given", "name", "lanes"),
    [
        (GPUTarget("hip", "gfx942", 64), "gfx942", 64),
        ("gfx942", "gfx942", 64),
        ("hip:gfx1100", "gfx1100", 32),
        ({"backend": "hip", "arch": "gfx90a", "warp_size": 64}, "gfx90a", 64),
    ],
)
def test_hip_is_named_and_has_no_limits(given, name, lanes):
    target = Target.parse(given)
    assert (target.name, target.vendor, target.warp_size, target.is_nvidia) == (name, "amd", lanes, False)
    assert target.registers_per_thread is None


@pytest.mark.parametrize(
    "given",
    [
        *("", "H100", "sm_", "cuda:", "sm_9", "a" * 10**6, None, True, 3, -90, 9.0, (), ("cuda",), {}, object()),
        *(("cuda", None, 32), {"backend": 1, "arch": 90}, "cuda:90\n; rm", "sm_٩٠"),
    ],
)
def test_garbage_is_a_sentence(given):
    with pytest.raises(InputError, match=r"names no GPU; write a target such as sm_90"):
        Target.parse(given)


def test_a_number_too_long_to_print_is_a_sentence():
    with pytest.raises(InputError, match="a value of type int names no GPU"):
        Target.parse(10**5000)
