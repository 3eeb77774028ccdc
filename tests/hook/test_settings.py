"""Environment over pyproject, defaults, and a sentence for whatever cannot be used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kcontract.settings import Mode, Settings


def load(folder: Path, **environ: str) -> Settings:
    return Settings.load(environ, folder)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.kcontract]\nmode = 'error'\nreport = 'r.jsonl'\nselect = ['PRC-02', ' over-budget ']\nignore = 'a, b'\n"
        "deep = true\ncolor = 'never'\n"
    )
    return tmp_path


def test_defaults(tmp_path: Path) -> None:
    assert load(tmp_path) == Settings(Mode.OFF, None, (), (), False, "auto", ())


@pytest.mark.parametrize(
    ("value", "mode"),
    [
        *((value, "off") for value in ("", "0", "off", "FALSE")),
        *((value, "warn") for value in ("1", "warn", "true", "On")),
        (" error ", "error"),
    ],
)
def test_modes(tmp_path: Path, value: str, mode: str) -> None:
    assert load(tmp_path, TRITON_KCONTRACT=value).mode.value == mode
    assert load(tmp_path, TRITON_KCONTRACT=value).problems == ()


def test_an_unknown_mode_is_taken_as_warn(tmp_path: Path) -> None:
    settings = load(tmp_path, TRITON_KCONTRACT="2")
    assert settings.mode is Mode.WARN
    assert settings.problems == ("TRITON_KCONTRACT is '2'; valid values are 0, 1 or warn, and error; taken as warn",)


def test_pyproject(project: Path) -> None:
    wanted = Settings(Mode.ERROR, project / "r.jsonl", ("PRC-02", "over-budget"), ("a", "b"), True, "never", ())
    assert load(project) == wanted
    (project / "a" / "b").mkdir(parents=True)
    assert load(project / "a" / "b") == wanted


def test_the_nearest_pyproject_counts(project: Path) -> None:
    (project / "inner").mkdir()
    (project / "inner" / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert load(project / "inner") == Settings()


def test_switched_on_it_follows_the_project(project: Path, tmp_path: Path) -> None:
    assert load(project, TRITON_KCONTRACT="1").mode is Mode.ERROR
    (tmp_path / "pyproject.toml").write_text("[tool.kcontract]\nmode = 'off'\n")
    assert load(tmp_path, TRITON_KCONTRACT="1").mode is Mode.WARN


def test_the_environment_wins(project: Path) -> None:
    settings = load(
        project,
        TRITON_KCONTRACT="warn",
        TRITON_KCONTRACT_REPORT="/tmp/other.sarif",
        TRITON_KCONTRACT_SELECT="",
        TRITON_KCONTRACT_IGNORE="RES-02,by-name",
        TRITON_KCONTRACT_DEEP="0",
        TRITON_KCONTRACT_COLOR="always",
    )
    assert settings == Settings(Mode.WARN, Path("/tmp/other.sarif"), (), ("RES-02", "by-name"), False, "always", ())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[tool.kcontract\n", "cannot be read, so its [tool.kcontract] is not used"),
        ("tool = 'kcontract'\n", "cannot be read"),
        ("[tool]\nkcontract = 3\n", "is no table; it is not used"),
        (
            "[tool.kcontract]\nmood = 1\n",
            "has no setting 'mood'; the settings are mode, report, select, ignore, deep, color",
        ),
        ("[tool.kcontract]\nselect = 3\n", "'select' under [tool.kcontract] is 3; valid values are names"),
        ("[tool.kcontract]\nselect = [3]\n", "valid values are names"),
        ("[tool.kcontract]\nreport = 'r.txt'\n", "valid values are a path that ends in .jsonl or .sarif"),
        ("[tool.kcontract]\nreport = 7\n", "valid values are a path"),
        ("[tool.kcontract]\nmode = []\n", "'mode' under [tool.kcontract] is '[]'; valid values are 0, 1"),
        ("[tool.kcontract]\ndeep = 'deep'\n", "valid values are 0 and 1"),
        ("[tool.kcontract]\ncolor = 'red'\n", "valid values are auto, always and never"),
        ("[tool.kcontract]\nx = " + "[" * 5000, "cannot be read"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    (problem,) = load(tmp_path).problems
    assert sentence in problem
    assert "\n" not in problem


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(b"[tool.kcontract]\nmode = '\xff'\n")
    assert "cannot be read" in load(tmp_path).problems[0]


def test_a_working_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    os.rmdir(gone)
    assert Settings.load({"TRITON_KCONTRACT": "error"}).mode is Mode.ERROR


def test_every_setting_is_in_the_page() -> None:
    from kcontract import settings

    for field in Settings.__dataclass_fields__:
        assert field == "problems" or f"``{field}``" in (settings.__doc__ or "")
