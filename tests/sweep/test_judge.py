"""The table of findings: what a judgement holds for, how messages are merged, whether the committed files are whole."""

import os
import re
import sys

import judge
import pytest
from judge import HERE, PAGE, Judgement, Key, load, main, merged

from kcontract.errors import InputError
from kcontract.model import Level
from kcontract.passes.base import rules


def key(level=Level.HAZARD, **changes):
    fields = {"library": "fla-core", "level": level, "rule": "r", "kernel": "k", "file": "fla/a.py", "line": 3}
    return Key(**{**fields, "source": "x = 1", **changes})


def entry(level=Level.HAZARD, kernel="k", source=("x = 1",)):
    return Judgement("fla-core", kernel, "r", level, source, "true", "why")


def test_a_judgement_holds_for_one_line_of_one_kernel():
    assert entry().holds(key())
    assert entry().holds(key(line=40))
    for changes in ({"source": "x = 2"}, {"kernel": "other"}, {"library": "liger-kernel"}, {"rule": "s"}):
        assert not entry().holds(key(**changes))
    assert not entry().holds(key(Level.VIOLATION))


def test_a_star_holds_for_notes_alone():
    for level in Level:
        wide = entry(level, kernel="*", source=("*",))
        assert wide.holds(key(level, kernel="any", source="any")) == (level is Level.NOTE)


def test_messages_that_differ_in_numbers_become_one():
    assert merged(["8 bytes stored, 4 loaded", "16 bytes stored, 4 loaded"]) == "8 – 16 bytes stored, 4 loaded"
    assert merged(["sum of 64 terms in bfloat16"] * 2) == "sum of 64 terms in bfloat16"
    assert merged(["a bfloat16", "a float16"]) == "a bfloat16; a float16"


def test_an_entry_without_a_reason_or_with_another_verdict_is_refused(tmp_path):
    whole = {"library": "fla-core", "kernel": "*", "rule": "r", "level": "note", "verdict": "true", "why": "w"}
    path = tmp_path / "j.toml"

    def write(change):
        lines = [f'{name} = "{value}"' for name, value in {**whole, **change}.items()]
        path.write_text("[[judgement]]\n" + "\n".join(lines))

    write({})
    assert len(load(path)) == 1
    for change in ({"why": " "}, {"verdict": "perhaps"}, {"kernel": ""}):
        write(change)
        with pytest.raises(InputError):
            load(path)


def test_the_committed_judgements_and_the_page():
    judgements = load(HERE / "judgements.toml")
    assert {judgement.rule for judgement in judgements} <= {rule.slug for rule in rules()}
    text = PAGE.read_text(encoding="utf-8")
    assert not re.search(r"site-packages|(?<![\w`(])/(?:\w+/)+", text)
    for judgement in judgements:
        assert judgement.why.replace("|", "\\|") in text


@pytest.mark.slow
def test_the_page_is_what_the_sweep_gives(monkeypatch, capsys):
    """``SWEEP_FOLDERS`` names cache folders that ``python tests/sweep`` has filled, separated by colons."""
    folders = os.environ.get("SWEEP_FOLDERS", "")
    if not folders:
        pytest.skip("needs cache folders: run 'python tests/sweep' and set SWEEP_FOLDERS")
    monkeypatch.setattr(sys, "argv", [judge.__file__, *folders.split(":")])
    assert main() == 0, capsys.readouterr().err
