"""The pytest plugin: contracts collected as tests, one item a gate; a fixture and a marker for tests of one's own.

``pytest --kcontract`` collects each function with ``@kcontract.contract`` in the files given. The item
``kernels.py::relu[EXC-01]`` fails where that gate does, and is skipped, with the reason, where it is undecided or not
applicable. All gates of one function share one run. Without the option nothing is collected. Importing this module
imports neither torch nor triton.

The fixture ``kcontract`` verifies anything that ``kcontract verify`` takes and fails the test where a gate fails::

    @pytest.mark.kcontract(engine="sim:sm_90", gates=["CMP-01"])
    def test_softmax(kcontract):
        kcontract("softmax.py", reference="reference.py")
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kcontract.dynamic.verify import Result
    from kcontract.model import Verdict

_OPTIONS = ("engine", "gates", "floor", "dtype", "seed", "thorough")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--kcontract`` and its settings."""
    group = parser.getgroup("kcontract", "kernels under contract")
    group.addoption("--kcontract", action="store_true", help="collect functions with @kcontract.contract as tests")
    group.addoption(
        "--kcontract-engine", metavar="NAME", help="gpu, sim:SM or interpreter (default: gpu, else sim:sm_90)"
    )
    group.addoption("--kcontract-gates", metavar="ID,...", default="", help="only these gates")
    group.addoption("--kcontract-floor", action="store_true", help="only the tolerance-free core")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    options = ", ".join(_OPTIONS)
    config.addinivalue_line("markers", f"kcontract({options}): options of the kcontract fixture in this test")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A collector for a Python file with contracts in it, under ``--kcontract``."""
    if parent.config.getoption("--kcontract") and file_path.suffix == ".py" and _contracted(file_path):
        return ContractFile.from_parent(parent, path=file_path)
    return None


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Nothing, for a file with contracts under ``--kcontract``: pytest would import it into its own process."""
    if parent.config.getoption("--kcontract") and _contracted(module_path):
        return _Nothing.from_parent(parent, path=module_path)
    return None


class _Nothing(pytest.File):
    """A file that is not imported."""

    def collect(self) -> Iterator[pytest.Item]:
        """No items: ``ContractFile`` has them."""
        return iter(())


def _contracted(path: Path) -> list[str]:
    """Functions of a file that carry a contract, read from its syntax tree; the file is not imported."""
    try:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text) if "contract(" in text else ast.Module([], [])
    except (OSError, SyntaxError, ValueError):
        return []
    return [
        f.name
        for f in tree.body
        if isinstance(f, ast.FunctionDef)
        for d in f.decorator_list
        if isinstance(d, ast.Call) and ast.unparse(d.func) in ("kcontract.contract", "contract")
    ]


class ContractFile(pytest.File):
    """One file; its items are the gates of each contracted function."""

    def __init__(self, **rest: Any) -> None:
        super().__init__(**rest)
        self.results: dict[str, Result] = {}
        self.replays: dict[tuple[str, str], str] = {}

    def collect(self) -> Iterator[pytest.Item]:
        """One item a function and gate."""
        from kcontract.model import FLOOR, GATES

        wanted = [g.strip().upper() for g in self.config.getoption("--kcontract-gates").split(",") if g.strip()]
        for gate in wanted:
            if gate not in GATES:
                raise pytest.UsageError(f"--kcontract-gates: no gate {gate!r}; the gates are {', '.join(GATES)}")
        self.wanted = tuple(wanted or (FLOOR if self.config.getoption("--kcontract-floor") else GATES))
        for name in _contracted(self.path):
            for gate in self.wanted:
                yield GateItem.from_parent(self, name=f"{name}[{gate}]", function=name, gate=gate)

    def verdict(self, function: str, gate: str) -> Verdict:
        """The gate's verdict, from the one run of the function."""
        if function not in self.results:
            engine = self.config.getoption("--kcontract-engine")
            result = _verified(str(self.path), name=function, engine=engine, gates=self.wanted)
            self.results[function] = result
            self.replays |= {(function, g): command for g, command in _replays(self.config, result).items()}
        return next(v for v in self.results[function].report.verdicts if v.gate == gate)


class GateItem(pytest.Item):
    """One gate of one contracted function."""

    def __init__(self, *, function: str, gate: str, **rest: Any) -> None:
        super().__init__(**rest)
        self.function, self.gate = function, gate

    def runtest(self) -> None:
        """Fail where the gate does, skip where it has no answer."""
        from kcontract.model import Status

        assert isinstance(self.parent, ContractFile)
        verdict = self.parent.verdict(self.function, self.gate)
        if verdict.status in (Status.FAIL, Status.ERROR):
            replay = self.parent.replays.get((self.function, self.gate))
            raise GateFailed(f"{self.gate} {verdict.status}: {verdict.reason}" + (f"\n{replay}" if replay else ""))
        if verdict.status is not Status.PASS:
            pytest.skip(f"{verdict.status}: {verdict.reason}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The verdict alone for a failed gate or bad input, the traceback for anything else."""
        from kcontract.errors import KContractError

        if isinstance(excinfo.value, (GateFailed, KContractError)):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the function stands."""
        return self.path, None, self.name


class GateFailed(Exception):
    """A gate that failed, in its verdict's words."""


def _replays(config: pytest.Config, result: Result) -> dict[str, str]:
    """Write the witnesses below pytest's root; the command that replays each."""
    from kcontract.cli.verify import write_witnesses

    paths = write_witnesses(result, config.rootpath / ".kcontract")
    return {gate: f"replay: kcontract replay {path}" for gate, path in paths.items()}


def _verified(path: str, *, reference: str | None = None, name: str | None = None, engine: str | None = None,
              gates: Iterable[str] = (), **options: Any) -> Result:  # fmt: skip
    from kcontract.cli.verify import default_engine
    from kcontract.dynamic.problems.load import load
    from kcontract.dynamic.verify import verify

    (problem, *_) = load(path, reference, name)
    return verify(problem, engine=engine or default_engine(), only=tuple(gates), **options)


@pytest.fixture
def kcontract(request: pytest.FixtureRequest) -> Callable[..., Result]:
    """``kcontract(candidate, reference=None, name=None, **options) -> Result``; fails the test where a gate fails, and
    skips it where none passes."""
    from kcontract.model import Status

    marker = request.node.get_closest_marker("kcontract")
    preset = dict(marker.kwargs) if marker is not None else {}
    if unknown := sorted(preset.keys() - set(_OPTIONS)):
        takes = ", ".join(_OPTIONS)
        pytest.fail(f"the marker kcontract has no option {unknown[0]!r}; it takes {takes}", pytrace=False)

    def run(candidate: Any, reference: Any = None, name: str | None = None, **options: Any) -> Result:
        given = {**preset, **options}
        result = _verified(str(candidate), reference=str(reference) if reference else None, name=name, **given)
        failed = [v for v in result.report.verdicts if v.status in (Status.FAIL, Status.ERROR)]
        if failed:
            replays = _replays(request.config, result)
            lines = (f"{v.gate} {v.status}: {v.reason}\n{replays.get(v.gate, '')}".rstrip() for v in failed)
            pytest.fail("\n".join(lines), pytrace=False)
        if not any(v.status is Status.PASS for v in result.report.verdicts):
            open_ = [f"{v.gate} {v.status}: {v.reason}" for v in result.report.verdicts]
            pytest.skip("no gate was answered: " + "; ".join(open_))
        return result

    return run
