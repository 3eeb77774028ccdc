"""How the public tests of the libraries are chosen and counted."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch", reason="the runner stops tests at large tensors")


@pytest.fixture(scope="module")
def runner() -> ModuleType:
    path = Path(__file__).parent / "libraries" / "public_tests.py"
    spec = importlib.util.spec_from_file_location("public_tests", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["public_tests"] = module
    spec.loader.exec_module(module)
    return module


def line(test: str, result: str, launches: int, **more: str) -> dict[str, Any]:
    return {"test": test, "result": result, "launches": {"kernel": launches} if launches else {}, **more}


def test_a_case_is_as_large_as_the_product_of_the_numbers_in_its_name(runner: ModuleType) -> None:
    assert runner.size("f::test[dtype0-1e-05-0.5-4-47-31-123]") == 4 * 47 * 31 * 123
    assert runner.size("f::test") == 1


def test_launches_of_any_failure_count_and_what_is_left_out_does_not(runner: ModuleType, tmp_path: Path) -> None:
    lines = [
        line("right", "passed", 6), line("no kernel", "passed", 0),
        line("wrong", "failed", 3, reason="AssertionError: 1\nmore"), line("slow", "failed", 1, reason="_TooLong: ..."),
        line("broken", "failed", 0, reason="ImportError: x"),
        line("elsewhere", "skipped", 0, reason="Skipped: needs two GPUs"),
        line("huge", "too large", 2, reason="a tensor of 9 elements"),
    ]  # fmt: skip
    (tmp_path / "a").write_text("".join(json.dumps(x) + "\n" for x in lines))
    made = runner.manifest([f"lib:sm_90={tmp_path / 'a'}"])
    wanted = {"launches passed": 6, "launches failed": 4, "tests passed": 1, "tests failed": 3}
    assert made["totals"]["lib"]["sm_90"] == made["totals"]["all"]["sm_90"] == wanted
    assert set(made["tests"]) == {"right", "wrong", "slow", "broken"}
    assert made["tests"]["wrong"]["sm_90"] == {"passed": False, "launches": 3, "reason": "AssertionError: 1"}
    assert made["left out"]["elsewhere"] == {"sm_90": "skipped: needs two GPUs"}
    assert made["left out"]["huge"] == {"sm_90": "too large: a tensor of 9 elements"}
