"""Witness files round-trip, and bad ones are refused in a sentence."""

import json

import pytest

from kcontract.errors import InputError
from kcontract.model import Witness

WITNESS = Witness("EXC-01", "k", "sm_90", "gpu", 7, {"x": (3, 4)}, {"x": "float16"}, "out0", (1, 2), "nan", 1.5, 0.25)


def test_round_trip(tmp_path):
    path = tmp_path / "w.json"
    WITNESS.dump(path)
    assert Witness.load(path) == WITNESS
    assert [p.name for p in tmp_path.iterdir()] == ["w.json"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": 99}', '{"schema": 1}', json.dumps({"schema": 1, "shapes": [], "index": 3})]
)
def test_bad_files(tmp_path, text):
    path = tmp_path / "w.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"w\.json"):
        Witness.load(path)


def test_missing_file(tmp_path):
    with pytest.raises(InputError, match=r"none\.json"):
        Witness.load(tmp_path / "none.json")
