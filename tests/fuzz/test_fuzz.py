import os
import random
import signal
import time

import exercise
import mutations
import pytest
import run

from kcontract.errors import InputError


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeds")
    run.write_seeds(folder)
    return folder


def test_two_thousand_inputs_have_no_fault(seeds):
    kinds = run.read_seeds(seeds)
    seen = {reader: {"accepted": 0, "refused": 0} for reader in run.SHARES}
    for index in range(2000):
        reader, content = run.make(1, index, kinds)
        outcome, seconds = run.attempt(reader, content)
        assert outcome in ("accepted", "refused"), (reader, index, outcome)
        assert seconds < run.ALARM
        seen[reader][outcome] += 1
    for reader in ("ttgir", "ptx", "json", "cubin"):
        assert min(seen[reader].values()) > 20, f"{reader} takes or refuses nearly all: the mutations are too blunt"


def test_unchanged_seeds_are_accepted(seeds):
    for reader, contents in run.read_seeds(seeds).items():
        assert all(exercise.accepted(reader, content) for content in contents), reader


def test_inputs_of_an_index_are_the_same_each_time(seeds):
    kinds = run.read_seeds(seeds)
    assert [run.make(7, i, kinds) for i in range(50)] == [run.make(7, i, kinds) for i in range(50)]
    assert run.make(7, 1, kinds) != run.make(8, 1, kinds)


def test_mutation_changes_most_inputs():
    rng = random.Random(0)
    text = b"module {\n  %0 = foo 12\n}\n" * 20
    changed = sum(mutations.mutate(rng, text, [text]) != text for _ in range(200))
    assert changed > 150 and mutations.mutate(rng, b"", [b""]) is not None


def endless(content):
    while True:
        pass


def raising(error):
    def reader(content):
        raise error

    return reader


@pytest.mark.parametrize(
    ("reader", "outcome"),
    [
        (raising(InputError("the text is damaged")), "refused"),
        (raising(InputError("two\nlines")), "AssertionError"),
        (raising(KeyError("x")), "KeyError"),
        (raising(RecursionError()), "RecursionError"),
        (raising(MemoryError()), "MemoryError"),
        (endless, "took over"),
        (lambda content: None, "accepted"),
    ],
)
def test_what_is_no_answer_is_a_fault(monkeypatch, reader, outcome):
    monkeypatch.setitem(exercise.READERS, "ptx", reader)
    monkeypatch.setattr(run, "ALARM", 0.2)
    assert run.attempt("ptx", b"")[0].startswith(outcome)
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_a_worker_that_dies_is_replaced_and_its_input_kept(seeds, tmp_path):
    options = {"seeds": str(seeds), "seed": 3, "keep": str(tmp_path / "kept")}
    fuzzing = run.Run(options, 4000, 1)
    try:
        while fuzzing.current[0] < 100:
            time.sleep(0.01)
        os.kill(fuzzing.workers[0].pid, signal.SIGKILL)
        while fuzzing.watch():
            fuzzing.gather(0.05)
    finally:
        fuzzing.stop()
        fuzzing.gather(0.05)
    outcomes = [outcome for _, outcome in fuzzing.outcomes]
    assert outcomes.count("worker died with -9") == 1 and fuzzing.faults() == 1
    assert fuzzing.current[0] == 3999, "the new worker went on behind the input"
    assert len(list((tmp_path / "kept").iterdir())) == 1
