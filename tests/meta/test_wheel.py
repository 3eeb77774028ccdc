"""The built wheel holds every module, the start-up line, and nothing large."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("kcontract-*.whl")
    return path


def test_every_module_is_in_the_wheel(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    folders = ("ir/", "passes/", "dynamic/", "kernels/")
    wanted = {f"kcontract/{name}" for name in tracked if name.startswith(folders) and name.endswith(".py")}
    shell = [name.removeprefix("src/") for name in tracked if name.startswith("src/kcontract/")]
    wanted |= {name for name in shell if name.endswith(".py")}
    assert wanted - names == set()
    assert {"kcontract.pth", "kcontract/py.typed"} <= names


def test_the_wheel_is_small_and_clean(wheel):
    assert wheel.stat().st_size < 5_000_000
    stray = [n for n in zipfile.ZipFile(wheel).namelist() if n.startswith(("tests/", "benchmarks/", "examples/"))]
    assert stray == []


def test_a_checkout_without_links_does_not_build(tmp_path):
    copy = tmp_path / "checkout"
    subprocess.run(["git", "clone", "-q", "-c", "core.symlinks=false", str(ROOT), str(copy)], check=True)
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(copy)],
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "this checkout has no symbolic links" in done.stdout + done.stderr
