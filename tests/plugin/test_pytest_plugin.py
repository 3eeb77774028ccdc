"""The pytest plugin, run on small test files of its own."""

import subprocess
import sys

import pytest

pytest_plugins = ("pytester",)

CONTRACT = """
import sys
if "_pytest" in sys.modules:
    raise SystemExit("imported by pytest")
import kcontract
import torch
import triton
import triton.language as tl

@triton.jit
def kernel(x, out, n, SLOPE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n)
    tl.store(out + at, tl.where(v < 0, v * SLOPE, v), at < n)

def draw():
    return [torch.randn(4, 20)]

@kcontract.contract(reference=torch.relu, inputs=draw)
def relu(x):
    return launched(x, 0.0)

@kcontract.contract(reference=torch.relu, inputs=draw)
def leaky(x):
    return launched(x, 0.01)

def launched(x, slope):
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        kernel[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), SLOPE=slope, BLOCK=128)
    return out
"""
ARGUMENTS = ("-p", "kcontract.pytest_plugin", "-p", "no:cacheprovider", "-p", "no:xdist")


@pytest.fixture
def inner(pytester, request):
    """pytest in a process of its own, with the plugin unless it is installed."""
    installed = any(p.name == "kcontract" for p in _entry_points())
    return lambda *arguments: pytester.runpytest_subprocess(*ARGUMENTS[2 * installed :], *arguments, timeout=300)


def _entry_points():
    from importlib.metadata import entry_points

    return entry_points(group="pytest11")


def test_contracts_are_collected_one_item_a_gate_and_share_one_run(inner, pytester):
    pytester.makepyfile(kernels=CONTRACT)
    options = ("--kcontract", "--kcontract-engine=interpreter", "--kcontract-gates=CMP-01,EXC-02", "-rs")
    result = inner(*options, "kernels.py", "-v")
    result.stdout.fnmatch_lines_random(
        ["*relu?CMP-01? PASSED*", "*relu?EXC-02? SKIPPED*", "*leaky?CMP-01? FAILED*", "CMP-01 FAIL: output 0*wanted 0*"]
    )
    result.stdout.fnmatch_lines(["replay: kcontract replay *.json"])
    assert list((pytester.path / ".kcontract").iterdir())
    assert "Traceback" not in result.stdout.str()
    result.assert_outcomes(passed=1, failed=1, skipped=2)


def test_nothing_is_collected_without_the_option(inner, pytester):
    pytester.makepyfile(kernels=CONTRACT)
    assert inner().ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_a_wrong_gate_is_a_usage_error(inner, pytester):
    pytester.makepyfile(kernels=CONTRACT)
    result = inner("--kcontract", "--kcontract-gates=CMP-99", "kernels.py")
    result.stdout.fnmatch_lines(["*no gate 'CMP-99'; the gates are CMP-01*"])


def test_the_fixture_takes_the_markers_options_and_fails_with_the_gate(inner, pytester):
    pytester.makepyfile(kernels=CONTRACT)
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.kcontract(engine="interpreter", gates=["CMP-01"])
        def test_relu(kcontract):
            assert kcontract("kernels.py", name="relu").status == 0

        @pytest.mark.kcontract(engine="interpreter", gates=["CMP-01"])
        def test_leaky(kcontract):
            kcontract("kernels.py", name="leaky")

        @pytest.mark.kcontract(speed=3)
        def test_unknown(kcontract):
            pass
        """
    )
    result = inner("--strict-markers")
    result.stdout.fnmatch_lines_random(["CMP-01 FAIL: output 0*", "*the marker kcontract has no option 'speed'*"])
    result.assert_outcomes(passed=1, failed=1, errors=1)


def test_importing_the_plugin_imports_neither_torch_nor_triton():
    code = "import sys, kcontract.pytest_plugin; print({'torch', 'triton'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"
