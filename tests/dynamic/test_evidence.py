"""Extra evidence: what compute-sanitizer and ConSan print is read, and their runs certify nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kcontract.dynamic import evidence
from kcontract.dynamic.problems import kernelbench
from kcontract.dynamic.sandbox.candidate import Candidate
from kcontract.dynamic.verify import verify
from kcontract.errors import UsageError
from kcontract.model import Status

CORPUS = Path(__file__).parents[1] / "corpus"
MEMCHECK = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at shift+0x1f0 in mem01_store_past_end.py:22
=========     by thread (56,0,0) in block (0,0,0)
========= ERROR SUMMARY: 1 error
"""


def test_the_first_fault_of_a_report_is_said_with_its_place() -> None:
    told = evidence.said("memcheck", MEMCHECK)
    assert told == (
        "compute-sanitizer memcheck: Invalid __global__ write of size 4 bytes at shift+0x1f0 in "
        "mem01_store_past_end.py:22"
    )
    assert evidence.said("memcheck", "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n") == ""


def test_a_failed_assertion_of_consan_is_said() -> None:
    printed = "/k/scan.py:31: scan: block: [0,0,0], thread: [3,0,0] Assertion `Buffer being read is written` failed.\n"
    assert evidence.said("consan", printed) == "ConSan: Buffer being read is written (/k/scan.py:31)"
    assert evidence.said("consan", "assertions passed\n") == ""


@pytest.mark.parametrize(
    ("names", "engine", "words"),
    [
        (["memcheck,valgrind"], "gpu", "no sanitizer 'valgrind'; there are memcheck, initcheck"),
        (["memcheck"], "sim:sm_90", "--sanitizer memcheck needs (a CUDA device|--engine gpu, not sim:sm_90)"),
    ],
)
def test_what_cannot_be_had_is_refused(names: list[str], engine: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        evidence.chosen(names, engine)


def test_a_worker_that_is_started_answers_like_one_that_is_forked() -> None:
    problem = kernelbench.load(str(CORPUS / "honest" / "padded_softmax.py"))
    answers = []
    for tool in ("", "consan"):
        with Candidate(problem.candidate, "interpreter", tool=tool) as candidate:
            torch.manual_seed(0)
            answers.append(candidate.call([torch.randn(2, 33)]))
            assert candidate.isolation
    assert answers[0].failure is None and torch.equal(answers[0].values[0], answers[1].values[0])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ["ModelNew", "Repaired"])
def test_memcheck_tells_a_store_past_the_end_and_its_twin_has_a_note(name: str) -> None:
    problem = kernelbench.load(str(CORPUS / "faulty" / "mem01_store_past_end.py"), name=name)
    result = verify(problem, only=["RES-02"], sanitizers=["memcheck", "consan"])
    failed = [v.reason for v in result.report.verdicts if v.status is Status.FAIL]
    if name == "ModelNew":
        assert len(failed) == 1, result.notes
        assert failed[0].startswith("compute-sanitizer memcheck: Invalid __global__ write of size 4")
    else:
        assert not failed and any(n.startswith("memcheck saw nothing on 2 inputs") for n in result.notes)
    assert any(n.startswith("consan saw nothing") for n in result.notes), result.notes
