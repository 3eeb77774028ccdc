"""Every kernel of the corpus is judged as its file says, and each faulty one passes the customary check before that."""

import pytest
import torch
from corpus_files import Case, cases, customary, read

from kcontract.dynamic.verify import verify

FAULTY, HONEST = cases("faulty"), cases("honest")
PAIRS = [pytest.param(c, name, id=f"{c.name}-{name}") for c in FAULTY + HONEST for name in c.classes]
GATES = ("CMP-01", "CMP-02", "CMP-03", "ORD-01", "ORD-02", "ORD-03", "EXC-01", "EXC-02", "PRC-01", "PRC-02",
         "CFG-01", "MEM-01", "RES-01")  # fmt: skip
#: One file a gate, and two honest ones: what the default run judges.
SAMPLE = (
    "cmp01_eps_left_out", "cmp02b_no_weight_gradient", "cmp03a_padding_lanes", "ord01_products_rounded",
    "ord02f_output_kept", "exc01a_maximum_drops_nan", "prc02c_sum_in_bfloat16", "mem01_halo_times_zero",
    "padded_softmax",
)  # fmt: skip
SIMULATOR = "sim:sm_90"
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def judged(case: Case, name: str, engine: str) -> str:
    return case.disagreement(name, verify(case.problem(name), engine=engine))


def test_each_gate_has_three_faulty_kernels():
    for gate in GATES:
        assert sum(gate in case.expect for case in FAULTY) >= 3, gate


def test_each_faulty_kernel_has_a_twin():
    for case in FAULTY:
        twins = {"ModelNew"} if "REF-01" in case.expect else {"ModelNew", "Repaired"}
        assert set(case.classes) == twins, case.name
        assert case.expect or case.head.get("EXPECT_STATIC"), case.name
        assert case.head["SOURCE"]


@pytest.mark.parametrize("case, name", [p for p in PAIRS if p.values[0].name in SAMPLE])
def test_sample(case: Case, name: str):
    assert judged(case, name, SIMULATOR) == ""


@pytest.mark.parametrize("case", [c for c in FAULTY if c.name in SAMPLE], ids=lambda c: c.name)
def test_sample_passes_the_customary_check(case: Case):
    assert customary(case, SIMULATOR) == ""


@pytest.mark.slow
@pytest.mark.parametrize("case, name", PAIRS)
def test_verdicts(case: Case, name: str):
    if reason := case.left_out(SIMULATOR):
        pytest.skip(reason)
    assert judged(case, name, SIMULATOR) == ""


@pytest.mark.slow
@pytest.mark.parametrize("case, name", [p for p in PAIRS if p.values[0] in FAULTY])
def test_customary_check_passes(case: Case, name: str):
    assert customary(case, SIMULATOR, name) == ""


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("case, name", PAIRS)
def test_verdicts_on_a_gpu(case: Case, name: str):
    if reason := case.left_out("gpu"):
        pytest.skip(reason)
    assert judged(case, name, "gpu") == ""


def test_a_missing_constant_is_not_so(tmp_path):
    (tmp_path / "a.py").write_text("SOURCE = 'own'\nclass ModelNew:\n    pass\n")
    case = read(tmp_path / "a.py")
    assert (case.expect, case.also, case.classes) == ((), (), ("ModelNew",))
