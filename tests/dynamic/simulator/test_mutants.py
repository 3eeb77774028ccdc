"""Damaged PTX ends in one sentence with a line, never in an error of Python's and never not at all."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the launches that are damaged run on torch tensors")
pytest.importorskip("triton", reason="Triton compiles the kernels that are damaged")

sys.path.insert(0, str(Path(__file__).parent))

import mutants
import triton


@pytest.fixture(scope="module")
def seeds() -> list[mutants.Seed]:
    return mutants.seeds()


def outcomes(seeds: list[mutants.Seed], count: int, seed: int) -> Counter[str]:
    """How mutants ended; the test fails at the first without an answer."""
    found: Counter[str] = Counter()
    for index in range(count):
        chosen, text, checked = mutants.make(seed, index, seeds)
        outcome = mutants.attempt(chosen, text, checked)
        assert outcome.startswith(mutants.GOOD), (seed, index, chosen.name, outcome)
        found[outcome.partition(" ")[0]] += 1
    return found


def test_mutants_run_or_end_in_a_sentence(seeds: list[mutants.Seed]) -> None:
    found = outcomes(seeds, 120, seed=1)
    assert min(found["ran"], found["refused"]) > 20, "the mutations are too blunt or too mild"


@pytest.mark.slow
def test_many_mutants(seeds: list[mutants.Seed]) -> None:
    found = outcomes(seeds, 3000, seed=2)
    assert found["fault"] > 50


def test_unchanged_seeds_run(seeds: list[mutants.Seed]) -> None:
    for seed in seeds:
        for checked in (False, True):
            # Triton 3.6 invalidates the mbarrier of its last tcgen05.commit, for which nobody waits.
            early = checked and seed.name == "tma matmul True sm_100" and triton.__version__.startswith("3.6")
            wanted = "fault mbarrier-invalid" if early else "ran"
            assert mutants.attempt(seed, seed.text, checked) == wanted, seed.name


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(KeyError("x"), "KeyError in "), (MemoryError(), "MemoryError in "), (mutants.Alarm(), "took over ")],
)
def test_what_is_no_answer_is_found(
    seeds: list[mutants.Seed], monkeypatch: pytest.MonkeyPatch, error: BaseException, outcome: str
) -> None:
    from kcontract.dynamic.engines.simulator import kernel

    def raising(text: str) -> None:
        raise error

    monkeypatch.setattr(kernel, "decode", raising)
    assert mutants.attempt(seeds[0], seeds[0].text, False).startswith(outcome)


CUT = ".version 8.4\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 out)\n{\n.reg .b32 %r<9>;\n"


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("add.s32 %r1, %r2;\nret;\n}\n", 7),
        ("mov.b32 %r1, %r99;\nret;\n}\n", 7),
        ("mov.b32 %r1, 1;\nfrob.b32 %r1, %r2;\nret;\n}\n", 8),
        ("ld.param.b64 %r1, [nothing];\nret;\n}\n", 7),
        (".shared .b8 mem[999999999999];\nret;\n}\n", 7),
        (".local .align 16 .b8 mem[999999999999];\nret;\n}\n", 7),
        ("bra nowhere;\nret;\n}\n", 7),
        ("mov.b32 %r1, 1;\n", 7),
    ],
)
def test_refusals_name_the_line(body: str, line: int) -> None:
    import numpy as np

    from kcontract.dynamic.engines.simulator.engine import SimulatorEngine
    from kcontract.errors import InputError
    from kcontract.ir.artifact import Artifact
    from kcontract.ir.launch import Launch
    from kcontract.ir.target import Target

    artifact = Artifact("k", Target.parse("sm_90"), ptx=CUT + body)
    with pytest.raises(InputError, match=f"PTX line {line}") as refused:
        SimulatorEngine("sm_90").run(artifact, Launch((1, 1, 1)), {"out": np.zeros(4)})
    assert refused.value.line == line
