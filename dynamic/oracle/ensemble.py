"""The bound where running tables are too coarse: runs of the reference with every local error put in by chance.

Tables hold no covariance, so each mean, variance or gate counts an independent error as a systematic one, and a bound
multiplies by 3 to 20 a normalisation: LayerNorm, whose true Jacobian keeps a random error's size, after 8 layers

    running tables 3e2        true error of float32 4e-7        these runs 3e-5

Here each operation's own error, from the same rules, is λ times added to its result with a random sign, in all later
ones by the reference's own arithmetic, forward and backward. Runs come in mirrored pairs, all signs of one turned in
the other: a choice within reach of its operand's error falls the other way in one of them; 16-bit steps make many,
whose jumps grow with the root of the noise only: there a spread counts fourfold. It samples: a bound is the largest of
few spreads, at least their root mean square over some neighbours. It sharpens no index, and no worst-case model.

The runs stand beside one float64 run, tensor by tensor, so that an operation's error is worked out once for all of
them; they are in float32, whose own roundings are an eighth of what is put in, unless the model sums in float64 or they
run on a GPU (``wide``), where float32 may mean tf32.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kcontract.dynamic.oracle.dtypes import DType, Tensor
from kcontract.dynamic.oracle.mode import RANDOM, BoundMode, Operation, shaped
from kcontract.dynamic.oracle.model import Accumulation
from kcontract.dynamic.oracle.slices import chunk
from kcontract.dynamic.oracle.tables import Beside, Err, anywhere, either

PAIRS = 2
POOL = 1048573
"""Random signs kept (a prime: no axis has it as a period); larger tensors repeat them."""
CELL = {torch.float32: (torch.int32, 14), torch.float64: (torch.int64, 43)}
"""Values whose bits are equal but for so many last ones (9 bits of the significand are left) round alike."""
BENT = 0.1
"""The most Σ(d + d')² over Σ(d² + d'²) of two mirrored runs: 0 where all is linear, 1 where nothing is."""
COARSE = 2.0**-12
JUMPY = 4.0
"""What a spread is multiplied by where 16-bit steps decide choices (2 needed λ = 6.1)."""
MARGIN = 1.75
"""What a spread of two pairs is multiplied by (1 needed λ = 5.5, 1.5 needed 4.3 of cuDNN's GRU backward on an H200)."""
LOOSE = 8192.0
SINGLES = 4.0
"""How many times the largest error of one operation a bound may be before runs could tell more."""
CANCELLED = 1e-6
USUAL = 0.9
WORTHLESS = 0.25
BETTER = 4.0
NEIGHBOURS = 4
"""Elements whose mean square stands for each of them; of fewer, four pairs are run and a spread counts twice."""
ALIKE, ONE, ALIKES = 0.5, 0.9, 1.5
"""How alike (the cosine's size) two pairs' deviations of one tensor may be: where one error rules a whole tensor, its
elements tell no more of it than one, and two pairs needed λ = 9.4 of a net of 24 layers. Beyond 0.9 four are run; up to
that the other errors hold up a bound by themselves (λ·MARGIN·sqrt(0.1) is 4.4 times the true deviation), and beyond 0.5
in any tensor the spreads of all count one and a half times."""
UNDERFLOWS = 64
SAMPLE = 65536
SOFTMAX = frozenset({"_softmax", "_safe_softmax"})
DENSE = frozenset({"native_group_norm_backward"})
"""Kernels that take their operands as contiguous without looking: a slice is copied for them."""
STEPS = frozenset({"floor", "ceil", "round", "trunc", "sign", "sgn"})
DRAWN = RANDOM | {"rand_like", "randn_like"}
UNFILLED = frozenset({"empty_like", "new_empty", "new_empty_strided"})
FORMULA = "largest spread of 4 runs, each local error times λ"


class _Runs(Beside):
    """The tensors of all runs beside those of the float64 one."""

    def __init__(self, width: int, kind: DType) -> None:
        super().__init__(width)
        self._kind = kind

    def blank(self, t: Tensor, at: int) -> Tensor:
        flat = t.as_strided((t.untyped_storage().nbytes() // t.element_size(),), (1,), 0)
        return flat.to(self._kind if t.is_floating_point() else t.dtype, copy=True)

    def clear(self, place: Tensor, t: Tensor) -> None:
        place.copy_(t)


class Perturbed(BoundMode):
    """Beside the float64 run, 2·``pairs`` runs whose results are each off by λ times their own error: the independent
    part with signs that equal values share (they round alike) and, beside them, random ones; the systematic part with
    all signs alike, the value's signs and random ones together, alike for all operations of one name.

    A pair's second run turns all signs of the first. Tables hold only what is undetermined. ``unsure``: a whole number
    or a step differs between runs. ``lost``: a Python integer or truth value was read that does, or a draw depends on
    one.
    """

    def __init__(
        self, model: Accumulation, matrix_units: bool, seed: int, pairs: int = PAIRS, wide: bool = False
    ) -> None:
        super().__init__(model, matrix_units)
        self._seed, self._random = seed, random.Random(seed)
        self._kind: DType = torch.float64 if model.twice or wide else torch.float32
        self._count = 2 * pairs
        self._runs = _Runs(self._count, self._kind)
        self._results: list[Any] = []
        self._parts: list[Any] | None = None
        self._numbers: dict[float, tuple[float, ...]] = {}
        self._common: dict[str, tuple[Tensor, Tensor]] = {}
        self.unsure = self.lost = False

    def runs(self, t: Tensor) -> tuple[Tensor, ...]:
        """What ``t`` is in each run."""
        return self._runs.find(t) or (t,) * self._count

    def computed(self, t: Tensor) -> bool:
        return self._runs.find(t) is not None

    def adopt(self, y: Any, parts: Sequence[Any]) -> tuple[Err, ...]:
        """The decomposition's results, with the errors that are in them, stand for the native ones."""
        self._parts = [self._runs.find(p) if isinstance(p, torch.Tensor) else None for p in parts]
        return tuple(Err(None, None, self.err(p).und) for p in parts)

    def number(self, value: float, made: Tensor) -> None:
        if value in self._numbers:
            self._runs.put(made, tuple(torch.full_like(made, v, dtype=self._kind) for v in self._numbers[value]))
        elif self._numbers:  # made from some of them
            self.tables.put(made, Err(None, None, torch.ones_like(made, dtype=torch.bool)))

    def errors(self, what: Operation, y: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Err, ...]:
        errs = super().errors(what, y, args, kwargs)
        parts, self._parts = self._parts, None
        self._results = self._again(what, y, args, kwargs) if parts is None else parts
        if what.base in SOFTMAX and self._results[0] is not None:
            near = self._shares(args[0], y, args[1])
            errs = (errs[0]._replace(und=either(errs[0].und, near)),)
        return errs

    def _shares(self, x: Tensor, p: Tensor, dim: int) -> Tensor | None:
        """Backward kernels form p = exp(x - lse) once more, from logits and a sum that err apart: put what the logits
        that count have moved in the runs into each row of ``p``, whose runs cancel it where one share is all.

        Returns where p may change by a quarter at twice that: what near ties become, few runs need not show.
        """
        if self._runs.find(x) is None or not x.dim() or not x.numel():
            return None
        runs, size = self.runs(x), p.to(self._kind)
        moved = torch.zeros_like(size)
        for one, other in zip(runs[::2], runs[1::2], strict=True):
            moved.add_((one - other).nan_to_num_(0.0).square_())
        s = moved.mul_(size).sum(dim, keepdim=True).mul_(0.5 / self._count).sqrt_()
        for pair in range(self._count // 2):
            row = (self._draw(s) * s).clamp_(-WORTHLESS, WORTHLESS)
            for k, sign in ((2 * pair, 1.0), (2 * pair + 1, -1.0)):
                self._results[0][k].addcmul_(self._results[0][k], row, value=sign)
        if float(s.max()) < WORTHLESS / 4:
            return None
        return size.mul_(s.mul_(2).clamp_(max=50.0).expm1_()) > WORTHLESS

    def _again(self, what: Operation, y: Any, args: Any, kwargs: dict[str, Any]) -> list[Any]:
        """The operation's results in each run; None where they are those of the float64 run."""
        results = y if isinstance(y, (tuple, list)) else (y,)
        if what.base in UNFILLED or not (self._holds(args) or self._holds(tuple(kwargs.values()))):
            return [None] * len(results)
        if torch.Tag.nondeterministic_seeded in what.functional.tags:  # one draw for all
            self.lost |= what.base not in DRAWN
            return [None] * len(results)
        each = self._each(args)
        if what.base in DENSE:
            each = tuple(tuple(t.contiguous() if isinstance(t, torch.Tensor) else t for t in one) for one in each)
        named = {name: self._each(value) for name, value in kwargs.items()}
        found = [what.functional(*each[k], **{n: v[k] for n, v in named.items()}) for k in range(self._count)]
        if not isinstance(y, (tuple, list)):
            found = [(f,) for f in found]
        made: list[Any] = []
        for at, value in enumerate(results):
            own: Any = tuple(f[at] for f in found)
            if isinstance(value, float):
                self._numbers[value] = own
                own = None
            elif not isinstance(value, torch.Tensor):
                self.lost |= any(o != value for o in own)
                own = None
            elif not value.is_floating_point():
                same = all(torch.equal(o, value) for o in own)
                self.unsure |= not same
                own = None if same else own
            elif what.base in STEPS:
                self.unsure |= not all(torch.equal(o, value.to(self._kind)) for o in own)
            made.append(own)
        return made

    def _holds(self, x: Any) -> bool:
        if isinstance(x, torch.Tensor):
            return self._runs.find(x) is not None
        return isinstance(x, (list, tuple)) and any(map(self._holds, x))

    def _each(self, x: Any) -> tuple[Any, ...]:
        """An argument in each run."""
        if isinstance(x, torch.Tensor):
            return self._runs.find(x) or (x.to(self._kind) if x.is_floating_point() else x,) * self._count
        if type(x) is list or type(x) is tuple:
            parts = [self._each(p) for p in x]
            return tuple(type(x)(part[k] for part in parts) for k in range(self._count))
        return (self._kind if x is torch.float64 else x,) * self._count

    def keep(self, t: Tensor, at: int, value: Tensor, err: Err) -> None:
        """Put the error of ``value`` into it, run by run."""
        runs = self._results[at]
        self.tables.put(t, shaped(Err(None, None, err.und), t))
        if value.is_floating_point() and value.numel() and not (err.c is None and err.i is None):
            runs = self._moved(value, runs, err.c, err.i)
        if runs is not None and t.shape != value.shape:
            runs = tuple(r.expand(t.shape) for r in runs)
        self._runs.put(t, runs or (None,) * self._count)

    def again(self, t: Tensor, value: Tensor) -> None:
        super().again(t, value)
        self._runs.put(t, self._runs.find(value) or (None,) * self._count)

    def _moved(self, value: Tensor, runs: Any, c: Tensor | None, i: Tensor | None) -> tuple[Tensor, ...]:
        """``_off``, some of a large result at a time: what is made on the way stays in the cache."""
        size, piece = value.numel(), chunk(value)
        alike = all(p is None or (p.shape == value.shape and p.is_contiguous()) for p in (value, c, i, *(runs or ())))
        if size < 2 * piece or not alike:
            return self._off(value, runs, c, i)
        found = runs or tuple(value.new_empty(value.shape, dtype=self._kind) for _ in range(self._count))
        for low in range(0, size, piece):

            def cut(p: Tensor, low: int = low) -> Tensor:
                return p.view(-1)[low : low + piece]

            parts = [None if p is None else cut(p) for p in (c, i)]
            moved = self._off(cut(value), [cut(r) for r in runs] if runs else None, *parts)
            if not runs:
                for whole, part in zip(found, moved, strict=True):
                    cut(whole).copy_(part)
        return found

    def _off(self, value: Tensor, runs: Any, c: Tensor | None, i: Tensor | None) -> tuple[Tensor, ...]:
        """The runs' results with λ times c and i added, in their first of a pair, and taken away."""
        plain = value.to(self._kind)
        zeros = plain == 0 if self.model.eta and float(plain.square().min()) == 0.0 else None
        c, i = (part if part is None else self._of_zeros(part.to(self._kind), zeros) for part in (c, i))
        whole, shift = CELL[self._kind]
        each = (self._count // 2,) + (1,) * value.dim()
        noise: Tensor | None = None
        if i is not None:
            cells = plain.view(whole).add(self._random.getrandbits(31)).bitwise_right_shift_(shift)
            odd = torch.tensor([self._random.getrandbits(31) | 1 for _ in range(each[0])], dtype=whole)
            alike = cells.mul(odd.to(value.device).reshape(each)).view(self._kind)
            noise = torch.copysign(i, alike).addcmul_(self._draw(alike), i, value=0.5)  # never 0
        if c is not None:
            one, own = (s.to(value.device).reshape(each) for s in self._shared(self.current))
            signs = self._draw(plain.expand(each[0], *value.shape)).add(one).addcmul_(plain.sign(), own).mul_(c)
            noise = signs if noise is None else noise.add_(signs)
        made: list[Tensor] = []
        for pair, part in enumerate(noise.unbind()):  # type: ignore[union-attr]
            for k, size in ((2 * pair, self.lam), (2 * pair + 1, -self.lam)):
                made.append(torch.add(plain, part, alpha=size) if runs is None else runs[k].add_(part, alpha=size))
        return tuple(made)

    def _of_zeros(self, part: Tensor, zeros: Tensor | None) -> Tensor:
        """An error without that of underflow where the result is 0, which then no kernel makes negative."""
        if zeros is None:
            return part
        return part.masked_fill(zeros & (part <= self.model.eta * UNDERFLOWS), 0.0)

    def _shared(self, op: str) -> tuple[Tensor, Tensor]:
        """Two signs a pair that all operations of one name have in common."""
        if op not in self._common:
            draw = random.Random(f"{self._seed} {op}")
            signs = torch.tensor([[draw.choice((-1.0, 1.0)) for _ in range(self._count // 2)] for _ in range(2)])
            self._common[op] = (signs[0].to(self._kind), signs[1].to(self._kind))
        return self._common[op]

    def _draw(self, like: Tensor) -> Tensor:
        """Random signs shaped like a tensor."""
        pool = _pool(like.device, self._kind)
        count = like.numel()
        start = self._random.randrange(max(1, POOL - count) if count <= POOL else POOL)
        if start + count > POOL:
            pool = pool.repeat(1 + -(-count // POOL))
        return pool[start : start + count].reshape(like.shape)


@functools.cache
def _pool(device: Any, kind: DType) -> Tensor:
    """Draws even between -sqrt 3 and sqrt 3 (mean square 1): of signs alone, two are alike in every second run."""
    generator = torch.Generator().manual_seed(0)
    pool = torch.rand(POOL, generator=generator, dtype=torch.float64).mul_(2).sub_(1).mul_(3**0.5)
    return pool.to(device, kind)


def loose(model: Accumulation, value: Tensor, bound: Tensor, undetermined: Tensor, alone: tuple[float, float]) -> bool:
    """True where half of the elements are bounded by more than 8192 roundings of the output's size (or 4 times the
    largest error of one operation, or a quarter of the size), or not at all; see ``BoundMode.worst_alone``. Of sums
    that cancel by construction (a bias's gradient before a normalisation) a quarter of what they add up is asked."""
    if not value.is_floating_point() or not value.numel():
        return False
    size, (single, uncancelled) = _size(value), alone
    limit = min(max(LOOSE * max(model.u, model.u_step, model.u_factor), SINGLES * single), WORTHLESS)
    if size < CANCELLED * uncancelled:
        size, limit = uncancelled, WORTHLESS
    far = (bound > size * limit).logical_or_(undetermined)
    return bool(int(torch.count_nonzero(far)) > 0.5 * value.numel())


def _size(value: Tensor) -> float:
    """The root mean square of the finite elements (of all as if finite)."""
    size = float(torch.linalg.vector_norm(value))
    if not math.isfinite(size):
        size = float(torch.linalg.vector_norm(value.nan_to_num(0.0, 0.0, 0.0)))
    return size / math.sqrt(value.numel())


class _Spread:
    """The largest deviations of one tensor so far, and the sum of their squares over neighbours."""

    def __init__(self, value: Tensor) -> None:
        self.value = value
        self.largest: Tensor | None = None
        self.squares: Any = 0.0
        self.runs = 0
        self.undetermined: Tensor | None = None
        self.bent = self.moved = 0.0
        self._dims: list[int] = []
        self._near = 1
        for d in reversed(range(value.dim())):
            if self._near >= NEIGHBOURS:
                break
            self._dims.append(d)
            self._near *= value.shape[d]
        self.few = self._near < NEIGHBOURS
        self.alike = 0.0

    def add(self, runs: Sequence[Tensor], und: Tensor | None) -> None:
        value = self.value.to(runs[0].dtype)
        first: Tensor | None = None
        for one, other in zip(runs[::2], runs[1::2], strict=True):
            gaps = (one - value, other - value)
            squares = [self._squares(g) for g in gaps]
            if not all(math.isfinite(float(q.sum())) for q in squares):
                lost = ~torch.isfinite(one + other) & torch.isfinite(value)
                self.undetermined = either(self.undetermined, lost)
                gaps = tuple(g.nan_to_num_(0.0, 0.0, 0.0) for g in gaps)
                squares = [self._squares(g) for g in gaps]
            self.squares = self.squares + squares[0] + squares[1]
            self.moved += float(squares[0].sum() + squares[1].sum())
            self.bent += float(self._squares(gaps[0] + gaps[1]).sum())
            if first is None:
                first = gaps[0].clone()
            else:
                size = float(torch.linalg.vector_norm(first)) * float(torch.linalg.vector_norm(gaps[0]))
                self.alike = abs(float(torch.sum(first.mul_(gaps[0])))) / size if size > 0 else 0.0
            found = torch.maximum(gaps[0].abs_(), gaps[1].abs_())
            self.largest = found if self.largest is None else torch.maximum(self.largest, found, out=self.largest)
        self.runs += len(runs)
        self.undetermined = either(self.undetermined, und)

    def _squares(self, gap: Tensor) -> Tensor:
        """Their sums over neighbours, in float64."""
        return torch.linalg.vector_norm(gap, 2, self._dims, keepdim=True, dtype=torch.float64).square_()

    @property
    def curved(self) -> bool:
        """Mirrored runs are no mirrors."""
        return self.bent > BENT * self.moved

    def bound(self, margin: float) -> Tensor:
        """At least the root mean square; twice that where only few values tell of it."""
        mean = self.squares.div(self.runs * self._near).sqrt_().mul_(2.0 if self.few else 1.0)
        return torch.maximum(self.largest, mean).double().mul_(margin)


def spreads(
    again: Callable[[Perturbed], Sequence[tuple[Sequence[Tensor], Tensor | None]]],
    values: Sequence[Tensor],
    bounds: Sequence[tuple[Tensor, Tensor]],
    make: Callable[[int], Perturbed],
    share: float,
    coarse: bool,
) -> list[tuple[Tensor, Tensor]] | None:
    """The smaller of each running bound and the spread of the perturbed runs, with what then is undetermined.

    ``again`` runs the reference under a mode and returns the float tensors of each run in the order of ``values``, with
    their undetermined elements; ``bounds`` are the running (bound, undetermined); ``share`` is the model's
    reference_share, ``coarse`` that it stores steps in 16 bits. A tensor whose mirrors are none keeps its own: what
    choices or saturation make of errors a few runs do not tell. None where the runs are no sharper, or a number read
    from them steered the reference.
    """
    kept = [_Spread(v) for v in values]
    sure = True
    for part in range(2):
        mode = make(part)
        for one, (runs, und) in zip(kept, again(mode), strict=True):
            one.add(runs, und)
        if mode.lost or all(s.curved for s in kept):
            return None
        sure = sure and not mode.unsure
        margin = (
            share
            * (JUMPY if coarse else 1.0)
            * MARGIN
            * (ALIKES if part == 0 and max(s.alike for s in kept) > ALIKE else 1.0)
        )
        found = [None if s.curved else _smaller(s, margin, sure, coarse, *b) for s, b in zip(kept, bounds, strict=True)]
        if not any(f is not None and _sharper(f, b) for f, b in zip(found, bounds, strict=True)):
            return None
        if not any((s.few or s.alike > ONE) and not s.curved for s in kept):
            break
    return [b if f is None else f for f, b in zip(found, bounds, strict=True)]


def _sharper(now: tuple[Tensor, Tensor], before: tuple[Tensor, Tensor]) -> bool:
    """A quarter of the elements are bounded 4 times as closely, or determined now."""
    (new, und), (old, lost) = ((_some(bound), _some(und)) for bound, und in (now, before))
    better = ((new * BETTER < old) & ~lost) | (lost & ~und)
    return float(better.double().mean()) > 0.25


def _some(t: Tensor) -> Tensor:
    """Some 65,536 evenly spaced elements, or all of fewer."""
    return t.reshape(-1)[:: t.numel() // SAMPLE + 1]


def _smaller(
    spread: _Spread, margin: float, sure: bool, coarse: bool, bound: Tensor, undetermined: Tensor
) -> tuple[Tensor, Tensor]:
    """The running bound where the runs are undetermined. Else at least the element's own spread, and the share of the
    running bound (of the tensor's size, where that is less) that one element in ten has used: a few runs may all miss
    what moves one element, not what moves all of its kind. An element that only the running tables call undetermined
    is lifted where the runs tell it to a quarter of the tensor's size: no pole, no choice is near. Of many choices that
    16-bit steps make, four runs miss what moves one element: it then errs like the others."""
    now, size = spread.bound(margin), _size(spread.value)
    some, most = _some(now), _some(bound).nan_to_num(torch.inf).clamp_(max=size)
    ratio = (some / most)[(most > 0) & ~_some(undetermined)]
    used = float(ratio.kthvalue(max(1, int(ratio.numel() * USUAL))).values) if ratio.numel() else 0.0
    least = torch.maximum(now, bound.clamp(max=size).mul_(used))
    least = torch.minimum(bound, least, out=least)
    if spread.undetermined is not None:
        least = torch.where(spread.undetermined, bound, least)
    if not anywhere(undetermined):
        return least, undetermined
    if coarse:
        now = now.clamp(min=_size(now))
    lifted = undetermined & torch.isfinite(spread.value) & (now < size * WORTHLESS) & sure
    if spread.undetermined is not None:
        lifted &= ~spread.undetermined
    return torch.where(lifted, now, least), undetermined & ~lifted
