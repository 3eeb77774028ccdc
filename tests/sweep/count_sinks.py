"""Counts where floating-point numbers are added, from the text of TTGIR alone, and compares with the ledger's rows.

    python tests/sweep/count_sinks.py FOLDER ...        (Triton cache folders)

Why: the ledger promises a row for every sink. This count shares no code with it nor with the reader: it matches lines,
keeps no graph, and knows of MLIR only that a type stands behind the last colon of an operation. It does not judge what
a sink is for; that each row's class is one of those documented is checked beside it.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

CLASSES = ("add", "fma", "dot", "mma", "reduce", "scan", "atomic", "assembly")
#: the kinds of a row that ``passes/analysis/sums.py`` documents, by the class of the sink
_ADDED = {"loop sum", "recurrence", "chain", "partial", "elementwise", "combine"}
ALLOWED = {
    "add": _ADDED,
    "fma": _ADDED,
    "dot": {"dot"},
    "mma": {"mma"},
    "reduce": {"reduce", "order"},
    "scan": {"scan", "order"},
    "atomic": {"atomic"},
    "assembly": {"loop sum", "elementwise"},
}
_FLOAT = r"(?:b?f\d+|tf32|f\d+E\w+)"
_HAS_FLOAT = re.compile(rf"(?:^|[x<(, ]){_FLOAT}\b")
_OPERATION = re.compile(r'^\s*(?:%[\w:]+(?:, %[\w:]+)* = )?"?([a-z]\w*\.[\w.]+)"?[ (]')
_OF_NAME = {
    "arith.addf": "add",
    "arith.subf": "add",
    "math.fma": "fma",
    "tt.dot": "dot",
    "tt.dot_scaled": "dot",
    "ttng.warp_group_dot": "dot",
    "ttng.tc_gen5_mma": "mma",
    "ttng.tc_gen5_mma_scaled": "mma",
    "tt.reduce": "reduce",
    "tt.scan": "scan",
    "tt.atomic_rmw": "atomic",
    "tt.descriptor_reduce": "atomic",
    "ttng.async_tma_reduce": "atomic",
    "tt.elementwise_inline_asm": "assembly",
}
_LOCATION = re.compile(r" loc\((?:[^\"]|\"[^\"]*\")*\)\s*$")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_ASM_ADD = re.compile(r"\b(?:(?:add|sub|fma|mad)(?:\.\w+)*\.(?:bf16x2|f16x2|bf16|f16|f32x2|f32|f64)|w?g?mma[.\w]*)\b")


def count(text: str) -> Counter[str]:
    """Float sinks of one TTGIR module, by class."""
    found: Counter[str] = Counter()
    open_regions: list[tuple[str, str]] = []  # indentation and class of reductions whose type is still to come
    for line in text.splitlines():
        stripped = line.lstrip()
        indentation = line[: len(line) - len(stripped)]
        if open_regions and stripped.startswith("})") and open_regions[-1][0] == indentation:
            _, name = open_regions.pop()
            operands = stripped.partition(":")[2].rpartition("->")[0]
            if _HAS_FLOAT.search(operands):
                found[name] += 1
            continue
        match = _OPERATION.match(line)
        name = _OF_NAME.get(match[1], "") if match else ""
        if name in ("reduce", "scan"):
            open_regions.append((indentation, name))
        elif name and _is_float(name, line):
            found[name] += 1
    if open_regions:
        raise ValueError(f"a {open_regions[-1][1]} has no end")
    return found


def _is_float(name: str, line: str) -> bool:
    bare = _STRING.sub('""', _LOCATION.sub("", line))
    types = bare.rpartition(" : ")[2]
    if name == "assembly":
        return any(_ASM_ADD.search(text) for text in _STRING.findall(line))
    if name == "atomic":
        return bool(re.search(r"\b(?:tt\.atomic_rmw fadd|reduce add),", bare) and _HAS_FLOAT.search(types))
    if name == "mma":
        return _HAS_FLOAT.search(re.findall(r"memdesc<[^<>]*", types)[2]) is not None
    return _HAS_FLOAT.search(types.rpartition("->")[2] if name == "dot" else types) is not None


def differences(text: str, rows: list[tuple[str, str]]) -> list[str]:
    """What differs between the text and ``rows``, the ledger's (operation name, kind); empty where all agree."""
    said = Counter(_OF_NAME[operation] for operation, _ in rows)
    wanted = count(text)
    problems = [
        f"{name}: {wanted[name]} in the text, {said[name]} rows" for name in CLASSES if wanted[name] != said[name]
    ]
    odd = sorted({f"{o} as {kind!r}" for o, kind in rows if kind not in ALLOWED[_OF_NAME[o]]})
    return problems + odd


def ledger_rows(text: str) -> list[tuple[str, str]]:
    """(operation name, kind) of each row of the ledger over one TTGIR text."""
    from kcontract.ir.loaders import load_text
    from kcontract.passes.analysis.accumulations import Ledger
    from kcontract.passes.base import Facts

    rows = Ledger(Facts(load_text(text, "ttgir", "module"))).rows
    return [(row.operation.name, row.kind) for row in rows if row.operation is not None]


def main(folders: list[str]) -> int:
    """Compare every module below the folders; 1 where one differs."""
    bad = 0
    for folder in folders:
        total: Counter[str] = Counter()
        kinds: Counter[str] = Counter()
        paths = sorted(Path(folder).rglob("*.ttgir"))
        for path in paths:
            text = path.read_text(encoding="utf-8")
            rows = ledger_rows(text)
            total += count(text)
            kinds.update(kind for _, kind in rows)
            for problem in differences(text, rows):
                bad += 1
                print(f"{path.relative_to(folder)}: {problem}")
        figures = ", ".join(f"{total[name]} {name}" for name in CLASSES if total[name])
        print(f"{folder}: {len(paths)} modules, {sum(total.values())} sinks ({figures}), {sum(kinds.values())} rows")
        print("  classes: " + ", ".join(f"{number} {kind}" for kind, number in kinds.most_common()))
    return int(bad > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
