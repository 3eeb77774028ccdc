"""Each reported order defect as a kernel of our own that fires, and the twin that must not."""

import dataclasses

import order_kernels as k
import pytest
from order_kernels import BF16, F32, artifact, findings

from kcontract.ir.launch import Launch
from kcontract.model import Confidence, Contract, Determinism, Level, Status
from kcontract.passes.base import check
from kcontract.passes.rules.unordered_float_atomic import _PTX

LOCK = {"x": "*fp32", "o": "*fp32", "lock": "*i32"}
LOCK16 = {"x": "*bf16", "o": "*bf16", "lock": "*i32"}
THREE = {"x": "*fp32", "t": "*fp32", "o": "*fp32"}
DESCRIPTOR = {"d": "tensordesc<fp32[64,64]>", "x": "*fp32"}
SPLIT = {"a": "*bf16", "b": "*bf16", "c": "*bf16", **dict.fromkeys(("M", "N", "K", "am", "ck", "cm"), "i32")}
SPLIT32 = {**SPLIT, "c": "*fp32"}
PRODUCT = {"a": "*bf16", "b": "*bf16", "o": "*fp32"}
TILE = {"BLOCK": 64, "BK": 32}


def levels(found):
    return [finding.level for finding in found]


ATOMIC = "unordered-float-atomic"


class TestUnorderedFloatAtomic:
    @pytest.mark.parametrize(
        "kernel, who",
        [
            (k.split_add, "two programs meet"),
            (k.overlapping_add, "two programs meet"),
            (k.pairs_add, "two programs meet"),
            (k.lanes_add, "two lanes meet"),
        ],
    )
    def test_writers_that_meet_are_proved_to(self, kernel, who):
        (found,) = findings(ATOMIC, kernel)
        assert found.level is Level.HAZARD
        assert found.confidence is Confidence.PROVED
        assert who in found.message
        assert len(found.evidence["example"]) == 2

    def test_the_example_is_one(self):
        (found,) = findings(ATOMIC, k.pairs_add)
        first, second = (int(text.rpartition("= ")[2]) for text in found.evidence["example"])
        assert first != second and first // 2 == second // 2

    @pytest.mark.parametrize(
        "kernel",
        [k.row_add, k.tiles_add, k.first_program_adds, k.other_programs_leave, k.count_add, k.persistent_add],
    )
    def test_one_writer_or_exact_sums_are_silent_and_settled(self, kernel):
        assert findings(ATOMIC, kernel) == ()
        verdict = next(v for v in check(artifact(kernel), select=["ORD-02"]).verdicts if v.gate == "ORD-02")
        assert verdict.reason == "needs a run"  # the static part is settled

    def test_loaded_places_are_not_known(self):
        (found,) = findings(ATOMIC, k.scatter_add, {"x": "*fp32", "index": "*i32", "o": "*fp32"})
        assert found.level is Level.HAZARD
        assert found.confidence is Confidence.INFERRED
        assert "may meet" in found.message

    @pytest.mark.parametrize("kernel", [k.in_turn, k.in_turn_by_counter, k.in_turn_by_load])
    def test_sums_that_wait_for_their_turn_are_silent(self, kernel):
        """FA-a: the deterministic attention backward."""
        assert findings(ATOMIC, kernel, LOCK) == ()

    def test_a_lock_gives_no_order(self):
        (found,) = findings(ATOMIC, k.under_lock, LOCK)
        assert "sum under a lock" in found.message

    def test_descriptor_reductions(self):
        (found,) = findings(ATOMIC, k.descriptor_add, DESCRIPTOR, constants={"BLOCK": 64})
        assert "descriptor reduction" in found.message
        assert findings(ATOMIC, k.descriptor_rows_add, DESCRIPTOR, constants={"BLOCK": 64}) == ()

    def test_called_functions(self):
        def found(shared, guard):
            return findings(ATOMIC, k.called_add, constants={"BLOCK": 1, "SHARED": shared, "GUARD": guard})

        assert "two programs meet" in found(True, False)[0].message
        assert found(False, False) == ()
        assert found(True, True) == ()

    def test_inline_assembly(self):
        (found,) = findings(ATOMIC, k.assembly_add)
        assert found.confidence is Confidence.INFERRED

    def test_native_ptx(self):
        made = dataclasses.replace(artifact(k.split_add), ttgir=None)
        assert [f.place.ir for f in check(made, select=[ATOMIC]).findings][:1] == ["ptx"]
        made = dataclasses.replace(artifact(k.copied), ttgir=None)
        assert check(made, select=[ATOMIC]).findings == ()

    @pytest.mark.parametrize(
        "line, element",
        [
            ("red.global.add.f32 [%rd1], %f1;", "f32"),
            ("atom.global.gpu.acq_rel.add.noftz.bf16x2 %r1, [%rd1], %r2;", "bf16x2"),
            ("@%p1 red.relaxed.gpu.global.add.L2::cache_hint.v4.f32 [%rd1], {%f1, %f2, %f3, %f4}, %rd2;", "f32"),
            ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f64 [%rd1], [%r1], 64;", "f64"),
            ("red.global.add.u32 [%rd1], %r1;", None),
            ("atom.global.max.f32 %f1, [%rd1], %f2;", None),
            ("add.f32 %f1, %f2, %f3;", None),
        ],
    )
    def test_forms_of_native_adds(self, line, element):
        match = _PTX.search(line)
        assert (match[1] if match else None) == element

    @pytest.mark.parametrize("element, name", [("fp16", "float16"), ("bf16", "bfloat16"), ("fp64", "float64")])
    def test_every_float_type(self, element, name):
        (found,) = findings(ATOMIC, k.split_add, {"x": f"*{element}", "o": f"*{element}", "n": "i32"})
        assert found.message.startswith(name)

    def test_the_determinism_class_decides(self):
        def level(policy):
            return levels(findings(ATOMIC, k.split_add, contract=Contract(determinism=policy)))

        assert level(Determinism.BITWISE) == [Level.VIOLATION]
        assert level(Determinism.BOUNDED) == [Level.NOTE]
        index = {"x": "*fp32", "index": "*i32", "o": "*fp32"}
        contract = Contract(determinism=Determinism.BITWISE)
        assert levels(findings(ATOMIC, k.scatter_add, index, contract=contract)) == [Level.HAZARD]

    def test_a_grid_that_was_seen_decides_too(self):
        seen = (Launch(grid=(8, 1, 1)),)
        assert findings(ATOMIC, k.split_add, launches=seen) == ()
        assert len(findings(ATOMIC, k.split_add, launches=(Launch(grid=(8, 2, 1)),))) == 1

    def test_the_solver_is_not_asked_about_plain_addresses(self):
        """Its import alone costs more than a compile of a small kernel may."""
        import subprocess
        import sys

        code = (
            "import sys, order_kernels as k\n"
            "for f in (k.split_add, k.row_add, k.persistent_add): k.findings('unordered-float-atomic', f)\n"
            "assert 'z3' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code], check=True, env={**_environment()})


def _environment():
    import os
    from pathlib import Path

    here = Path(__file__).resolve().parent
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parent), str(here.parents[1] / "src")])}


PARTIALS = "half-precision-partials"


class TestHalfPrecisionPartials:
    """ORD-03b, ORD-03c, ORD-01d."""

    @pytest.mark.parametrize("target", [90, 100])
    def test_split_k_in_16_bits(self, target):
        stored = findings(PARTIALS, k.split_k, SPLIT, target, {**TILE, "ATOMIC": False})
        assert levels(stored) == [Level.HAZARD]
        assert "partial sum of a split stored in bf16" in stored[0].message
        added = findings(PARTIALS, k.split_k, SPLIT, target, {**TILE, "ATOMIC": True})
        assert levels(added) == [Level.HAZARD]
        assert "atomic add of a partial sum in bf16" in added[0].message

    @pytest.mark.parametrize("target", [90, 100])
    def test_split_k_in_32_bits_and_whole_products(self, target):
        for atomic in (False, True):
            assert findings(PARTIALS, k.split_k, SPLIT32, target, {**TILE, "ATOMIC": atomic}) == ()
        assert findings(PARTIALS, k.whole_k, SPLIT, target, TILE) == ()

    @pytest.mark.parametrize("element, wanted", [("bf16", [Level.HAZARD]), ("fp32", [])])
    def test_parts_added_through_a_descriptor(self, element, wanted):
        signature = {"d": f"tensordesc<{element}[64,64]>", "a": "*bf16", "b": "*bf16"}
        assert levels(findings(PARTIALS, k.split_k_descriptor, signature, constants={"BLOCK": 64})) == wanted

    def test_a_gradient_added_block_by_block(self):
        (found,) = findings(PARTIALS, k.block_gradient, LOCK16)
        assert "added to memory in bf16" in found.message
        assert findings(PARTIALS, k.block_gradient, LOCK) == ()

    def test_atomics_of_single_values_are_not_partials(self):
        assert findings(PARTIALS, k.split_add, BF16) == ()


class TestOnePassVariance:
    """ORD-01a."""

    @pytest.mark.parametrize("kernel", [k.variance_one_pass, k.variance_one_pass_in_loop])
    @pytest.mark.parametrize("signature", [F32, {**F32, "x": "*fp32"}, {**F32, "n": "i64"}])
    def test_fires(self, kernel, signature):
        assert levels(findings("one-pass-variance", kernel, signature)) == [Level.HAZARD]

    @pytest.mark.parametrize("kernel", [k.variance_two_pass, k.covariance])
    def test_silent(self, kernel):
        assert findings("one-pass-variance", kernel) == ()

    def test_the_reported_input_loses_every_digit(self):
        """10240 values of 256, one of them 255, in float32: what the finding warns of."""
        import numpy as np

        x = np.full(10240, 256, np.float32)
        x[17] = 255
        naive = np.mean(x * x, dtype=np.float32) - np.mean(x, dtype=np.float32) ** 2
        assert abs(naive - 9.765e-5) > 9.765e-5


class TestRoundedBeforeReduction:
    """ORD-01e."""

    @pytest.mark.parametrize("target", [80, 90, 100])
    def test_rounded_logits(self, target):
        constants = {"BLOCK": 64, "ROUND": True}
        assert levels(findings("rounded-before-reduction", k.rounded_logits, PRODUCT, target, constants)) == [
            Level.HAZARD
        ]
        constants = {"BLOCK": 64, "ROUND": False}
        assert findings("rounded-before-reduction", k.rounded_logits, PRODUCT, target, constants) == ()


class TestUnclampedDecay:
    """ORD-03a."""

    def test_fires(self):
        assert levels(findings("unclamped-decay", k.decay, constants={"BLOCK": 128, "CLAMP": False})) == [Level.HAZARD]
        assert levels(findings("unclamped-decay", k.decay_pairs)) == [Level.HAZARD]

    def test_silent(self):
        assert findings("unclamped-decay", k.decay, constants={"BLOCK": 128, "CLAMP": True}) == ()
        assert findings("unclamped-decay", k.decay_one) == ()


class TestUnsynchronisedReadback:
    """ORD-02b."""

    def test_fires(self):
        constants = {"BLOCK": 64, "BARRIER": False}
        assert levels(findings("unsynchronised-readback", k.transpose_through_memory, THREE, 90, constants)) == [
            Level.HAZARD
        ]

    def test_silent(self):
        constants = {"BLOCK": 64, "BARRIER": True}
        assert findings("unsynchronised-readback", k.transpose_through_memory, THREE, 90, constants) == ()
        assert findings("unsynchronised-readback", k.same_back, THREE) == ()


class TestUpdateInPlace:
    """ORD-02d, ORD-02h."""

    @pytest.mark.parametrize("kernel, words", [(k.split_add, "o is added to"), (k.scaled_in_place, "o is rewritten")])
    def test_fires(self, kernel, words):
        (found,) = findings("update-in-place", kernel)
        assert found.level is Level.NOTE
        assert words in found.message

    @pytest.mark.parametrize("kernel", [k.set_then_add, k.copied])
    def test_silent(self, kernel):
        assert findings("update-in-place", kernel) == ()


class TestOrderDependsOnLaunch:
    def test_fires(self):
        (found,) = findings("order-depends-on-launch", k.grid_stride_sum)
        assert found.level is Level.NOTE
        assert "the number of programs along x" in found.message
        (found,) = findings("order-depends-on-launch", k.split_sum, {**F32, "num_splits": "i32"})
        assert "argument num_splits" in found.message

    def test_bitwise_contracts_make_it_a_hazard(self):
        contract = Contract(determinism=Determinism.BITWISE)
        assert levels(findings("order-depends-on-launch", k.grid_stride_sum, contract=contract)) == [Level.HAZARD]

    @pytest.mark.parametrize("target", [80, 90, 100])
    def test_persistent_kernels_are_silent(self, target):
        signature = {"a": "*fp16", "b": "*fp16", "c": "*fp16", "tiles": "i32", "K": "i32"}
        assert findings("order-depends-on-launch", k.persistent_matmul, signature, target, TILE) == ()

    def test_a_sum_that_starts_afresh_is_silent(self):
        signature = {"x": "*fp32", "o": "*fp32", "tiles": "i32", "steps": "i32"}
        assert findings("order-depends-on-launch", k.fused_persistent_sum, signature) == ()


def test_reassociation_alone_is_no_finding():
    """FA-b: other bits than an eager sum are no defect, so a plain sum passes all rules of order."""
    import combine_kernels

    made = artifact(combine_kernels.reduce_one, constants={"BLOCK": 1024, "F": "add"})
    report = check(made, select=["ORD-01", "ORD-02", "ORD-03"])
    assert report.findings == ()
    assert {v.status for v in report.verdicts if v.gate.startswith("ORD")} == {Status.UNDECIDED}
    assert {v.reason for v in report.verdicts if v.gate.startswith("ORD")} == {"needs a run"}


@pytest.mark.parametrize("target", [90, 100])
def test_values_that_arrive_through_shared_memory(target):
    made = artifact(k.descriptor_difference, DESCRIPTOR, target, {"BLOCK": 64})
    assert any(not operation.operands for operation in made.module.find("ttg.local_alloc"))
    report = check(made, select=["ORD-01", "ORD-02", "ORD-03"])
    assert report.errors == ()
    assert report.open_findings() == ()
