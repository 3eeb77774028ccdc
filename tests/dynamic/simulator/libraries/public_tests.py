"""Runs a library's own tests on a simulated GPU and writes down, a test, whether it passed and what it launched.

A pytest plugin. In the root of an unpacked source distribution of liger-kernel (``pip download --no-deps --no-binary
:all: liger-kernel``), with this folder on PYTHONPATH and the packages of ``requirements.txt`` beside this file:

    kcontract run --engine sim:sm_90 --max-configs 1 -- python -m pytest -q -p public_tests --record OUT.jsonl \\
        test/transformers test/ops test/chunked_loss test/megatron test/triton

Which tests are run is fixed by their names and by the sizes of their tensors, never by their result:

- of each test function the ``--most`` cases with the smallest numbers in their names, and none whose numbers multiply
  to more than ``--largest``;
- no test that makes a tensor of more than ``--elements`` elements: it stops there and is noted as too large;
- no test that the library itself skips or expects to fail on one GPU of this kind.

All others count, a test that takes longer than ``--seconds`` or ends in any error as a failure. Tests that OUT.jsonl
already names are not run again, so that a run that was ended goes on where it stood. Given ``--only MANIFEST.json``
exactly the tests that it names are run. Afterwards

    python tests/dynamic/simulator/libraries/public_tests.py MANIFEST.json sm_90=ONE.jsonl sm_100=OTHER.jsonl

writes the manifest: tests that launched a kernel or failed, with result and launches, and those left out, with reason.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode


class _LeftOut(BaseException):
    """The test is not a small one. Not an Exception, so that no test takes it for its own."""


class _TooLong(BaseException):
    """The test has had its time."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("public tests")
    group.addoption("--record", required=True, help="JSON lines to append to, one a test")
    group.addoption("--most", type=int, default=3, help="cases of one test function")
    group.addoption("--largest", type=int, default=3_000_000, help="product of the sizes of a case")
    group.addoption("--elements", type=int, default=1 << 23, help="elements of the largest tensor of a test")
    group.addoption("--seconds", type=int, default=900, help="time of one test")
    group.addoption("--only", default=None, help="a manifest whose tests are run, and no others")


def size(name: str) -> int:
    """How large a case is, by the numbers in its name."""
    product = 1
    whole = re.sub(r"[\d.]+e-\d+", "", name.partition("[")[2]).replace("-", " ")
    for number in re.findall(r"(?<![\w.])\d+(?![\w.])", whole):
        product *= max(int(number), 1)
    return product


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    only, record = config.getoption("--only"), Path(config.getoption("--record"))
    if only:
        with open(only) as file:
            names = set(json.load(file)["tests"])
        items[:] = [i for i in items if i.nodeid in names]
    else:
        groups: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            if not any(all(mark.args) for mark in item.iter_markers("xfail")):
                groups[item.nodeid.partition("[")[0]].append(item)
        most, largest = config.getoption("--most"), config.getoption("--largest")
        chosen = [i for g in groups.values() for i in sorted(g, key=lambda i: (size(i.nodeid), i.nodeid))[:most]]
        items[:] = [i for i in chosen if size(i.nodeid) <= largest]
    done = {json.loads(line)["test"] for line in record.read_text().splitlines()} if record.exists() else set()
    items[:] = [i for i in items if i.nodeid not in done]


class _Small(TorchDispatchMode):
    """Ends the test at the first tensor of more than ``most`` elements."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, torch.Tensor) and tensor.numel() > self.most:
                raise _LeftOut(f"a tensor of {tensor.numel():,} elements")
        return out


class Recorder:
    """Counts launches while a test runs and writes its line."""

    def __init__(self, config: pytest.Config) -> None:
        import triton

        self.path, self.seconds = config.getoption("--record"), config.getoption("--seconds")
        self.elements = config.getoption("--elements")
        self.launches: Counter[str] = Counter()
        triton.runtime.driver.active.observers.append(lambda name, grid: self.launches.update([name]))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self.launches.clear()
        line: dict[str, Any] = {"test": item.nodeid, "result": "passed"}

        def over(*_: object) -> None:
            raise _TooLong(f"takes over {self.seconds} seconds")

        signal.signal(signal.SIGALRM, over)
        signal.alarm(self.seconds)
        start = time.perf_counter()
        try:
            with _Small(self.elements):
                yield
        except (pytest.skip.Exception, pytest.xfail.Exception) as skip:
            line |= {"result": "skipped", "reason": str(skip)[:200]}
            raise
        except _LeftOut as large:
            line |= {"result": "too large", "reason": str(large)}
            pytest.skip(line["reason"])
        except BaseException as error:
            line |= {"result": "failed", "reason": f"{type(error).__name__}: {error}"[:300]}
            asked = re.search(r"tried to allocate (\d+) bytes", str(error))
            if asked and int(asked[1]) > 8 * self.elements:
                line |= {"result": "too large", "reason": f"a tensor of {int(asked[1]):,} bytes"}
            raise
        finally:
            signal.alarm(0)
            line |= {"launches": dict(self.launches), "seconds": round(time.perf_counter() - start, 1)}
            self.write(line)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that ended before its call."""
        if report.when == "setup" and not report.passed:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            result = "skipped" if report.skipped else "failed"
            self.write({"test": report.nodeid, "result": result, "reason": reason[-200:], "launches": {}, "seconds": 0})

    def write(self, line: dict[str, Any]) -> None:
        with open(self.path, "a") as file:
            file.write(json.dumps(line) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Recorder(config), "recorder")


def manifest(files: dict[str, str]) -> dict[str, Any]:
    """The manifest of one file of lines a target; every launch of a test that did not pass counts as failed."""
    tests: dict[str, dict[str, Any]] = defaultdict(dict)
    others: dict[str, dict[str, str]] = defaultdict(dict)
    totals: dict[str, Counter[str]] = {}
    for target, path in files.items():
        total = totals[target] = Counter[str]()
        with open(path) as file:
            lines = {line["test"]: line for line in map(json.loads, file)}
        for name, line in lines.items():
            count, reason = sum(line["launches"].values()), line.get("reason", "")
            short = reason.splitlines()[0][:160] if reason else ""
            if line["result"] in ("skipped", "too large"):
                others[name][target] = f"{line['result']}: {short}"
            elif count or line["result"] == "failed":
                passed = line["result"] == "passed"
                tests[name][target] = {"passed": passed, "launches": count} | ({"reason": short} if short else {})
                total["launches passed" if passed else "launches failed"] += count
                total["tests passed" if passed else "tests failed"] += 1
    ratios = {
        t: {k: round(c[f"{k} passed"] / (c[f"{k} passed"] + c[f"{k} failed"]), 4) for k in ("launches", "tests")}
        for t, c in totals.items()
    }
    return {"totals": totals, "passed": ratios, "tests": dict(tests), "left out": dict(others)}


def main() -> None:
    out, *given = sys.argv[1:]
    made = manifest(dict(x.split("=", 1) for x in given))
    with open(out, "w") as file:
        json.dump(made, file, indent=1)
        file.write("\n")
    print(made["totals"], made["passed"])


if __name__ == "__main__":
    main()
