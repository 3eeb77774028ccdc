"""Operations that print their operands in another order than they hold them.

Each entry takes the names in printed order, and the text they stand in, to the order of the operation's definition.
"""

from __future__ import annotations

from collections.abc import Callable

from kcontract.ir.ttgir.text import USE, split_top

Reorder = Callable[[list[str], str], list[str]]


def _groups(body: str) -> list[list[str]]:
    """The names in each comma-separated piece of what stands before the types."""
    return [USE.findall(part) for part in split_top(body.partition(" : ")[0])]


def _barrier_before_result(names: list[str], body: str) -> list[str]:
    """``desc[coordinates] result, barrier, predicate``: the barrier comes before the result."""
    return [*names[:-3], *names[-2:-1], *names[-3:-2], *names[-1:]]


def _source_before_indices(names: list[str], body: str) -> list[str]:
    """``desc[indices], source``: the source comes before the indices."""
    return [*names[:1], *names[-1:], *names[1:-1]] if len(names) > 1 else names


def _destination_first(names: list[str], body: str) -> list[str]:
    """``source, destination[token], predicate``: the source comes after the token."""
    return [*names[1:-1], *names[:1], *names[-1:]] if len(names) > 2 else names


def _scales_last(names: list[str], body: str) -> list[str]:
    """``a scale s, b scale t, c``: the scales come last."""
    groups = [group for group in _groups(body) if group]
    return [group[0] for group in groups] + [name for group in groups for name in group[1:]]


def _predicates_last(plain: int) -> Reorder:
    """``…, barrier[p], barrier[q]`` after ``plain`` other pieces: the predicates come after all barriers."""

    def reorder(names: list[str], body: str) -> list[str]:
        groups = _groups(body)
        pairs = [group for group in groups[plain:] if group]
        return [
            *(name for group in groups[:plain] for name in group),
            *(group[0] for group in pairs),
            *(name for group in pairs for name in group[1:]),
        ]

    return reorder


REORDERED: dict[str, Reorder] = {
    "tt.descriptor_reduce": _source_before_indices,
    "tt.descriptor_store": _source_before_indices,
    "tt.dot_scaled": _scales_last,
    "tt.experimental_descriptor_reduce": _source_before_indices,
    "tt.experimental_descriptor_store": _source_before_indices,
    "ttg.local_scatter": _source_before_indices,
    "ttng.async_tma_copy_global_to_local": _barrier_before_result,
    "ttng.async_tma_gather": _barrier_before_result,
    "ttng.tc_gen5_mma": _predicates_last(5),
    "ttng.tc_gen5_mma_scaled": _predicates_last(7),
    "ttng.tmem_store": _destination_first,
}
