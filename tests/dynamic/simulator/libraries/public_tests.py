"""Runs a library's own tests on a simulated GPU and writes down, a test, whether it passed and what it launched.

A pytest plugin. In the root of an unpacked source distribution of liger-kernel (``pip download --no-deps --no-binary
:all: liger-kernel``), with this folder on PYTHONPATH:

    kcontract run --engine sim:sm_90 --max-configs 1 -- python -m pytest -q -p public_tests --record OUT.jsonl \\
        test/transformers/test_rms_norm.py ...

Of each test function the ``--most`` cases with the smallest numbers in their names are run, and none whose numbers
multiply to more than ``--largest``; a test that takes longer than ``--seconds`` is left out and said to be. Given
``--only MANIFEST.json`` exactly the tests that it names are run. Afterwards

    python tests/dynamic/simulator/libraries/public_tests.py MANIFEST.json sm_90=ONE.jsonl sm_100=OTHER.jsonl

writes the manifest: tests that reached a comparison, with their result and launches, and the others with the reason.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest


class _TooLong(BaseException):
    """Not an Exception, so that no test takes it for its own."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("public tests")
    group.addoption("--record", required=True, help="JSON lines to append to, one a test")
    group.addoption("--most", type=int, default=3, help="cases of one test function")
    group.addoption("--largest", type=int, default=3_000_000, help="product of the sizes of a case")
    group.addoption("--seconds", type=int, default=60, help="time of one test")
    group.addoption("--only", default=None, help="a manifest whose tests are run, and no others")


def size(name: str) -> int:
    """How large a case is, by the numbers in its name."""
    product = 1
    whole = re.sub(r"[\d.]+e-\d+", "", name.partition("[")[2]).replace("-", " ")
    for number in re.findall(r"(?<![\w.])\d+(?![\w.])", whole):
        product *= max(int(number), 1)
    return product


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    only = config.getoption("--only")
    if only:
        with open(only) as file:
            names = set(json.load(file)["tests"])
        items[:] = [i for i in items if i.nodeid in names]
        return
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        groups[item.nodeid.partition("[")[0]].append(item)
    most, largest = config.getoption("--most"), config.getoption("--largest")
    chosen = [i for g in groups.values() for i in sorted(g, key=lambda i: (size(i.nodeid), i.nodeid))[:most]]
    items[:] = [i for i in chosen if size(i.nodeid) <= largest]


class Recorder:
    """Counts launches while a test runs and writes its line."""

    def __init__(self, config: pytest.Config) -> None:
        import triton

        self.path, self.seconds = config.getoption("--record"), config.getoption("--seconds")
        self.launches: Counter[str] = Counter()
        triton.runtime.driver.active.observers.append(lambda name, grid: self.launches.update([name]))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self.launches.clear()
        line: dict[str, Any] = {"test": item.nodeid, "result": "passed"}

        def over(*_: object) -> None:
            raise _TooLong

        signal.signal(signal.SIGALRM, over)
        signal.alarm(self.seconds)
        try:
            yield
        except pytest.skip.Exception as skip:
            line |= {"result": "skipped", "reason": str(skip)[:200]}
            raise
        except _TooLong:
            line |= {"result": "left out", "reason": f"takes over {self.seconds} seconds"}
            pytest.skip(line["reason"])
        except Exception as error:
            line |= {"result": "failed", "reason": f"{type(error).__name__}: {error}"[:300]}
            raise
        finally:
            signal.alarm(0)
            line["launches"] = dict(self.launches)
            with open(self.path, "a") as file:
                file.write(json.dumps(line) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Recorder(config), "recorder")


#: Errors that are a test's own verdict, or the simulator's.
_VERDICTS = ("AssertionError", "Failed", "Fault", "Unsupported")


def manifest(files: dict[str, str]) -> dict[str, Any]:
    """The manifest of one file of lines a target. A test that ends in another error than a verdict was not judged."""
    tests: dict[str, dict[str, Any]] = defaultdict(dict)
    others: dict[str, dict[str, str]] = defaultdict(dict)
    totals: dict[str, Counter[str]] = {}
    for target, path in files.items():
        total = totals[target] = Counter[str]()
        with open(path) as file:
            lines = {line["test"]: line for line in map(json.loads, file)}
        for name, line in lines.items():
            count, reason = sum(line["launches"].values()), line.get("reason", "")
            verdict = line["result"] == "passed" or (line["result"] == "failed" and reason.startswith(_VERDICTS))
            if not verdict:
                others[name][target] = reason.splitlines()[0][:160]
                total["not judged"] += count
            elif count:
                tests[name][target] = {"passed": line["result"] == "passed", "launches": count}
                total["passed" if line["result"] == "passed" else "failed"] += count
                if reason:
                    tests[name][target]["reason"] = reason.splitlines()[0][:160]
    ratios = {t: round(c["passed"] / (c["passed"] + c["failed"]), 4) for t, c in totals.items()}
    return {"launches": totals, "passed": ratios, "tests": dict(tests), "not judged": dict(others)}


def main() -> None:
    out, *given = sys.argv[1:]
    made = manifest(dict(x.split("=", 1) for x in given))
    with open(out, "w") as file:
        json.dump(made, file, indent=1)
        file.write("\n")
    print(made["launches"], made["passed"])


if __name__ == "__main__":
    main()
