"""Imports follow the direction of ARCHITECTURE.md, and heavy libraries are imported only when asked for."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# part -> parts of kcontract it may import
ALLOWED = {
    "ir": {"ir", "errors"},
    "model": {"model", "ir", "errors"},
    "passes": {"passes", "model", "ir", "errors", "__version__"},
    "report": {"report", "model", "errors", "__version__"},
    "dynamic": {"dynamic", "passes", "model", "report", "ir", "errors", "settings", "hook", "kernels", "_boot"},
    "kernels": {"kernels"},
}
FOLDERS = {part: ROOT / part if (ROOT / part).is_dir() else ROOT / "src" / "kcontract" / part for part in ALLOWED}
FILES = [(part, path) for part, folder in FOLDERS.items() for path in sorted(folder.rglob("*.py"))]


def imported_parts(path: Path) -> set[str]:
    parts: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            names = [f"kcontract.{alias.name}" for alias in node.names] if module == "kcontract" else [module]
        parts |= {name.split(".")[1] for name in names if name.startswith("kcontract.")}
    return parts


@pytest.mark.parametrize(("part", "path"), FILES, ids=lambda value: str(value).replace(str(ROOT), ""))
def test_imports_follow_the_direction(part, path):
    assert imported_parts(path) <= ALLOWED[part]


@pytest.mark.parametrize(
    "module",
    [
        "kcontract",
        "kcontract.cli",
        "kcontract.ir.artifact",
        "kcontract.passes.base",
        "kcontract.dynamic",
        "kcontract.kernels",
    ],
)
def test_heavy_libraries_wait(module):
    heavy = "{'torch', 'triton', 'z3', 'lark', 'numpy'}"
    code = f"import sys, {module}; print(*sorted({heavy} & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
