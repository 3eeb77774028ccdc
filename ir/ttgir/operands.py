"""Operations that print their operands in another order than they hold them.

Each entry takes the names in printed order, and the text they stand in, to the order of the operation's definition.
"""

from __future__ import annotations

from collections.abc import Callable

from kcontract.ir.ttgir.text import USE, split_top

Reorder = Callable[[list[str], str], list[str]]


def _barrier_before_result(names: list[str], body: str) -> list[str]:
    """``desc[coordinates] result, barrier, predicate``: the barrier comes before the result."""
    start = len(USE.findall(body[: body.find("]")]))
    if start >= len(names):
        return names
    return [*names[:start], *names[start + 1 : start + 2], names[start], *names[start + 2 :]]


def _scaled_dot(names: list[str], body: str) -> list[str]:
    """``a scale s, b scale t, c``: the scales come last."""
    groups = [USE.findall(part) for part in split_top(body.partition(" lhs = ")[0])]
    return [group[0] for group in groups if group] + [name for group in groups for name in group[1:]]


def _barriers_then_predicates(names: list[str], body: str) -> list[str]:
    """``a, b, d[token], use, predicate, barrier[p], …``: the predicates of the barriers come after all barriers."""
    groups = [USE.findall(part) for part in split_top(body.partition(" : ")[0])]
    plain, pairs = groups[:5], groups[5:]
    return [
        *(name for group in plain for name in group),
        *(group[0] for group in pairs if group),
        *(name for group in pairs for name in group[1:]),
    ]


REORDERED: dict[str, Reorder] = {
    "tt.dot_scaled": _scaled_dot,
    "ttng.async_tma_copy_global_to_local": _barrier_before_result,
    "ttng.async_tma_gather": _barrier_before_result,
    "ttng.tc_gen5_mma": _barriers_then_predicates,
}
