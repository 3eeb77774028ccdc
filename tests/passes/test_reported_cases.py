"""Faults and false alarms from public reports, each as a small kernel of our own beside its repaired twin.

The name of each test gives the report it comes from.
"""

import accumulating
import budgets
import compiled
import pytest
import triton
import triton.language as tl

from kcontract.ir.artifact import Artifact
from kcontract.model import Level
from kcontract.passes.base import check

HALF = {"x": "*fp16", "o": "*fp16"}


def found(made, rule):
    """(level, message) of a rule's findings."""
    report = check(Artifact.from_compiled(made.metadata, made.asm), select=[rule])
    assert report.errors == ()
    return [(finding.level, finding.message) for finding in report.findings]


def sums(fn, signature, constants, target=90, **options):
    return found(compiled.compile_kernel(fn, signature, constants, target, **options), "half-precision-accumulator")


@triton.jit
def sum_of_squares(x, o, N: tl.constexpr, WIDE: tl.constexpr):
    value = tl.load(x + tl.arange(0, N))
    if WIDE:
        value = value.to(tl.float32)
    tl.store(o, tl.sum(value * value, axis=0).to(tl.float32))


@triton.jit
def tf32_dot(a, b, c, M: tl.constexpr, N: tl.constexpr, B: tl.constexpr):
    r, s, d = tl.arange(0, M), tl.arange(0, N), tl.arange(0, B)
    acc = tl.dot(tl.load(a + r[:, None] * B + d[None, :]), tl.load(b + d[:, None] * N + s[None, :]))
    tl.store(c + r[:, None] * N + s[None, :], acc)


@triton.jit
def one_accumulator(a, b, c, scale, M: tl.constexpr, N: tl.constexpr, B: tl.constexpr, SCALED: tl.constexpr):
    r, s, d = tl.arange(0, M), tl.arange(0, N), tl.arange(0, B)
    left = tl.load(a + r[:, None] * B + d[None, :])
    if SCALED:
        left = (left * scale).to(tl.bfloat16)
    tl.store(c + r[:, None] * N + s[None, :], tl.dot(left, tl.load(b + d[:, None] * N + s[None, :])))


class TestAccumulators:
    def test_torchrec_pr_3730_rows_added_in_fp16_enter_a_wider_sum(self):
        ((level, message),) = sums(accumulating.partial, HALF | {"n": "i32"}, {"B": 128})
        assert level is Level.HAZARD
        assert message == "part of a longer sum of 2 terms kept in float16, wanted float32"
        assert sums(accumulating.loop_sum32, HALF | {"n": "i32"}, {"B": 128}) == []

    @pytest.mark.parametrize(("size", "level"), [(8, Level.NOTE), (4096, Level.VIOLATION)])
    def test_rocm_triton_pr_633_squares_summed_in_fp16(self, size, level):
        signature = {"x": "*fp16", "o": "*fp32"}
        ((got, _),) = sums(sum_of_squares, signature, {"N": size, "WIDE": False})
        assert got is level
        assert sums(sum_of_squares, signature, {"N": size, "WIDE": True}) == []

    def test_pytorch_pr_141052_plain_sum_keeps_sixteen_bits(self):
        ((level, _),) = sums(accumulating.reduce_sum, HALF, {"N": 1024})
        assert level is Level.VIOLATION
        assert sums(accumulating.reduce_sum32, HALF, {"N": 1024}) == []

    @pytest.mark.parametrize("target", [80, 90, 100])
    def test_pytorch_pr_188998_bf16_dot_is_judged_by_its_result_in_ir(self, target):
        signature = {"a": "*bf16", "b": "*bf16", "c": "*bf16", "K": "i32"}
        assert sums(accumulating.dot, signature, {"M": 128, "N": 128, "B": 64, "T": tl.float32}, target) == []

    @pytest.mark.parametrize("target", [80, 90])
    def test_triton_6192_tf32_is_a_format_not_an_accumulator(self, target):
        signature = dict.fromkeys("abc", "*fp32")
        assert sums(tf32_dot, signature, {"M": 64, "N": 64, "B": 32}, target) == []


class TestBudgets:
    def test_vllm_omni_7176_columns_of_tensor_memory(self):
        ((level, message),) = found(budgets.two_products_for(256, depth=32), "over-budget")
        needed = 576 if triton.__version__.startswith("3.9") else 528
        assert (level, message) == (
            Level.VIOLATION,
            f"{needed} Tensor Memory columns needed, wanted at most 512 on sm_100",
        )
        assert found(budgets.two_products_for(128, depth=32), "over-budget") == []

    def test_helion_pr_3007_promoted_left_operand(self):
        signature = {"a": "*bf16", "b": "*bf16", "c": "*fp32", "scale": "fp32"}
        sizes = {"M": 256, "N": 256, "B": 64}

        def columns(scaled):
            made = compiled.compile_kernel(one_accumulator, signature, {**sizes, "SCALED": scaled}, 100, num_warps=8)
            return [message for _, message in found(made, "over-budget") if "Tensor Memory" in message]

        (message,) = columns(True)
        assert message.endswith("Tensor Memory columns needed, wanted at most 512 on sm_100")
        assert columns(False) == []

    @pytest.mark.parametrize(("target", "limit"), [(120, 101376), (75, 65536)])
    def test_vllm_36802_shared_memory_differs_by_architecture(self, target, limit):
        signature = {"a": "*fp16", "b": "*fp16", "c": "*fp16", "K": "i32"}

        def over(depth, target):
            constants = {"M": 128, "N": 128, "B": depth, "T": tl.float32}
            made = compiled.compile_kernel(accumulating.dot, signature, constants, target, num_stages=1, num_warps=8)
            return [m for level, m in found(made, "over-budget") if level is Level.VIOLATION]

        (message,) = over(256, target)
        assert f"bytes of shared memory needed, wanted at most {limit} on sm_{target}" in message
        assert over(256, 90) == []
        assert over(64, target) == []

    @pytest.mark.parametrize("target", [75, 80, 90, 100, 120])
    def test_triton_1756_stack_of_sine_is_no_spill(self, target):
        assert found(compiled.sincos_for(target), "over-budget") == []
