"""Small pieces rules are built of: linear combinations of errors, and what is lost near zero."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from kcontract.dynamic.oracle.dtypes import Tensor
from kcontract.dynamic.oracle.tables import Err, either, plus

if TYPE_CHECKING:
    from kcontract.dynamic.oracle.mode import BoundMode


def scaled(total: Tensor | None, gain: Any, e: Tensor, own: bool) -> Tensor:
    """total + |gain|·e; a gain of None is 1, a number is a factor, a tensor holds |gain| already. Formed in place where
    ``total`` is the caller's own."""
    if isinstance(gain, torch.Tensor):
        if total is None:
            return gain * e
        if total.shape == _broadcast(gain.shape, e.shape):
            return total.addcmul_(gain, e) if own else torch.addcmul(total, gain, e)
        return total + gain * e
    factor = 1.0 if gain is None else abs(gain)
    if total is None:
        return e if factor == 1 else e * factor
    if own and total.shape == _broadcast(total.shape, e.shape):
        return total.add_(e, alpha=factor)
    return torch.add(total, e, alpha=factor)


def _broadcast(a: torch.Size, b: torch.Size) -> torch.Size:
    return a if a == b else torch.broadcast_shapes(a, b)  # which takes 80 µs


def linear(
    ctx: BoundMode, y: Tensor, parts: list[tuple[Any, ...]], fresh: Tensor | None, und: Tensor | None = None
) -> Err:
    """Σ gain·error over ``parts`` of (error, gain) or (error, gain, source tensor), + ``fresh`` independent error.

    The independent error of a source smaller than y is the same for many results: it counts as systematic.
    ``fresh`` is written to.
    """
    c: Tensor | None = None
    i = fresh
    own_c, own_i = False, True
    for part in parts:
        e, gain = part[0], part[1]
        if e.exact:
            continue
        if len(part) > 2 and part[2].shape != y.shape:
            e = e.systematic()
        if e.c is not None:
            c, own_c = scaled(c, gain, e.c, own_c), c is not None or _changes(gain)
        if e.i is not None:
            i, own_i = scaled(i, gain, e.i, own_i), i is not None or _changes(gain)
        und = either(und, e.und)
    return Err(c, i, und)


def _changes(gain: Any) -> bool:
    return gain is not None and (isinstance(gain, torch.Tensor) or abs(gain) != 1)


def clean(gain: Tensor) -> Tensor:
    """A gain with NaN (0·Inf, at non-finite elements) taken as 0, in place: never pass a value of the reference."""
    return gain.nan_to_num_(0.0)


def join(*errs: Err) -> Err:
    """The sum of errors of like shape."""
    c = i = und = None
    for e in errs:
        c, i, und = plus(c, e.c), plus(i, e.i), either(und, e.und)
    return Err(c, i, und)
