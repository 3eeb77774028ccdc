"""The ledger on real compiler output: each way to accumulate, its kind, its type, its number of terms."""

from pathlib import Path

import accumulating as kernels
import pytest
import triton.language as tl
from compiled import compile_kernel

from kcontract.ir.artifact import Artifact
from kcontract.ir.launch import Fact, Launch
from kcontract.model import Accumulator, Contract, Level, Status
from kcontract.passes.analysis.accumulations import SINKS, Ledger
from kcontract.passes.base import Facts, check

HALF, BRAIN, SINGLE = ({"x": f"*{t}", "o": f"*{t}"} for t in ("fp16", "bf16", "fp32"))
DOT = {"a": "*fp16", "b": "*fp16", "c": "*fp16"}
SIZES = {"M": 128, "N": 128, "B": 64}


def artifact(name, signature, constants, target=90):
    compiled = compile_kernel(getattr(kernels, name), signature, constants, target)
    return Artifact.from_compiled(compiled.metadata, compiled.asm)


def sums(made):
    """(kind, element, terms, narrow) of each accumulator."""
    rows = Ledger(Facts(made)).sums()
    return [(row.kind, row.element, str(row.terms), row.narrow) for row in rows]


UNKNOWN = "an unknown number of"
N = {"n": "i32"}
CASES = [
    ("reduce_sum", HALF, {"N": 4096}, [("reduce", "f16", "4096", True)]),
    ("reduce_sum32", HALF, {"N": 4096}, [("reduce", "f32", "4096", False)]),
    ("reduce_max", HALF, {"N": 4096}, []),
    ("scan_sum", HALF, {"N": 1024}, [("scan", "f16", "1024", True)]),
    ("loop_sum", BRAIN | N, {"B": 128}, [("loop sum", "bf16", UNKNOWN, True)]),
    ("loop_sum_long", BRAIN, {"B": 128, "T": 256}, [("loop sum", "bf16", "256", True)]),
    ("loop_sum32", BRAIN | N, {"B": 128}, [("loop sum", "f32", UNKNOWN, False)]),
    ("name_only", HALF | N, {"B": 128}, [("loop sum", "f16", UNKNOWN, True)]),
    ("both", HALF | N | {"p": "*fp16"}, {"B": 128}, [("loop sum", "f32", UNKNOWN, False)]),
    ("decay", BRAIN | N, {"B": 128}, [("recurrence", "bf16", UNKNOWN, True)]),
    ("partial", HALF | N, {"B": 128}, [("partial", "f16", "2", True), ("loop sum", "f32", UNKNOWN, False)]),
    ("atomic", HALF, {"N": 128}, [("atomic", "f16", UNKNOWN, True)]),
    ("atomic", SINGLE, {"N": 128}, [("atomic", "f32", UNKNOWN, False)]),
    ("memory_sum", BRAIN | N, {"B": 128}, [("loop sum", "bf16", UNKNOWN, True)]),
    ("rmw_once", BRAIN, {"B": 128}, []),
    ("chain5", {"a": "*fp16", "o": "*fp16"}, {"B": 128}, [("chain", "f16", "5", True)]),
    ("while_sum", HALF | N, {"B": 128}, [("loop sum", "f16", UNKNOWN, True)]),
    ("packed_sum", {"x": "*i32", "o": "*i32"} | N, {"B": 128}, [("loop sum", "f16", UNKNOWN, True)]),
    ("packed_add", {"x": "*i32", "y": "*i32", "o": "*i32"}, {"B": 128}, []),
    ("count_mask", {"x": "*fp32", "o": "*fp16"}, {"N": 2048}, [("reduce", "f16", "2048", False)]),
    ("count_mask", {"x": "*fp32", "o": "*fp16"}, {"N": 4096}, [("reduce", "f16", "4096", True)]),
    ("masked_sum", HALF | N, {"B": 4096}, [("reduce", "f16", "1 to 4096", True)]),
    ("masked_sum", HALF, {"n": 1000, "B": 1024}, [("reduce", "f16", "1000", True)]),
    ("pick", HALF | {"k": "i32"}, {"B": 2048}, [("reduce", "f16", "1", False)]),
    ("product", HALF, {"N": 2048}, [("product", "f16", "2048", True)]),
]


@pytest.mark.parametrize(("name", "signature", "constants", "wanted"), CASES)
def test_kind_type_and_terms(name, signature, constants, wanted):
    assert sums(artifact(name, signature, constants)) == wanted


@pytest.mark.parametrize("target", [80, 90, 100, 120])
@pytest.mark.parametrize(("type", "element"), [(tl.float16, "f16"), (tl.float32, "f32")], ids=["fp16", "fp32"])
def test_dot_accumulators(target, type, element):
    made = artifact("dot", DOT | {"K": "i32"}, SIZES | {"T": type}, target)
    ((_, found, terms, narrow),) = sums(made)
    assert (found, narrow) == (element, element == "f16")
    # Blackwell's pipeline peels the first product off the loop, which may then not run at all
    assert terms == ("64 or more" if target == 100 else UNKNOWN)


@pytest.mark.parametrize("target", [90, 100])
def test_honest_attention_has_no_narrow_sum(target):
    pointers = dict.fromkeys("qkvo", "*fp16")
    found = sums(artifact("attention", pointers | N, {"M": 128, "D": 64, "B": 64}, target))
    assert len(found) >= 4
    assert not any(narrow for *_, narrow in found)


@pytest.mark.parametrize("target", [90, 100])
def test_every_sink_has_a_class(target):
    made = artifact("attention", dict.fromkeys("qkvo", "*fp16") | N, {"M": 128, "D": 64, "B": 64}, target)
    rows = Ledger(Facts(made)).rows
    floats = [op for op in made.module.find(*SINKS) if not op.results or "i" not in op.results[0].type.element[:1]]
    assert len(rows) == len(floats)
    kinds = {"dot", "mma", "loop sum", "recurrence", "chain", "partial", "reduce", "scan", "atomic"}
    assert {row.kind for row in rows} <= kinds | {"elementwise", "combine", "order"}


def level(made, **more):
    report = check(made, select=["half-precision-accumulator"], **more)
    assert report.errors == ()
    return [finding.level for finding in report.findings]


class TestLevels:
    def test_limits_of_float16_and_bfloat16(self):
        assert level(artifact("reduce_sum", HALF, {"N": 1024})) == [Level.VIOLATION]
        assert level(artifact("reduce_sum", HALF, {"N": 512})) == [Level.NOTE]
        assert level(artifact("reduce_sum", BRAIN, {"N": 128})) == [Level.VIOLATION]
        assert level(artifact("reduce_sum", BRAIN, {"N": 64})) == [Level.NOTE]

    def test_unknown_length_is_a_hazard_until_somebody_states_it(self):
        made = artifact("loop_sum", BRAIN | N, {"B": 128})
        assert level(made) == [Level.HAZARD]
        assert level(made, contract=Contract(ranges={"n": (1, 100)})) == [Level.NOTE]
        assert level(made, contract=Contract(ranges={"n": (1, 4096)})) == [Level.HAZARD]
        assert level(made, contract=Contract(ranges={"n": (512, 4096)})) == [Level.VIOLATION]

    def test_masked_lanes_are_no_terms(self):
        made = artifact("masked_sum", HALF | N, {"B": 4096})
        assert level(made) == [Level.HAZARD]
        assert level(made, contract=Contract(ranges={"n": (1024, 4096)})) == [Level.VIOLATION]
        assert level(made, launches=(Launch((1, 1, 1), {"n": Fact(100, 100)}),)) == [Level.NOTE]
        assert level(artifact("masked_sum", HALF, {"n": 1000, "B": 1024})) == [Level.NOTE]
        assert level(artifact("masked_sum", HALF, {"n": 1024, "B": 1024})) == [Level.VIOLATION]

    def test_a_loop_that_may_not_run_adds_nothing(self):
        made = artifact("dot", DOT | {"K": "i32"}, {"M": 64, "N": 16, "B": 512, "T": tl.float16}, 100)
        assert level(made) == [Level.HAZARD]

    def test_launches_seen(self):
        made = artifact("loop_sum", BRAIN | N, {"B": 128})
        assert level(made, launches=(Launch((1, 1, 1), {"n": Fact(300, 300)}),)) == [Level.VIOLATION]
        short = (Launch((1, 1, 1), {"n": Fact(8, 8)}),)
        assert level(made, launches=short) == [Level.NOTE]

    def test_declared_accumulator(self):
        made = artifact("reduce_sum", HALF, {"N": 4096})
        assert level(made, contract=Contract(accumulator=Accumulator.INPUT)) == []
        assert level(made, contract=Contract(waivers={"PRC-02": "measured"})) == [Level.VIOLATION]
        report = check(made, contract=Contract(waivers={"PRC-02": "measured"}))
        assert report.findings[0].waived == "measured"

    def test_verdicts(self):
        def verdict(made):
            return next(v for v in check(made).verdicts if v.gate == "PRC-02").status

        assert verdict(artifact("reduce_sum", HALF, {"N": 4096})) is Status.FAIL
        assert verdict(artifact("reduce_sum32", HALF, {"N": 4096})) is Status.PASS
        assert verdict(artifact("loop_sum", BRAIN | N, {"B": 128})) is Status.UNDECIDED
        assert verdict(artifact("reduce_max", HALF, {"N": 4096})) is Status.NOT_APPLICABLE
        nothing = artifact("reduce_max", HALF, {"N": 4096})
        bare = Artifact("k", nothing.target, metadata=nothing.metadata)
        assert verdict(bare) is Status.UNDECIDED


def test_finding_stands_at_the_users_line():
    made = artifact("reduce_sum", HALF, {"N": 4096})
    (finding,) = check(made, select=["PRC-02"]).findings
    place = finding.location.user()
    line = Path(place.file).read_text().splitlines()[place.line - 1]
    assert "tl.sum(" in line
    assert finding.message == "sum of 4096 terms kept in float16, wanted float32"


@pytest.mark.parametrize(("type", "element"), [(tl.float16, "f16"), (tl.float32, "f32")], ids=["fp16", "fp32"])
@pytest.mark.parametrize("target", [80, 90, 100])
def test_the_accumulator_read_from_ptx_alone_agrees(target, type, element):
    full = artifact("dot", DOT | {"K": "i32"}, SIZES | {"T": type}, target)
    alone = Artifact(full.kernel, full.target, ptx=full.ptx)
    matrix = {row.element for row in Ledger(Facts(alone)).rows if row.kind == "mma"}
    assert matrix == {element}
