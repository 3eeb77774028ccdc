"""One line a kernel of the corpus: gates it failed, what was expected, seconds.

``python tests/corpus/report.py ENGINE [WORD ...]`` judges the files whose path holds a word, or all. Exit status 1
where any verdict differs from what its file expects. ``--customary`` makes the customary check instead.
"""

from __future__ import annotations

import sys
import time

from corpus_files import Case, cases, customary

from kcontract.dynamic.verify import verify
from kcontract.model import Status


def line(case: Case, name: str, engine: str) -> bool:
    """Judge one class and print its line; whether the verdict is as expected."""
    start = time.monotonic()
    result = verify(case.problem(name), engine=engine)
    failed = [v.gate for v in result.report.verdicts if v.status is Status.FAIL]
    wrong = case.disagreement(name, result)
    expected = ", ".join(case.expect) if name == "ModelNew" and case.expect else "none"
    seconds = time.monotonic() - start
    said = (
        f"{'WRONG' if wrong else 'ok':6}{case.name:34}{name:10}{seconds:6.1f} s  failed {', '.join(failed) or 'none'}"
    )
    print(f"{said}; expected {expected}" + (f"  <- {wrong}" if wrong else ""), flush=True)
    for verdict in result.report.verdicts if wrong else ():
        if verdict.status in (Status.FAIL, Status.ERROR) or verdict.gate in case.expect:
            print(f"        {verdict.gate} {verdict.status.value}: {verdict.reason}", flush=True)
    return not wrong


def main(engine: str, *words: str) -> int:
    """The exit status."""
    chosen = [c for folder in ("faulty", "honest") for c in cases(folder)]
    flags = [w for w in words if w.startswith("--")]
    words = tuple(w for w in words if not w.startswith("--"))
    chosen = [c for c in chosen if not words or any(w in str(c.path) for w in words)]
    good = True
    for case in chosen:
        for name in case.classes:
            if "--customary" in flags:
                off = customary(case, engine, name)
                print(f"{'WRONG' if off else 'ok':6}{case.name:34}{name:10}{off}", flush=True)
                good &= not off
            elif not case.runs_on(engine) or case.head.get("DEVICES", 1) > 1:
                print(f"left  {case.name:34}{name:10}for {case.head['ENGINE']}", flush=True)
            else:
                good &= line(case, name, engine)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
