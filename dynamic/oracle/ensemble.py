"""The bound where running tables are too coarse: float64 runs of the reference with every local error put in by chance.

Tables hold no covariance, so each mean, variance or gate counts an independent error as a systematic one, and a bound
multiplies by 3 to 20 a normalisation: LayerNorm, whose true Jacobian keeps a random error's size, after 8 layers

    running tables 3e2        true error of float32 4e-7        these runs 3e-5

Here each operation's own error, from the same rules, is λ times added to its result with a random sign, in all later
ones by the reference's own arithmetic, forward and backward. Each run has a mirror with all signs turned: a choice
within reach of its operand's error falls the other way in one of them; 16-bit steps make many, whose jumps grow with
the root of the noise only: there a spread counts fourfold. It samples: a bound is the largest of few
spreads, at least their root mean square along the last axis. It sharpens no index, and no worst-case model.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kcontract.dynamic.oracle.dtypes import Tensor
from kcontract.dynamic.oracle.mode import BoundMode
from kcontract.dynamic.oracle.model import Accumulation
from kcontract.dynamic.oracle.tables import Err, either

PAIRS = 4
POOL = 65521
"""Random signs kept (a prime: no axis has it as a period); larger tensors repeat them."""
CELLS = 512.0
BENT = 0.1
"""The most Σ(d + d')² over Σ(d² + d'²) of two mirrored runs: 0 where all is linear, 1 where nothing is."""
COARSE = 2.0**-12
JUMPY = 4.0
"""What a spread is multiplied by where 16-bit steps decide choices (2 needed λ = 6.1)."""
LOOSE = 4096.0
USUAL = 0.9
WORTHLESS = 0.25
BETTER = 4.0
FEW = 8
UNDERFLOWS = 64
STEPS = frozenset({"floor", "ceil", "round", "trunc", "sign", "sgn", "_local_scalar_dense"})
FORMULA = "largest spread of 8 runs, each local error times λ"


class Perturbed(BoundMode):
    """A run whose results are each off by λ times their own error: the independent part with random signs and, beside
    them, signs that equal values share (they round alike); the systematic part with all signs alike, the value's signs
    and random ones together, alike for all operations of one name.

    ``mirror`` turns all signs. Tables hold only what is undetermined. ``choices`` is a digest of all whole numbers
    and steps: where two runs differ in it, errors decided a choice.
    """

    def __init__(self, model: Accumulation, matrix_units: bool, seed: int, mirror: bool, signs: bool = False) -> None:
        super().__init__(model, matrix_units)
        self._seed, self._random = seed, random.Random(seed)
        self._size = -self.lam if mirror else self.lam
        generator = torch.Generator().manual_seed(seed)
        # even between -sqrt 3 and sqrt 3 (mean square 1): of signs alone, two are alike in every second run
        self._signs = torch.rand(POOL, generator=generator, dtype=torch.float64).mul_(2).sub_(1).mul_(3**0.5)
        if signs:
            self._signs.sign_()
        self._common: dict[str, tuple[int, int]] = {}
        self.choices = 0.0
        self._made: dict[int, StorageWeakRef] = {}

    def computed(self, t: Tensor) -> bool:
        return t.untyped_storage()._cdata in self._made

    def keep(self, value: Tensor, err: Err) -> Err:
        """Put the error of ``value`` into it."""
        if self.model.u_operand:
            storage = value.untyped_storage()
            self._made[storage._cdata] = StorageWeakRef(storage)  # keeps its key from reuse
        if not value.is_floating_point() or self.current in STEPS:
            weights = torch.arange(1, value.numel() + 1, dtype=torch.float64, device=value.device).sqrt_()
            self.choices = self.choices * 0.75 + float(weights.mul_(value.reshape(-1)).sum().nan_to_num(0.5))
        if not value.is_floating_point():
            return err
        c, i = (self._of_zeros(value, part) for part in (err.c, err.i))
        if c is not None:
            one, own = self._shared(self.current)
            c = self._draw(value).add(one).add_(value.sign(), alpha=own).mul_(c)
        if i is not None:
            signs = self._draw(value)
            signs = self._alike(value).add_(signs, alpha=0.5)  # never 0
            value.addcmul_(signs, i, value=self._size)
        if c is not None:
            value.add_(c, alpha=self._size)
        return Err(None, None, err.und)

    def _alike(self, value: Tensor) -> Tensor:
        """Signs that values share which are equal to nine bits, so that a mirror's are the same."""
        place = torch.frexp(value).mantissa.abs_().mul_(CELLS).add_(self._random.random())
        return place.frac_().sub_(0.5).sign_().mul_(value.sign())

    def _of_zeros(self, value: Tensor, part: Tensor | None) -> Tensor | None:
        """An error without that of underflow where the result is 0, which then no kernel makes negative."""
        if part is None or not self.model.eta or not bool((value == 0).any()):
            return part
        return part.masked_fill((value == 0) & (part <= self.model.eta * UNDERFLOWS), 0.0)

    def adopt(self, y: Any, parts: Sequence[Any]) -> tuple[Err, ...]:
        """The decomposition's results, which hold their errors, in place of the native ones."""
        for value, part in zip(y if isinstance(y, (tuple, list)) else (y,), parts, strict=True):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                value.copy_(part)
        return tuple(Err(None, None, self.err(p).und) for p in parts)

    def _shared(self, op: str) -> tuple[int, int]:
        if op not in self._common:
            draw = random.Random(f"{self._seed} {op}")
            self._common[op] = (draw.choice((-1, 1)), draw.choice((-1, 1)))
        return self._common[op]

    def _draw(self, like: Tensor) -> Tensor:
        """Random signs shaped like a tensor."""
        if self._signs.device != like.device:
            self._signs = self._signs.to(like.device)
        count, start = like.numel(), self._random.randrange(POOL)
        if start + count <= POOL:
            return self._signs[start : start + count].reshape(like.shape)
        turned = self._signs.roll(-start)
        return turned.repeat(-(-count // POOL))[:count].reshape(like.shape)


def loose(model: Accumulation, value: Tensor, bound: Tensor, undetermined: Tensor) -> bool:
    """True where a quarter of the elements are bounded by more than 4096 roundings (or a quarter) of the output's
    size, or not at all."""
    if not value.is_floating_point() or not value.numel():
        return False
    limit = min(LOOSE * max(model.u, model.u_step, model.u_factor), WORTHLESS)
    far = (bound > _size(value) * limit).logical_or_(undetermined)
    return bool(int(torch.count_nonzero(far)) > 0.25 * value.numel())


def _size(value: Tensor) -> float:
    """The root mean square of the finite elements (of all as if finite)."""
    size = float(torch.linalg.vector_norm(value))
    if not math.isfinite(size):
        size = float(torch.linalg.vector_norm(value.nan_to_num(0.0, 0.0, 0.0)))
    return size / math.sqrt(value.numel())


class _Spread:
    """The largest deviations of one tensor so far, and the sum of their squares along the last axis."""

    def __init__(self, value: Tensor) -> None:
        self.value = value
        self.largest = torch.zeros_like(value)
        self.squares: Any = 0.0
        self.undetermined: Tensor | None = None
        self.first: Tensor | None = None
        self.bent = self.moved = 0.0

    def add(self, found: Tensor, und: Tensor | None) -> None:
        gap = (found - self.value).nan_to_num_(0.0, 0.0, 0.0)
        self.moved += float(torch.linalg.vector_norm(gap)) ** 2
        if self.first is None:
            self.first = gap
        else:
            self.bent += float(torch.linalg.vector_norm(self.first.add_(gap))) ** 2
            self.first = None
        gap = (found - self.value).abs_()
        self.largest = torch.maximum(self.largest, gap.nan_to_num_(torch.inf), out=self.largest)
        self.squares = self.squares + (gap.square_().mean(-1, keepdim=True) if gap.dim() else gap.square_())
        self.undetermined = either(self.undetermined, und)

    def bound(self, runs: int) -> Tensor:
        """At least twice the root mean square where only few values tell of it."""
        few = 2.0 if not self.value.dim() or self.value.shape[-1] < FEW else 1.0
        return torch.maximum(self.largest, (self.squares / runs).sqrt_().mul_(few))


def spreads(
    again: Callable[[BoundMode], Sequence[tuple[Tensor, Tensor | None]]],
    values: Sequence[Tensor],
    bounds: Sequence[tuple[Tensor, Tensor]],
    make: Callable[[int, bool], Perturbed],
    share: float,
) -> list[tuple[Tensor, Tensor]] | None:
    """The smaller of each running bound and the spread of 2·PAIRS runs, with what then is undetermined.

    ``again`` runs the reference under a mode and returns the float tensors in the order of ``values``, with their
    undetermined elements; ``bounds`` are the running (bound, undetermined); ``share`` is the model's reference_share.
    A tensor whose mirrors are none keeps its own: what choices or saturation make of errors a few runs do not tell.
    None where the runs are no sharper (seen on the first one, whose draws are all of one size), or do not return what
    the reference did.
    """

    def sharper(spread: _Spread, known: tuple[Tensor, Tensor]) -> bool:
        return _sharper(spread, share, *known)

    kept = [_Spread(v) for v in values]
    choices = set()
    for pair in range(PAIRS):
        for mirror in (False, True):
            mode = make(pair, mirror)
            found = again(mode)
            choices.add(mode.choices)
            if [t.shape for t, _ in found] != [v.shape for v in values]:
                return None
            for spread, (t, und) in zip(kept, found, strict=True):
                spread.add(t, und)
            if pair == 0 and not mirror and not any(map(sharper, kept, bounds)):
                return None
        if all(s.bent > BENT * s.moved for s in kept):
            return None
    sure = len(choices) == 1
    return [b if s.bent > BENT * s.moved else _smaller(s, share, sure, *b) for s, b in zip(kept, bounds, strict=True)]


def _lifted(spread: _Spread, now: Tensor, undetermined: Tensor) -> Tensor:
    """The undetermined elements that the runs tell to a quarter of the tensor's size: no pole, no choice is near."""
    near = undetermined & torch.isfinite(spread.value) & (now < _size(spread.value) * WORTHLESS)
    return near if spread.undetermined is None else near & ~spread.undetermined


def _sharper(spread: _Spread, share: float, bound: Tensor, undetermined: Tensor) -> bool:
    """A quarter of the elements are bounded 4 times as closely, or determined now."""
    now = spread.bound(1) * share
    better = ((now * BETTER < bound) & ~undetermined) | _lifted(spread, now, undetermined)
    return float(better.double().mean()) > 0.25


def _smaller(spread: _Spread, share: float, sure: bool, bound: Tensor, undetermined: Tensor) -> tuple[Tensor, Tensor]:
    """At least the element's own spread, and the share of the running bound (of the tensor's size, where that is less)
    that one element in ten has used: a few runs may all miss what moves one element, not what moves all of its kind."""
    now = (spread.bound(2 * PAIRS) * share).nan_to_num_(torch.inf)
    lifted = _lifted(spread, now, undetermined) & sure
    most = bound.nan_to_num(torch.inf).clamp_(max=_size(spread.value)).masked_fill_(undetermined, torch.inf)
    ratio = (now / most)[most > 0]
    ratio = ratio[:: ratio.numel() // POOL + 1]
    used = float(ratio.kthvalue(max(1, int(ratio.numel() * USUAL))).values) if ratio.numel() else 0.0
    floor = torch.where(undetermined, 0.0, most * used)
    return torch.where(lifted, now, torch.minimum(bound, now.maximum(floor))), undetermined & ~lifted
