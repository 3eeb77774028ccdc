"""Every rule has what CONTRIBUTING.md asks for."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kcontract.model import GATES
from kcontract.passes.base import page, rules

ROOT = Path(__file__).resolve().parents[2]
HEADINGS = ["Contract", "Why it matters", "Fires on", "Silent on", "Limits", "Source"]
EXPECTED = re.compile(r"//\s*expected-(violation|hazard|note)")


def test_there_are_rules():
    assert {"half-precision-accumulator", "over-budget"} <= {rule.slug for rule in rules()}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.slug)
class TestRule:
    def test_name_and_gate(self, rule):
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.slug)
        assert type(rule).__module__.rsplit(".", 1)[1] == rule.slug.replace("-", "_")
        assert rule.gate in GATES
        assert rule.status in ("preview", "stable", "retired")
        assert re.fullmatch(r"\d+\.\d+", rule.since)

    def test_page_has_the_headings_in_order(self, rule):
        assert re.findall(r"^## (.*)$", page(rule), re.M) == HEADINGS

    def test_firing_and_silent_lit_cases(self, rule):
        folder = ROOT / "lit_tests" / "passes" / "rules" / rule.slug
        fires = [path for path in folder.glob("fires*") if EXPECTED.search(path.read_text())]
        silent = [path for path in folder.glob("silent*") if not EXPECTED.search(path.read_text())]
        assert fires, f"no firing case in {folder}"
        assert silent, f"no silent case in {folder}"
        for path in fires + silent:
            assert f"--rule {rule.slug}" in path.read_text().splitlines()[0], path

    def test_messages_in_lit_cases_follow_the_convention(self, rule):
        folder = ROOT / "lit_tests" / "passes" / "rules" / rule.slug
        for path in folder.glob("fires*"):
            done = subprocess.run(
                [sys.executable, "-m", "kcontract", "check", "--json", "--rule", rule.slug, str(path)],
                capture_output=True,
                text=True,
            )
            import json

            records = [json.loads(line) for line in done.stdout.splitlines()]
            messages = [record["message"] for record in records if record["type"] == "finding"]
            assert all(m[0].islower() or m[0].isdigit() for m in messages)
            assert not any(m.endswith(".") for m in messages)


def test_generated_docs_are_fresh():
    done = subprocess.run([sys.executable, ROOT / "docs" / "generate.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
