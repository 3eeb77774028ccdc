"""Small promises the repository makes about itself."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRACKED = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
SOURCES = [name for name in TRACKED if name.endswith(".py")]


@pytest.mark.skipif(not TRACKED, reason="not a git checkout")
class TestTree:
    def test_links(self):
        for name in ("ir", "passes", "dynamic", "kernels"):
            link = ROOT / "src" / "kcontract" / name
            assert link.is_symlink()
            assert link.resolve() == ROOT / name

    def test_files_stay_readable(self):
        """About 400 lines; collections of test kernels and benchmark modules may be a little longer."""
        for name in SOURCES:
            most = 500 if name.startswith(("tests/", "benchmarks/")) else 450
            assert len((ROOT / name).read_text().splitlines()) <= most, name

    def test_names_of_test_files_differ(self):
        """pytest imports them by their bare names, but for those in a package."""
        names = [Path(n).name for n in SOURCES if Path(n).name.startswith("test_") and not n.startswith("tests/hook/")]
        assert sorted(set(names)) == sorted(names)

    def test_one_prefix_for_environment_variables(self):
        variable = re.compile(r"""environ(?:\.get\(|\[)\s*["'](\w*KCONTRACT\w*)["']""")
        for name in SOURCES:
            for found in variable.findall((ROOT / name).read_text()):
                assert found.startswith("TRITON_KCONTRACT") or name.startswith(("lit_tests/", "tests/")), (name, found)

    def test_no_skip_without_a_reason(self):
        for name in SOURCES:
            text = (ROOT / name).read_text()
            assert not re.search(r"pytest\.skip\(\s*\)|mark\.skip(?!if|\()", text), name
