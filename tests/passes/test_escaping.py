"""No 16-bit sum is called proved, however it is written; honest look-alikes are not blamed."""

import escaping as kernels
import pytest
from compiled import compile_kernel

from kcontract.ir.artifact import Artifact
from kcontract.model import Level, Status
from kcontract.passes.base import check

BRAIN = {"x": "*bf16", "o": "*bf16"}
N = {"n": "i32"}
DOT = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "K": "i32", "SCALE": "fp32"}
SIZES = {"M": 128, "N": 128, "B": 64}


def judge(made):
    report = check(made, select=["half-precision-accumulator"])
    assert report.errors == ()
    status = next(verdict.status for verdict in report.verdicts if verdict.gate == "PRC-02")
    return status, [finding.level for finding in report.findings]


def compiled(name, signature, constants, target=90):
    made = compile_kernel(getattr(kernels, name), signature, constants, target)
    return Artifact.from_compiled(made.metadata, made.asm)


@pytest.mark.parametrize(
    ("name", "signature", "constants", "status"),
    [
        ("reduce_rounding", BRAIN, {"N": 4096}, Status.FAIL),
        ("tuple_second", BRAIN, {"N": 4096}, Status.FAIL),
        ("sum_of_sums", BRAIN, {"N": 64}, Status.UNDECIDED),
        ("running_mean", BRAIN | N, {"B": 128}, Status.UNDECIDED),
        ("unrolled", BRAIN, {"B": 128, "T": 200}, Status.FAIL),
        ("rounded_now_and_then", BRAIN | N, {"B": 128}, Status.UNDECIDED),
        ("through_a_call", BRAIN | N, {}, Status.UNDECIDED),
        ("as_bits", BRAIN | N, {"B": 128}, Status.UNDECIDED),
        ("through_memory", BRAIN | N | {"m": "i32"}, {"B": 128}, Status.UNDECIDED),
    ],
)
def test_not_proved(name, signature, constants, status):
    assert judge(compiled(name, signature, constants))[0] is status


@pytest.mark.parametrize("target", [80, 90, 100])
@pytest.mark.parametrize("half", [False, True])
def test_accumulators_rounded_on_every_trip(target, half):
    pointer = "*fp16" if half else "*fp32"
    made = compiled("dot_rounded", DOT | {"c": pointer}, SIZES | {"HALF": half}, target)
    assert judge(made) == (Status.UNDECIDED, [Level.HAZARD])


@pytest.mark.parametrize("target", [80, 90, 100])
def test_an_accumulator_rescaled_in_float32_passes(target):
    assert judge(compiled("dot_rescaled", DOT, SIZES, target)) == (Status.PASS, [])


def test_honest_look_alikes():
    assert judge(compiled("tuple_greatest", BRAIN, {"N": 4096})) == (Status.PASS, [])
    counts = {"x": "*fp32", "o": "*fp16"}
    assert judge(compiled("count_in_a_loop", counts, {"B": 128, "T": 1024}))[1] == []
    assert judge(compiled("count_in_a_loop", counts, {"B": 128, "T": 4096}))[1] == [Level.VIOLATION]
    assert judge(compiled("count_from_a_loaded_value", counts, {"B": 128, "T": 1024}))[1] == [Level.VIOLATION]


def test_ptx_alone_proves_no_16_bit_sum():
    full = compiled("reduce_rounding", BRAIN, {"N": 4096})
    assert judge(Artifact(full.kernel, full.target, ptx=full.ptx))[0] is Status.UNDECIDED
