"""References that import a module beside their file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kcontract.dynamic.problems import source
from kcontract.dynamic.sandbox import pool


def test_each_folder_gets_its_own_sibling(tmp_path: Path) -> None:
    kept = list(sys.path)
    for name, value in (("a", 1), ("b", 2)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "beside_it.py").write_text(f"VALUE = {value}\n")
        (folder / "problem.py").write_text("import beside_it\n\n\ndef found():\n    return beside_it.VALUE\n")
        assert source.module_of(str(folder / "problem.py"), ["found"]).found() == value
    assert "beside_it" not in sys.modules
    assert sys.path == kept


def test_a_sibling_hides_no_installed_module(tmp_path: Path) -> None:
    (tmp_path / "colorsys.py").write_text("raise AssertionError\n")
    (tmp_path / "problem.py").write_text("import colorsys\n\n\ndef found():\n    return colorsys.__file__\n")
    found = source.module_of(str(tmp_path / "problem.py"), ["found"]).found()
    assert not found.startswith(str(tmp_path))


def test_the_candidates_process_gets_the_users_python_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["libs", "/elsewhere"]))
    path = pool._environment("gpu", "sm_90", str(tmp_path))["PYTHONPATH"].split(os.pathsep)
    assert path[-2:] == [str(tmp_path / "libs"), "/elsewhere"]
