"""What the threads of one warp do together, for all warps of a strand at once.

Strands of whole warps are seen as (rows, warps, 32). Other strands (after divergence within a warp) are spread into
such an array first; threads that are not there count as inactive, as the hardware's member mask says they may not
be read.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from kcontract.dynamic.engines.simulator import arith
from kcontract.dynamic.engines.simulator.strand import Strand
from kcontract.dynamic.engines.simulator.values import Array

_LANES = np.arange(32)
_BITS = (np.uint32(1) << np.arange(32, dtype="u4")).astype("u4")


def sources(mode: str, b: int, c: int) -> tuple[Array, Array]:
    """For each lane, the lane `shfl` reads and whether it is in range (PTX ISA, `shfl.sync`)."""
    lanes, inside = _sources(mode, _LANES, np.full(32, b), np.full(32, c))
    return lanes, inside


def _sources(mode: str, lane: Array, b: Array, c: Array) -> tuple[Array, Array]:
    step, clamp, segment = b & 31, c & 31, (c >> 8) & 31
    top = (lane & segment) | (clamp & ~segment)
    if mode == "up":
        j = lane - step
        inside = j >= top
    elif mode == "down":
        j = lane + step
        inside = j <= top
    elif mode == "bfly":
        j = lane ^ step
        inside = j <= top
    else:
        j = (lane & segment) | (step & ~segment)
        inside = j <= top
    return np.where(inside, j, lane) & 31, inside


class _Spread:
    """Values of a ragged strand as (warps, 32), and back."""

    def __init__(self, strand: Strand) -> None:
        ids = strand.ids().reshape(-1)
        self.shape = (strand.b, strand.t)
        self.warps, self.warp = np.unique(ids >> 5, return_inverse=True)
        self.lane = ids & 31
        self.present = np.zeros((len(self.warps), 32), bool)
        self.present[self.warp, self.lane] = True

    def out(self, values: Array) -> Array:
        grid = np.zeros((len(self.warps), 32), values.dtype)
        grid[self.warp, self.lane] = np.broadcast_to(values, self.shape).reshape(-1)
        return grid

    def back(self, grid: Array) -> Array:
        return np.ascontiguousarray(grid[self.warp, self.lane]).reshape(self.shape)


def grid(strand: Strand, x: Array) -> Array:
    """(rows, warps, 32) of a strand of whole warps; rows is 1 where x is equal in all CTAs."""
    if x.shape[1] != strand.t:
        x = np.broadcast_to(x, (x.shape[0], strand.t))
    return x.reshape(x.shape[0], strand.warps, 32)


def permute(strand: Strand, x: Array, lanes: Array) -> Array:
    """Each lane reads the lane given by the constant table."""
    if x.shape[1] == 1 and strand.t > 1:
        return x
    if strand.warps:
        return cast(Array, grid(strand, x).take(lanes, axis=2).reshape(x.shape))
    spread = _Spread(strand)
    there = np.where(spread.present[:, lanes], lanes, _LANES)
    return spread.back(np.take_along_axis(spread.out(x), there, axis=1))


def by_lane(strand: Strand, table: Array) -> Array:
    """A constant a lane, as a register."""
    return np.asarray(table[strand.tid & 31])


def shuffle(strand: Strand, mode: str, x: Array, b: Array, c: Array) -> tuple[Array, Array]:
    lane = strand.tid & 31
    j, inside = _sources(mode, lane, b.astype("i8"), c.astype("i8"))
    if strand.warps:
        full = grid(strand, strand.full(x))
        where = grid(strand, strand.full(j))
        out = np.take_along_axis(full, where, axis=2).reshape(strand.b, strand.t)
    else:
        spread = _Spread(strand)
        out = spread.back(np.take_along_axis(spread.out(x), spread.out(j), axis=1))
    return out, strand.full(inside)


def _parties(strand: Strand, members: Array, guard: Array | None) -> tuple[_Spread | None, Array]:
    """How to spread, and who takes part as (rows, warps, 32) or (warps, 32)."""
    part = (members >> (strand.tid & 31).astype("u4")) & np.uint32(1) != 0
    if guard is not None:
        part = part & guard
    if strand.warps:
        return None, grid(strand, part)
    spread = _Spread(strand)
    return spread, spread.out(part) & spread.present


def _result(strand: Strand, spread: _Spread | None, value: Array) -> Array:
    """One value a warp (last axis 1) as a register."""
    if spread is not None:
        return spread.back(np.broadcast_to(value, (len(spread.warps), 32)))
    rows = value.shape[0]
    return np.broadcast_to(value, (rows, strand.warps, 32)).reshape(rows, strand.t)


def vote(strand: Strand, mode: str, x: Array, members: Array, guard: Array | None) -> Array:
    spread, part = _parties(strand, members, guard)
    values = grid(strand, x) if spread is None else spread.out(x)
    yes = values & part
    if mode == "ballot":
        out = (yes * _BITS).sum(axis=-1, dtype="u4", keepdims=True)
    elif mode == "any":
        out = yes.any(axis=-1, keepdims=True)
    else:
        every = (yes == part).all(axis=-1, keepdims=True)
        out = every if mode == "all" else every | ~yes.any(axis=-1, keepdims=True)
    return _result(strand, spread, out)


def match(strand: Strand, mode: str, x: Array, members: Array) -> tuple[Array, Array]:
    spread, part = _parties(strand, members, None)
    values = grid(strand, strand.full(x)) if spread is None else spread.out(x)
    part = np.broadcast_to(part, values.shape)
    same = (values[..., :, None] == values[..., None, :]) & part[..., None, :]
    words = (same * _BITS).sum(axis=-1, dtype="u4")
    everyone = (part * _BITS).sum(axis=-1, dtype="u4", keepdims=True)
    agreed = (words == everyone) | ~part
    every = agreed.all(axis=-1, keepdims=True)
    if mode == "all":
        words = np.where(every, everyone, np.uint32(0)) + np.zeros_like(words)
    flag = np.broadcast_to(every, words.shape)
    if spread is not None:
        return spread.back(words), spread.back(flag)
    return words.reshape(strand.b, strand.t), flag.reshape(strand.b, strand.t)


def reduce(strand: Strand, op: str, x: Array, members: Array, *, absolute: bool, nan: bool) -> Array:
    """`redux.sync` on integers and, for min and max, float32."""
    spread, part = _parties(strand, members, None)
    values = grid(strand, x) if spread is None else spread.out(x)
    if absolute:
        values = np.abs(values)
    if values.dtype.kind == "f":
        start = np.float32(np.inf if op == "min" else -np.inf)
        bad = np.isnan(values)
        usable = part & ~bad
        function = np.minimum if op == "min" else np.maximum
        out = function.reduce(np.where(usable, values, start), axis=-1, keepdims=True)
        none = (~usable | ~part).all(axis=-1, keepdims=True)
        poisoned = (part & bad).any(axis=-1, keepdims=True) if nan else none
        out = np.where(poisoned, arith.canonical(out.dtype), out)
        return _result(strand, spread, out)
    limits = np.iinfo(values.dtype)
    start_of = {
        "add": 0,
        "or": 0,
        "xor": 0,
        "and": -1 if limits.min < 0 else limits.max,
        "min": limits.max,
        "max": limits.min,
    }
    chosen = np.where(part, values, values.dtype.type(start_of[op]))
    ufunc = {"add": np.add, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "min": np.minimum,
             "max": np.maximum}[op]  # fmt: skip
    out = ufunc.reduce(chosen, axis=-1, keepdims=True, dtype=values.dtype)
    return _result(strand, spread, out)


def active(strand: Strand) -> Array:
    if strand.warps:
        return np.full((1, 1), 0xFFFFFFFF, "u4")
    spread = _Spread(strand)
    return spread.back(
        np.broadcast_to((spread.present * _BITS).sum(axis=1, dtype="u4")[:, None], (len(spread.warps), 32))
    )


def elect(strand: Strand, members: Array) -> tuple[Array, Array]:
    """The lowest lane of the member mask leads."""
    low = members & (~members + np.uint32(1))
    leader = np.uint32(31) - arith.leading_zeros(low)
    return leader, np.asarray((strand.tid & 31) == leader)
