"""One line a kernel of the corpus: gates it failed, what was expected, seconds.

``python tests/corpus/report.py ENGINE [--jobs=N] [--customary] [WORD ...]`` judges the files whose path holds a word,
or all, N at a time. Exit status 1 where any verdict differs from what its file expects. ``--customary`` makes the
customary check instead.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from corpus_files import Case, cases, customary

from kcontract.dynamic.verify import verify
from kcontract.model import Status


def judge(case: Case, name: str, engine: str) -> tuple[bool, str]:
    """Whether the verdict on one class is as expected, and its line (more lines where it is not)."""
    if reason := case.left_out(engine):
        return True, f"left  {case.name:34}{name:10}{reason}"
    start = time.monotonic()
    result = verify(case.problem(name), engine=engine)
    failed = [v.gate for v in result.report.verdicts if v.status is Status.FAIL]
    wrong = case.disagreement(name, result)
    expected = ", ".join(case.expect) if name == "ModelNew" and case.expect else "none"
    lines = [
        f"{'WRONG' if wrong else 'ok':6}{case.name:34}{name:10}{time.monotonic() - start:6.1f} s  "
        f"failed {', '.join(failed) or 'none'}; expected {expected}" + (f"  <- {wrong}" if wrong else "")
    ]
    for verdict in result.report.verdicts if wrong else ():
        if verdict.status in (Status.FAIL, Status.ERROR) or verdict.gate in case.expect:
            lines.append(f"        {verdict.gate} {verdict.status.value}: {verdict.reason}")
    return not wrong, "\n".join(lines)


def check(case: Case, name: str, engine: str) -> tuple[bool, str]:
    """Whether one class passes the customary check, and its line."""
    off = customary(case, engine, name)
    return not off, f"{'WRONG' if off else 'ok':6}{case.name:34}{name:10}{off}"


def main(engine: str, *words: str) -> int:
    """The exit status."""
    jobs = next((int(w.partition("=")[2]) for w in words if w.startswith("--jobs=")), 1)
    work = check if "--customary" in words else judge
    parts = [w for w in words if not w.startswith("--")]
    found = [c for folder in ("faulty", "honest") for c in cases(folder)]
    found = [c for c in found if not parts or any(p in str(c.path) for p in parts)]
    todo = [(case, name) for case in found for name in case.classes]
    good = 0
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for fine, text in pool.map(work, *zip(*todo, strict=True), [engine] * len(todo)):
            print(text, flush=True)
            good += fine
    print(f"{good} of {len(todo)} as wanted")
    return 0 if good == len(todo) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
