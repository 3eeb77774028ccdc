"""``--accumulators``: the accumulation ledger of one kernel, as a table or as JSON lines."""

from __future__ import annotations

import json

from kcontract.ir.artifact import Artifact
from kcontract.passes.analysis.accumulations import Ledger
from kcontract.passes.analysis.sums import Row
from kcontract.passes.analysis.tree import Trees
from kcontract.passes.base import Facts


def render(artifact: Artifact, *, as_json: bool) -> str:
    """Every accumulation, one a line; rows of one ``group`` add into the same accumulator."""
    facts = Facts(artifact)
    rows = [row for row in facts.get(Ledger).rows if row.accumulates]
    trees = [str(facts.get(Trees).at(row) or "") for row in rows]
    if as_json:
        records = (_record(artifact, row, tree) for row, tree in zip(rows, trees, strict=True))
        return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    lines = [f"{artifact.kernel} ({artifact.target}): {len(rows)} accumulations"]
    for row, tree in zip(rows, trees, strict=True):
        place = row.place.location.user() if row.place.location else f"{row.place.ir}:{row.place.ir_line}"
        kept = f"{row.element} (wider in name only)" if row.narrowed else row.element
        note = " exact" if row.exact else ""
        lines.append(f"  #{row.group:<3} {row.kind:10} {row.inputs:>9} -> {kept:5}{note}  {row.terms} terms  {place}")
        lines += [f"       added {tree}"] if tree else []
    return "\n".join(lines) + "\n\n"


def _record(artifact: Artifact, row: Row, tree: str) -> dict[str, object]:
    place = row.place.location.user() if row.place.location else None
    return {
        "type": "accumulation",
        "kernel": artifact.kernel,
        "target": artifact.target.name,
        "kind": row.kind,
        "element": row.element,
        "inputs": row.inputs,
        "terms": [row.terms.low, row.terms.high],
        "trust": row.terms.trust.value,
        "narrowed": row.narrowed,
        "exact": row.exact,
        "tree": tree,
        "group": row.group,
        "file": place.file if place else None,
        "line": place.line if place else None,
        "ir": row.place.ir,
        "ir_line": row.place.ir_line,
    }
