"""Comparing a candidate with what the oracle promises: masks exactly, finite elements by the bound, indices by choice.

A finite element is right when it lies in [store(y − bound), store(y + bound)], where store rounds to the output type:
rounding is monotone, so any honest result, rounded once, lies there. That is tighter than bound + u|y|, and it shows
faults far below the output type's own roundoff in the few elements that lie next to a rounding boundary.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kcontract.dynamic.oracle.dtypes import Tensor, form
from kcontract.dynamic.oracle.mode import Choice
from kcontract.dynamic.oracle.run import Bounded, Expected
from kcontract.dynamic.oracle.tables import anywhere
from kcontract.errors import InputError
from kcontract.model import Contract, NanPolicy, Subnormals

FEW = 1 << 16


@dataclass(frozen=True, slots=True)
class Policy:
    """What was declared. A policy edits what is expected, never the tolerance; ``tolerance`` alone replaces it.

    ``nan``: with IGNORE, a NaN of the reference may be anything (max and min may drop it). ``subnormals``: with
    FLUSH, results below the smallest normal number may be zero. ``saturate``: the largest finite value may stand
    for ±Inf. ``tolerance``: an absolute allowance an element in place of the bound.
    """

    nan: NanPolicy = NanPolicy.PROPAGATE
    subnormals: Subnormals = Subnormals.FLUSH
    saturate: bool = False
    tolerance: float | None = None

    def __post_init__(self) -> None:
        if self.tolerance is not None and not 0 <= self.tolerance < math.inf:
            raise InputError(f"a tolerance of {self.tolerance} is none: give a number that is 0 or more")
        for name, kind in (("nan", NanPolicy), ("subnormals", Subnormals)):
            if not isinstance(getattr(self, name), kind):
                words = ", ".join(f"{kind.__name__}.{k.name}" for k in kind)
                raise InputError(f"the policy for {name} is {getattr(self, name)!r}: give one of {words}")

    @staticmethod
    def of(contract: Contract) -> Policy:
        """The policy a contract declares; what it leaves open is taken as in the default."""
        if not isinstance(contract, Contract):
            raise InputError(f"a policy is read from a {type(contract).__name__}: give a Contract")
        nan = contract.nan or NanPolicy.PROPAGATE
        return Policy(nan, contract.subnormals or Subnormals.FLUSH, False, contract.tolerance)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output compared. ``index`` is the worst element's multi-index; ``ratio`` is |found − wanted| / allowed; of a
    wrong element ``allowed`` is the bound before rounding to the output type, and the ratio is over it and half an ulp.

    ``reason`` is empty where ok, else one of shape, dtype, nan, inf, value, index. ``masks`` counts mismatched NaN,
    +Inf and −Inf and the undetermined elements (where all are, no index and no numbers are given: nothing was judged);
    ``required`` is the λ the finite elements would have needed.
    """

    ok: bool
    output: str
    reason: str
    index: tuple[int, ...]
    found: float | str
    wanted: float | str
    allowed: float | str
    ratio: float
    required: float
    masks: dict[str, int] = field(default_factory=dict)


def plain(value: float) -> float | str:
    """A number as a Witness stores it: ``nan``, ``inf`` and ``-inf`` are words."""
    return value if math.isfinite(value) else str(value)


def compare(
    candidate: Tensor, expected: Bounded, policy: Policy | None = None, lam: float = 8.0, brief: bool = False
) -> Comparison:
    """Compare one output. ``lam`` is the model's λ, used only to report the λ that would have been required.
    ``brief`` leaves an output that is right at that: no worst element, no λ, no counts.

    A whole number may come in an integer type of another width, a bool as 0 and 1; no float stands for either. Raises
    ``InputError`` where the candidate is no tensor.
    """
    if isinstance(expected, Expected):
        raise InputError("one output is compared with all that is expected: give told.outputs[0], or use compare_all")
    policy = policy or Policy()
    if not isinstance(expected, Bounded):
        kind_ = type(expected).__name__
        raise InputError(f"what is expected is a {kind_}: give one of told.outputs, or of told.grads.values(), second")
    if not isinstance(policy, Policy):
        raise InputError(f"the policy is {policy!r}: give an oracle.Policy, as Policy(tolerance=1e-2)")
    name = expected.name
    if not isinstance(candidate, torch.Tensor):
        raise InputError(f"{name} is compared with a {type(candidate).__name__}: give a tensor")
    if tuple(candidate.shape) != tuple(expected.value.shape):
        return _refused(name, "shape", str(tuple(candidate.shape)), str(tuple(expected.value.shape)))
    exact = not expected.value.is_floating_point()
    other = candidate.dtype is not expected.dtype
    inexact = candidate.is_floating_point() or candidate.is_complex() or candidate.dtype is torch.bool
    if other and (inexact or not exact):
        return _refused(name, "dtype", str(candidate.dtype), str(expected.dtype))
    if candidate.numel() == 0:
        return Comparison(True, name, "", (), 0.0, 0.0, 0.0, 0.0, 0.0)
    if exact:
        return _exact(candidate.detach().to(expected.value.device), expected)
    kind = form(expected.dtype)
    # a few elements are compared sooner on the CPU than by sixty kernels
    place = torch.device("cpu") if candidate.numel() <= FEW else expected.value.device
    y, bound, undetermined = (t.to(place) for t in (expected.value, expected.bound, expected.undetermined))
    found = candidate.detach().to(place).double()
    if policy.tolerance is None:
        low, rounded, high = (_store(v, expected.dtype) for v in (y - bound, y, y + bound))
        if policy.subnormals is Subnormals.FLUSH:
            small = (y.abs() - bound) < kind.tiny
            low, high = torch.where(small & (low > 0), 0.0, low), torch.where(small & (high < 0), 0.0, high)
    else:
        rounded = _store(y, expected.dtype)
        low, high = y - policy.tolerance, y + policy.tolerance
    if expected.dtype is torch.float8_e4m3fn:
        found = torch.where(torch.isnan(found) & torch.isinf(rounded), rounded, found)
    if policy.saturate:
        top = found.abs() >= kind.largest
        found = torch.where(top & torch.isinf(rounded), torch.copysign(rounded.abs(), found), found)
    skip = undetermined.clone()
    if policy.nan is NanPolicy.IGNORE:
        skip |= torch.isnan(rounded)
    inside = (found >= low) & (found <= high)
    if brief and bool((inside | skip).all()):
        return Comparison(True, name, "", (), 0.0, 0.0, 0.0, 0.0, 0.0)
    gap = (found - y).abs()
    wrong_nan = (torch.isnan(found) != torch.isnan(rounded)) & ~skip
    infinite = (torch.isinf(found) | torch.isinf(rounded)) & ~torch.isnan(found) & ~torch.isnan(rounded)
    wrong_inf = infinite & ~torch.where(torch.isinf(y), found == y, inside) & ~skip
    finite = torch.isfinite(found) & torch.isfinite(rounded) & ~skip
    wrong = finite & ~inside
    side = torch.where(found > y, high - y, y - low)
    allowed = torch.where(side > 0, side, torch.maximum((low - y).abs(), (high - y).abs()))
    room = allowed
    if policy.tolerance is None:  # else a wrong element next to its rounded value has the largest ratio of all
        allowed, room = (torch.where(wrong, t, allowed) for t in (bound, bound + rounded.abs() * (kind.u / 2)))
    ratio = torch.where(finite, gap / room.clamp(min=5e-324), 0.0).nan_to_num(0.0)
    masks = {
        "nan": int(wrong_nan.sum()),
        "+inf": int((wrong_inf & ((rounded == math.inf) | (found == math.inf))).sum()),
        "-inf": int((wrong_inf & (rounded != math.inf) & (found != math.inf)).sum()),
        "value": int(wrong.sum()),
        "undetermined": int(undetermined.sum()),
    }
    required = 0.0
    if policy.tolerance is None:
        stored = torch.ldexp(torch.full_like(found, kind.u / 2), torch.frexp(found.nan_to_num(0.0, 0.0, 0.0)).exponent)
        over = torch.where(finite & (found != rounded), gap - stored - kind.eta, 0.0)
        if policy.subnormals is Subnormals.FLUSH:
            over = torch.where((found == 0) & (y.abs() < kind.tiny), 0.0, over)
        required = float((over * lam / bound.clamp(min=1e-300)).max().clamp(min=0.0))
    for reason, mask in (("nan", wrong_nan), ("inf", wrong_inf)):
        if anywhere(mask):
            at = tuple(int(k) for k in mask.nonzero()[0])
            return _at(name, reason, at, found, rounded, allowed, math.inf, required, masks)
    bad = anywhere(wrong)
    if not bad and masks["undetermined"] == found.numel():
        return Comparison(True, name, "", (), "undetermined", "undetermined", "undetermined", 0.0, 0.0, masks)
    worst = int((torch.where(wrong, ratio, -1.0) if bad else ratio).reshape(-1).argmax())
    at = tuple(int(k) for k in torch.unravel_index(torch.tensor(worst), ratio.shape)) if ratio.dim() else ()
    return _at(name, "value" if bad else "", at, found, y, allowed, float(ratio[at]), required, masks)


def _store(y: Tensor, dtype: Any) -> Tensor:
    """y as the output type holds it, in float64; beyond the largest value of float8_e4m3fn, which has no Inf, ±Inf."""
    stored = y.to(dtype).double()
    if dtype is torch.float8_e4m3fn:
        stored = torch.where(
            torch.isnan(stored) & ~torch.isnan(y), torch.copysign(torch.full_like(y, math.inf), y), stored
        )
    return stored


def _at(
    name: str, reason: str, at: tuple[int, ...], found: Tensor, wanted: Tensor, allowed: Tensor, ratio: float,
    required: float, masks: dict[str, int],
) -> Comparison:  # fmt: skip
    first, second, third = (plain(float(t[at])) for t in (found, wanted, allowed))
    return Comparison(not reason, name, reason, at, first, second, third, ratio, required, masks)


def _refused(name: str, reason: str, found: str, wanted: str) -> Comparison:
    return Comparison(False, name, reason, (), found, wanted, wanted, math.inf, math.inf)


def _exact(candidate: Tensor, expected: Bounded) -> Comparison:
    wrong = candidate.long() != expected.value.long()
    if expected.choice is not None:
        wrong = wrong & ~acceptable(candidate, expected)
    elif anywhere(wrong):
        wrong = wrong & ~expected.undetermined
    masks = {"value": int(wrong.sum()), "undetermined": int(expected.undetermined.sum())}
    bad = anywhere(wrong)
    at = tuple(int(k) for k in wrong.nonzero()[0]) if bad else ()
    if not bad:
        return Comparison(True, expected.name, "", (), 0.0, 0.0, 0.0, 0.0, 0.0, masks)
    found, wanted = float(candidate[at]), float(expected.value[at])
    return Comparison(False, expected.name, "index", at, found, wanted, 0.0, math.inf, math.inf, masks)


def acceptable(candidate: Tensor, expected: Bounded) -> Tensor:
    """Where an index names a term within the errors of the one the reference chose (and is in range, unrepeated)."""
    choice: Choice = expected.choice  # type: ignore[assignment]
    terms, dim = choice.terms, choice.dim
    index, right = candidate.long(), expected.value
    if not choice.keepdim and terms.dim() == index.dim() + 1:
        index, right = index.unsqueeze(dim), right.unsqueeze(dim)
    if terms.dim() == 1 and index.dim() == 0:
        index, right = index.reshape(1), right.reshape(1)
    inside = (index >= 0) & (index < terms.shape[dim])
    safe = index.clamp(0, terms.shape[dim] - 1)
    gap = (terms.gather(dim, safe) - terms.gather(dim, right)).abs()
    slack = torch.zeros_like(gap)
    if choice.error is not None:
        slack = choice.error.gather(dim, safe) + choice.error.amax(dim, keepdim=True)
    fine = inside & (gap <= slack)
    if index.shape[dim] > 1:
        ordered = safe.sort(dim)
        repeated = torch.zeros_like(fine).scatter(
            dim,
            ordered.indices,
            torch.cat([torch.zeros_like(fine.narrow(dim, 0, 1)), ordered.values.diff(dim=dim) == 0], dim),
        )
        fine &= ~repeated
    return fine.reshape(expected.value.shape)


class SubnormalAnswer(str, enum.Enum):
    """What a kernel does below the smallest normal number."""

    PRESERVES = "preserves"
    FLUSHES_RESULTS = "flushes results"
    FLUSHES_INPUTS = "flushes inputs"
    WRONG = "wrong"
    NOT_SHOWN = "not shown"


def judge_subnormals(
    candidate: Tensor, keeping: Bounded, flushing: Bounded, flushing_inputs: Bounded
) -> SubnormalAnswer:
    """The subnormal verdict of one output, by three bounds of one reference on the same inputs.

    ``keeping`` is bounded with eta = 2^-150, ``flushing`` with 2^-126, ``flushing_inputs`` also admits inputs below
    2^-126 read as zero. NOT_SHOWN: even a kernel that flushes all would be within the first bound (1 + exp(x)).
    """
    strict = Policy(subnormals=Subnormals.PRESERVE)
    loose = Policy(subnormals=Subnormals.FLUSH)
    kind = form(keeping.dtype)
    room = keeping.bound * (1 + kind.u) + keeping.value.abs() * kind.u + kind.eta
    moved = torch.maximum(flushing_inputs.bound, torch.where(keeping.value.abs() < kind.tiny, keeping.value.abs(), 0.0))
    shows = bool(((moved > room) | (flushing_inputs.undetermined & ~keeping.undetermined)).any())
    if compare(candidate, keeping, strict).ok:
        return SubnormalAnswer.PRESERVES if shows else SubnormalAnswer.NOT_SHOWN
    if compare(candidate, flushing, loose).ok:
        return SubnormalAnswer.FLUSHES_RESULTS
    if compare(candidate, flushing_inputs, loose).ok:
        return SubnormalAnswer.FLUSHES_INPUTS
    return SubnormalAnswer.WRONG


def compare_all(
    candidate: Sequence[Tensor], expected: Expected, policy: Policy | None = None, brief: bool = False
) -> tuple[Comparison, ...]:
    """Every output in order; a missing or surplus output is a ``shape`` failure of its own. Raises ``InputError`` where
    the candidate's results are no list (a lone tensor is one output)."""
    if not isinstance(expected, Expected):
        raise InputError("all outputs are compared with one: give what oracle.run returned, or use compare")
    if isinstance(candidate, torch.Tensor):
        candidate = [candidate]
    if not isinstance(candidate, (list, tuple)):
        raise InputError(f"the candidate's results are a {type(candidate).__name__}: give a list of tensors")
    lam = expected.model.lam
    found = [compare(c, e, policy, lam, brief) for c, e in zip(candidate, expected.outputs, strict=False)]
    if len(candidate) != len(expected.outputs):
        found.append(_refused("outputs", "shape", f"{len(candidate)} outputs", f"{len(expected.outputs)} outputs"))
    return tuple(found)
