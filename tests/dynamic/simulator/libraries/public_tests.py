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

    python tests/dynamic/simulator/libraries/public_tests.py MANIFEST.json liger-kernel:sm_90=ONE.jsonl \\
        liger-kernel:sm_100=OTHER.jsonl fla-core:sm_90=...

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
    """Counts launches, also one that ends in a fault, while a test runs and writes its line."""

    def __init__(self, config: pytest.Config) -> None:
        import triton

        self.path, self.seconds = config.getoption("--record"), config.getoption("--seconds")
        self.elements = config.getoption("--elements")
        self.launches: Counter[str] = Counter()
        driver = triton.runtime.driver.active
        launch = driver.launch

        def counted(source: Any, metadata: Any, *rest: Any) -> None:
            self.launches[metadata.name] += 1
            launch(source, metadata, *rest)

        driver.launch = counted

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


def manifest(files: list[str]) -> dict[str, Any]:
    """The manifest of files given as ``LIBRARY:TARGET=PATH``; every launch of a test that did not pass has failed.

    Tests that passed and launched nothing are not in it.
    """
    tests: dict[str, dict[str, Any]] = defaultdict(dict)
    others: dict[str, dict[str, str]] = defaultdict(dict)
    totals: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for given in files:
        origin, path = given.split("=", 1)
        library, target = origin.split(":")
        lines = {line["test"]: line for line in map(json.loads, Path(path).read_text().splitlines())}
        for name, line in lines.items():
            count, reason = sum(line["launches"].values()), line.get("reason", "").partition("\n")[0][:160]
            passed = line["result"] == "passed"
            if line["result"] in ("skipped", "too large"):
                others[name][target] = f"{line['result']}: {reason.removeprefix('Skipped: ')}"
            elif count or not passed:
                tests[name][target] = {"passed": passed, "launches": count} | ({} if passed else {"reason": reason})
                for total in (totals[library][target], totals["all"][target]):
                    total[f"launches {line['result']}"] += count
                    total[f"tests {line['result']}"] += 1
    return {"totals": totals, "tests": tests, "left out": others}


def main() -> None:
    out, *given = sys.argv[1:]
    made = manifest(given)
    parts = [
        f"{json.dumps(part)}: {{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in found.items()) + "\n}"
        for part, found in made.items()
    ]
    Path(out).write_text("{\n" + ",\n".join(parts) + "\n}\n")
    for library, targets in made["totals"].items():
        for target, count in targets.items():
            ratio = count["launches passed"] / max(count["launches passed"] + count["launches failed"], 1)
            print(f"{library} {target}: {ratio:.4f} of launches, {dict(count)}")


if __name__ == "__main__":
    main()
