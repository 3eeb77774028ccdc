"""The mode that lit tests use must itself fail on a missing and on an unexpected diagnostic."""

import pytest

from kcontract.cli._expect import cases, verify
from kcontract.errors import InputError
from kcontract.model import Finding, Level, Place, Report


def checker(*found):
    """A check that gives one finding of (level, line, message) a case."""

    def check(text):
        findings = tuple(
            Finding("r", "PRC-02", level, message, Place(ir="ttgir", ir_line=line)) for level, line, message in found
        )
        return Report("k", "sm_90", "", "", findings)

    return check


FOUND = checker((Level.VIOLATION, 2, "sum of 4096 terms"))


def test_declared_and_found():
    assert verify("f", "// expected-violation @+1 {{[r] sum of 4096}}\nop", FOUND) == []
    assert verify("f", "x\nop // expected-violation {{4096}}", FOUND) == []
    assert verify("f", "x\nop\n// expected-violation @-1 {{terms}}", FOUND) == []


UNEXPECTED = "f:2: unexpected violation: [r] sum of 4096 terms"


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("x\nop", [UNEXPECTED]),
        ("// expected-hazard @+1 {{sum}}\nop", [UNEXPECTED, "f:2: expected hazard was not found: sum"]),
        ("// expected-violation @+2 {{sum}}\nop", [UNEXPECTED, "f:3: expected violation was not found: sum"]),
        ("// expected-violation @+1 {{product}}\nop", [UNEXPECTED, "f:2: expected violation was not found: product"]),
    ],
)
def test_differences(text, problems):
    assert verify("f", text, FOUND) == problems


def test_one_declaration_covers_one_finding():
    twice = checker((Level.NOTE, 1, "a"), (Level.NOTE, 1, "a"))
    assert verify("f", "op // expected-note {{a}}", twice) == ["f:1: unexpected note: [r] a"]
    assert verify("f", "op // expected-note {{a}} expected-note {{a}}", twice) != []
    assert verify("f", "op // expected-note {{a}} // expected-note {{a}}", twice) == []


def test_cases_keep_the_lines_of_the_file():
    assert list(cases("a\nb\n// -----\nc")) == [(0, "a\nb"), (3, "c")]
    text = "x\nop // expected-violation {{sum}}\n// -----\nx\nop // expected-violation {{sum}}"
    assert verify("f", text, FOUND) == []
    assert verify("f", text.replace("sum", "no", 1), FOUND)[0].startswith("f:2:")


def test_misspelt_declarations_are_refused():
    for line in ("// expected-error {{x}}", "// expected-violation x", "// expected-violation @1 {{x}}"):
        with pytest.raises(InputError, match="f:1: not a declaration"):
            verify("f", line, FOUND)
