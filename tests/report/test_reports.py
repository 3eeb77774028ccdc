"""Text, JSON and SARIF of one hand-made report."""

import json
from pathlib import Path

import jsonschema
import pytest

from kcontract.ir.location import Location
from kcontract.model import Finding, Level, Place, Related, Report, aggregate
from kcontract.report import github, sarif, text
from kcontract.report import json as json_report


@pytest.fixture
def report(tmp_path):
    source = tmp_path / "k.py"
    source.write_text("def k(x):\n\ty = tl.sum(x)\n    call(y)\n")
    library = Location("/site-packages/triton/language/standard.py", 314, 12)
    where = Location(str(source), 2, 6)
    outer = Location(str(source), 3, 5)
    place = Place(Location(library.file, library.line, library.column, callers=(where, outer)), "ttgir", 17)
    violation = Finding(
        "half-precision-accumulator",
        "PRC-02",
        Level.VIOLATION,
        "sum in float16, wanted float32",
        place,
        why="N·u is 2",
        remedy="convert first",
        related=(Related("loaded here", Place(where)),),
        evidence={"terms": 4096},
    )
    note = Finding("half-precision-accumulator", "PRC-02", Level.NOTE, "short sum", Place(None, "ttgir", 3))
    waived = Finding("over-budget", "RES-02", Level.HAZARD, "too many registers", Place(where), waived="known")
    findings = (violation, note, waived)
    verdicts = tuple(aggregate(gate, findings, []) for gate in ("PRC-02", "RES-02"))
    return Report("k", "sm_90", "abc", "r1", findings, verdicts, errors=("rule x failed",), origin="cache")


def test_text_points_at_the_users_line(report):
    lines = text.render(report).splitlines()
    assert lines[0] == "violation[half-precision-accumulator] PRC-02: sum in float16, wanted float32"
    assert lines[1].endswith("k.py:2:6, in k for sm_90")
    assert lines[3] == " 2 | \ty = tl.sum(x)"
    assert lines[4] == "   | \t    ^"
    assert any("called from" in line and "k.py:3" in line for line in lines)
    assert "   = why: N·u is 2" in lines
    assert lines[-1] == "error[kcontract] rule x failed"


def test_text_levels_colour_and_waivers(report):
    assert "short sum" not in text.render(report)
    assert "short sum" in text.render(report, at_least=Level.NOTE)
    assert "too many registers" not in text.render(report, at_least=Level.NOTE)
    assert "\x1b[" in text.render(report, color=True)
    assert "\x1b[" not in text.render(report)
    assert text.summary([report]) == "1 kernel, 1 violation, 0 hazards, 1 note, 1 waived, 1 error"


def test_json_records_have_the_promised_fields(report):
    records = [json.loads(line) for line in json_report.lines(report).splitlines()]
    findings = [record for record in records if record["type"] == "finding"]
    assert {"kernel", "target", "gate", "rule", "level", "file", "line", "message"} <= findings[0].keys()
    assert (Path(findings[0]["file"]).name, findings[0]["line"], findings[0]["ir_line"]) == ("k.py", 2, 17)
    assert findings[1]["file"] is None
    assert findings[2]["waived"] == "known"
    verdicts = [record for record in records if record["type"] == "verdict"]
    wanted = {"kernel", "target", "gate", "status", "basis", "engine", "level_of_ir"}
    assert all(wanted <= verdict.keys() for verdict in verdicts)
    assert [verdict["status"] for verdict in verdicts] == ["FAIL", "UNDECIDED"]
    assert records[-1]["message"] == "rule x failed"


def test_sarif_is_valid_and_complete(report):
    schema = json.loads((Path(__file__).parent / "sarif-schema-2.1.0.json").read_text())
    document = sarif.document(
        json_report.records(report), version="0.1.0", help_texts={"over-budget": "# over-budget\n\ntext"}
    )
    jsonschema.validate(document, schema)
    run = document["runs"][0]
    assert [result["level"] for result in run["results"]] == ["error", "note", "warning"]
    first = run["results"][0]
    assert first["locations"][0]["physicalLocation"]["region"] == {"startLine": 2, "startColumn": 6}
    assert [place["message"]["text"] for place in first["relatedLocations"]] == [
        "inlined here",
        "inlined here",
        "loaded here",
    ]
    assert run["results"][2]["suppressions"] == [{"kind": "inSource", "justification": "known"}]
    assert not run["invocations"][0]["executionSuccessful"]
    described = {rule["id"]: rule.get("shortDescription") for rule in run["tool"]["driver"]["rules"]}
    assert described == {"half-precision-accumulator": None, "over-budget": {"text": "text"}}
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]


def test_sarif_of_nothing_is_valid():
    schema = json.loads((Path(__file__).parent / "sarif-schema-2.1.0.json").read_text())
    jsonschema.validate(sarif.document([], version="0.1.0", help_texts={}), schema)


def test_github_annotations(report, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (line,) = github.render(report).splitlines()
    head, _, message = line.removeprefix("::").partition("::")
    assert head == "error title=PRC-02 half-precision-accumulator,file=k.py,line=2,col=6"
    assert message == "sum in float16, wanted float32 (k, sm_90)%0AN·u is 2%0Aconvert first"
    assert len(github.render(report, at_least=Level.NOTE).splitlines()) == 2
