"""``kcontract check`` as a user runs it: exit statuses, formats, waivers, baselines, bad input."""

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import kernels_waived
import pytest
from compiled import compile_kernel

SCHEMA = Path(__file__).parents[1] / "report" / "sarif-schema-2.1.0.json"
SUM = {"x": "*fp16", "o": "*fp16"}


def kcontract(*arguments, cwd=None):
    command = [sys.executable, "-m", "kcontract", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


@pytest.fixture
def kernel(tmp_path):
    """Writes a kernel of ``kernels_waived`` as loose files and returns their folder."""

    def write(name, size=4096):
        made = compile_kernel(getattr(kernels_waived, name), SUM, {"N": size}, 90)
        folder = tmp_path / "kernels"
        folder.mkdir(exist_ok=True)
        for kind in ("ttgir", "ptx"):
            (folder / f"{name}.{kind}").write_text(made.asm[kind])
        (folder / f"{name}.cubin").write_bytes(made.asm["cubin"])
        target = {"backend": "cuda", "arch": 90, "warp_size": 32}
        metadata = {**made.metadata._asdict(), "target": target}
        (folder / f"{name}.json").write_text(json.dumps(metadata, default=str))
        return folder

    return write


class TestExitStatus:
    def test_violation(self, kernel):
        done = kcontract("check", kernel("without_reason"))
        assert done.returncode == 1
        assert "violation[half-precision-accumulator] PRC-02: sum of 4096 terms kept in float16" in done.stdout
        assert done.stdout.endswith("1 kernel, 1 violation, 0 hazards, 0 notes\n")

    def test_nothing_above_a_hazard(self, kernel):
        done = kcontract("check", kernel("without_reason", 512))
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "1 kernel, 0 violations, 0 hazards, 1 note\n"

    def test_notes_on_request(self, kernel):
        assert "note[half-precision-accumulator]" in kcontract("check", "--notes", kernel("without_reason", 512)).stdout

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["check", "no/such/folder"], "kcontract: no/such/folder: no such file or folder\n"),
            (["check", "--rule", "no-rule", "."], "no rule or gate is named 'no-rule'; 'kcontract rules' lists them"),
            (["check", "--target", "h100", "."], "'h100' names no GPU; write a target such as sm_90"),
            (["rules", "no-rule"], "no rule or gate is named 'no-rule'"),
            (["check", "--gate", "MEM-01", "."], "no static rule belongs to MEM-01: it needs a run"),
            (["check"], "the following arguments are required: PATH"),
            ([], "the following arguments are required: COMMAND"),
        ],
    )
    def test_wrong_use(self, arguments, sentence, tmp_path):
        done = kcontract(*arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr

    def test_empty_folder(self, tmp_path):
        done = kcontract("check", tmp_path)
        assert done.returncode == 2
        assert "no compiled kernel found" in done.stderr

    @pytest.mark.parametrize("content", [b"", b"\x00\xff" * 1000, b"module {", b"\x7fELF" + b"\xff" * 64])
    @pytest.mark.parametrize("kind", ["ttgir", "ptx", "cubin", "json"])
    def test_unreadable_input(self, tmp_path, kind, content):
        path = tmp_path / f"broken.{kind}"
        path.write_bytes(content)
        done = kcontract("check", path)
        assert done.returncode in (2, 3), done.stdout
        assert "broken" in done.stderr
        assert "Traceback" not in done.stderr

    def test_good_kernels_are_checked_beside_a_broken_one(self, kernel):
        folder = kernel("without_reason")
        (folder / "broken.ttgir").write_bytes(b"\x00" * 100)
        done = kcontract("check", folder)
        assert done.returncode == 1
        assert "broken" in done.stderr
        assert "1 violation" in done.stdout


class TestFormats:
    def test_json_lines(self, kernel):
        records = [
            json.loads(line) for line in kcontract("check", "--json", kernel("without_reason")).stdout.splitlines()
        ]
        verdicts = {record["gate"]: record["status"] for record in records if record["type"] == "verdict"}
        assert (verdicts["PRC-02"], verdicts["RES-02"], verdicts["CMP-01"]) == ("FAIL", "PASS", "UNDECIDED")
        assert len(verdicts) == 17
        (finding,) = [record for record in records if record["type"] == "finding"]
        assert Path(finding["file"]).name == "kernels_waived.py"

    def test_sarif(self, kernel):
        document = json.loads(kcontract("check", "--format", "sarif", kernel("waived")).stdout)
        jsonschema.validate(document, json.loads(SCHEMA.read_text()))
        (result,) = document["runs"][0]["results"]
        assert result["suppressions"][0]["justification"] == "a test"

    def test_github(self, kernel):
        assert kcontract("check", "--format", "github", kernel("without_reason")).stdout.startswith(
            "::error title=PRC-02"
        )

    def test_accumulators(self, kernel):
        folder = kernel("without_reason")
        assert "reduce           f16 -> f16    4096 terms" in kcontract("check", "--accumulators", folder).stdout
        (line,) = kcontract("check", "--accumulators", "--json", folder).stdout.splitlines()
        assert json.loads(line)["terms"] == [4096, 4096]

    def test_filters(self, kernel):
        folder = kernel("without_reason")
        assert kcontract("check", "--gate", "RES-02", folder).returncode == 0
        assert kcontract("check", "--rule", "over-budget", folder).returncode == 0
        assert kcontract("check", "--gate", "prc-02", folder).returncode == 1
        assert kcontract("check", "--target", "sm_90,sm_100", folder).returncode == 1
        assert "no compiled kernel for sm_80" in kcontract("check", "--target", "sm_80", folder).stderr


class TestWaivers:
    @pytest.mark.parametrize("name", ["waived", "waived_above", "waived_at_the_call"])
    def test_waived(self, kernel, name):
        done = kcontract("check", kernel(name))
        assert (done.returncode, done.stderr) == (0, "")
        assert "1 waived" in done.stdout

    def test_a_waiver_needs_a_reason(self, kernel):
        done = kcontract("check", kernel("without_reason"))
        assert "gives no reason and does not count" in done.stdout

    def test_unused_waivers_are_reported(self, kernel):
        done = kcontract("check", kernel("needless"))
        assert done.returncode == 0
        assert "unused waiver of half-precision-accumulator: remove it, or move it" in done.stderr
        assert "unused" not in kcontract("check", "--gate", "RES-02", kernel("needless")).stderr

    def test_a_misspelt_waiver_is_named(self, kernel):
        done = kcontract("check", kernel("misspelt"))
        assert done.returncode == 1
        assert "waiver of 'half-precision-acumulator', which is neither a rule nor a gate" in done.stderr

    def test_a_waiver_of_another_rule_does_not_cover(self, kernel):
        done = kcontract("check", kernel("of_another_rule"))
        assert done.returncode == 1
        assert "unused waiver of over-budget" in done.stderr


class TestBaseline:
    def test_known_findings_do_not_count(self, kernel, tmp_path):
        folder, baseline = kernel("without_reason"), tmp_path / "known.json"
        assert kcontract("check", "--write-baseline", baseline, folder).returncode == 0
        done = kcontract("check", "--baseline", baseline, folder)
        assert done.returncode == 0
        assert "1 waived" in done.stdout

    def test_new_ones_do(self, kernel, tmp_path):
        baseline = tmp_path / "known.json"
        kcontract("check", "--write-baseline", baseline, kernel("without_reason"))
        done = kcontract("check", "--baseline", baseline, kernel("of_another_rule"))
        assert done.returncode == 1

    def test_stale_entries_are_reported(self, kernel, tmp_path):
        baseline = tmp_path / "known.json"
        kcontract("check", "--write-baseline", baseline, kernel("without_reason"))
        done = kcontract("check", "--baseline", baseline, kernel("without_reason", 512))
        assert done.returncode == 0
        assert "no longer found: violation of half-precision-accumulator in without_reason" in done.stderr

    def test_a_hazard_that_becomes_a_violation_is_new(self, kernel, tmp_path):
        baseline = tmp_path / "known.json"
        folder = kernel("without_reason")
        kcontract("check", "--write-baseline", baseline, folder)
        baseline.write_text(baseline.read_text().replace('"violation"', '"hazard"'))
        assert kcontract("check", "--baseline", baseline, folder).returncode == 1

    def test_a_baseline_written_over_a_baseline_keeps_it(self, kernel, tmp_path):
        first, second = tmp_path / "known.json", tmp_path / "again.json"
        folder = kernel("without_reason")
        kcontract("check", "--write-baseline", first, folder)
        kcontract("check", "--baseline", first, "--write-baseline", second, folder)
        assert second.read_text() == first.read_text()

    @pytest.mark.parametrize("text", ["", "[]", '{"schema": 9}', "{}"])
    def test_bad_baseline(self, tmp_path, text, kernel):
        path = tmp_path / "known.json"
        path.write_text(text)
        done = kcontract("check", "--baseline", path, kernel("waived"))
        assert done.returncode == 3
        assert "known.json" in done.stderr
        assert "Traceback" not in done.stderr
