"""The dispatch mode that runs a reference in float64 and carries an error bound beside every tensor.

It takes values from the native operation and errors from the operation's rule. An operation without a rule is
taken as pointwise if aten says so, else decomposed by torch's own table, else estimated by perturbation.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from kcontract.dynamic.oracle.dtypes import FORMATS, Format, Tensor
from kcontract.dynamic.oracle.fallback import decomposition, pointwise_by_sampling, stochastic
from kcontract.dynamic.oracle.model import Accumulation
from kcontract.dynamic.oracle.registry import Rule, rules
from kcontract.dynamic.oracle.slices import Slice, slices
from kcontract.dynamic.oracle.tables import EXACT, Err, Tables, either, plus
from kcontract.errors import InputError

LIMIT64 = torch.finfo(torch.float64).max
LIMIT32 = torch.finfo(torch.float32).max
CONSTANTS = frozenset({"full", "full_like", "scalar_tensor", "masked_fill", "fill", "constant_pad_nd", "new_full"})
RANDOM = frozenset(
    {"bernoulli", "normal", "uniform", "random", "exponential", "multinomial", "randint_like", "poisson"}
)

WHOLE = frozenset(
    {"mm", "bmm", "mv", "dot", "vdot", "addmm", "baddbmm", "addmv", "convolution", "pow", "prod", "addcmul"}
)
"""Arithmetic whose rules speak of roundings: of whole numbers it is exact."""
POINTWISE = frozenset(
    f"{name}_backward"
    for name in ("mish", "hardswish", "hardsigmoid", "hardtanh", "softplus", "elu", "leaky_relu", "softshrink")
)
"""Operations whose results depend on one element of each operand, though aten does not tag them so."""
OVERLOADS = {"pow_.Scalar": "Tensor_Scalar", "pow_.Tensor": "Tensor_Tensor"}
"""In-place operations whose functional form has another overload name."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a part of a bound came from: the operation, its formula, and the longest sum it formed."""

    op: str
    formula: str
    n: int
    u: float


@dataclass(frozen=True, slots=True)
class Choice:
    """What an index was chosen from: the terms, their error times λ (None: exact), and the axis."""

    terms: Tensor
    error: Tensor | None
    dim: int
    keepdim: bool


@dataclass(frozen=True, slots=True)
class Operation:
    base: str
    functional: Any
    is_view: bool
    out_names: tuple[str, ...]
    rule: Rule | None
    decomposed: Any
    pointwise: bool


def _without_out(packet: Any, schema: Any) -> Any:
    """The overload that takes the same arguments but what is written to; None where there is none."""

    def taken(s: Any) -> list[tuple[str, str]]:
        return [(a.name, str(a.type)) for a in s.arguments if a.alias_info is None or not a.alias_info.is_write]

    for name in packet.overloads():
        found = getattr(packet, name)
        if taken(found._schema) == taken(schema) and len(found._schema.arguments) < len(schema.arguments):
            return found
    return None


@functools.cache
def _describe(func: Any) -> Operation:
    schema = func._schema
    base = schema.name.split("::")[1]
    returns = [r.alias_info for r in schema.returns]
    is_view = any(a is not None and not a.is_write for a in returns) or torch.Tag.inplace_view in func.tags
    written = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    out_names = tuple(a.name for a in written if a.kwarg_only)
    functional = func
    if written and not is_view:
        packet = getattr(torch.ops.aten, base[:-1] if base.endswith("_") else base, None)
        overload = schema.overload_name or "default"
        overload = OVERLOADS.get(f"{base}.{overload}", overload)
        functional = _without_out(packet, schema) if out_names else getattr(packet, overload, None)
        if functional is None:
            if base.rstrip("_") in RANDOM:
                raise InputError(
                    f"the reference draws random numbers ({func}): switch its dropout off (.eval()), or give what "
                    "it draws as an input"
                )
            raise InputError(f"the reference writes in place through {func}, which the oracle cannot follow")
        base = functional._schema.name.split("::")[1]
    found = rules().get(base)
    return Operation(
        base,
        functional,
        is_view,
        out_names,
        found,
        None if found else decomposition(functional),
        torch.Tag.pointwise in functional.tags or base in POINTWISE,
    )


REPEATS = 256
"""Operations of one name and shape after which their roundings are no longer taken as independent. Chosen: a sum of
4,000 equal addends and a moving average of 5,000 steps needed λ 10 and 13 without it."""


class BoundMode(TorchDispatchMode):  # type: ignore[misc]
    """Runs float64 operations under an accumulation model; ``err`` tells what may be wrong with a tensor.

    ``matrix_units``: products may be added up by units that cut towards zero (16-bit and tf32 factors on GPUs).
    ``estimated`` names the operations whose error was only estimated; ``sources`` counts where errors came from;
    ``scalars`` are the Python numbers read from elements with an error.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch's switch: else the first use imports all of torch._dynamo, for code that is compiled

    def __init__(self, model: Accumulation, matrix_units: bool = False) -> None:
        super().__init__()
        self.matrix_units = matrix_units
        self.model, self.lam, self.u = model, model.lam, model.u
        self.tables = Tables()
        self._repeats: dict[tuple[str, torch.Size], int] = {}
        self._whole: tuple[str, torch.Size] | None = None
        self.estimated: set[str] = set()
        self.branches: set[str] = set()
        self.scalars: dict[float, Err] = {}
        self.sources: dict[tuple[str, str], tuple[int, float]] = {}
        self.calls: Counter[str] = Counter()
        self.current = ""
        self.function: Any = None
        self.wants_indices = torch.is_grad_enabled()
        self.alone_there = Tables()
        """In their third part, beside extrema: true where one element alone can be it."""
        self._choices: dict[int, tuple[Tensor, Choice]] = {}
        self._own: tuple[float, float, Any] = (0.0, 0.0, None)
        self._alone: dict[int, tuple[float, float]] = {}
        self._eta = torch.tensor(model.eta, dtype=torch.float64)

    def err(self, t: Any) -> Err:
        """What may be wrong with ``t``; scalars and None are exact."""
        return self.tables.get(t) if isinstance(t, torch.Tensor) else EXACT

    def computed(self, t: Tensor) -> bool:
        """Whether ``t`` is a result, with errors of its own, and no input."""
        return not self.err(t).exact

    def fresh(self, y: Tensor, k: float) -> Tensor:
        """k·u·|y| + eta: k roundings of a result, and underflow.

        In a loop of many steps (``y = y + d``) roundings repeat with one sign as long as y keeps its exponent. So from
        REPEATS operations of one name and shape on each counts more, until n of them have grown with n, not its root.
        """
        key = self._whole or (self.current, y.shape)
        count = self._repeats.get(key, 0) + 1
        if self._whole is None:
            self._repeats[key] = count
        return self.with_eta(y.abs(), k * self.u * max(1.0, count / REPEATS) ** 0.5)

    def count(self, y: Tensor) -> int:
        """The elements of the result that ``y`` is, or is a slice of."""
        return math.prod(y.shape if self._whole is None else self._whole[1])

    def with_eta(self, size: Tensor, factor: float) -> Tensor:
        """``size``·factor + eta, in place."""
        if size.device != self._eta.device:
            self._eta = self._eta.to(size.device)
        return torch.add(self._eta, size, alpha=factor, out=size)

    def alone(self, relative: float) -> None:
        """Say that the operation at hand errs by so much of its result (λ included), whatever its operands."""
        self._own = (max(self._own[0], relative), *self._own[1:])

    def alone_of(self, error: Tensor, y: Tensor, size: float = 0.0) -> None:
        """The same of what it adds to the error of ``y`` (before λ), over the norm of y or, where terms cancel, the
        ``size`` it then would have."""
        size = size or float(torch.linalg.vector_norm(y))
        if size > 0:
            relative = self.lam * float(torch.linalg.vector_norm(error)) / size
            self._own = (max(self._own[0], relative), size / y.numel() ** 0.5, y.shape)

    def worst_alone(self, t: Any) -> tuple[float, float]:
        """The largest relative error that one operation on the way to ``t`` makes by itself, and the root mean
        square ``t`` would have if the terms of its sums did not cancel (0 where nothing is known)."""
        if isinstance(t, torch.Tensor):
            return self._alone.get(t.untyped_storage()._cdata, (0.0, 0.0))
        found = map(self.worst_alone, t) if isinstance(t, (list, tuple)) else ()
        return max((f[0] for f in found), default=0.0), 0.0

    def jump(self, size: Tensor, gain: float = 1.0) -> Tensor:
        """What a choice that rounding makes may move, gain·size, as a table entry: twice that over λ (λ 4 suffices)."""
        return size * (gain if self.lam == 1.0 else gain * 2.0 / self.lam)

    def tiny(self, y: Tensor, i: Tensor | None) -> Tensor | None:
        """``i`` with the model's eta added in place: underflow of a product or a quotient."""
        if self.model.eta == 0.0:
            return i
        return torch.full_like(y, self.model.eta) if i is None else i.add_(self.model.eta)

    def choose(self, index: Tensor, x: Tensor, e: Err, dim: int, keepdim: bool) -> None:
        """Remember what an index was chosen from, so that another right choice can be told from a wrong one."""
        whole = e.total()
        self._choices[id(index)] = (index, Choice(x, None if whole is None else whole * self.lam, dim, keepdim))

    def choice(self, index: Tensor) -> Choice | None:
        """What an index tensor was chosen from, if it is the very result of argmax, topk and the like."""
        found = self._choices.get(id(index))
        return found[1] if found is not None and found[0] is index else None

    def record(self, op: str, formula: str, n: int = 1, u: float | None = None) -> None:
        """Remember the longest sum of each formula for the verdict's provenance."""
        key = (op, formula)
        if key not in self.sources or self.sources[key][0] < n:
            self.sources[key] = (n, self.u if u is None else u)

    def provenance(self) -> tuple[Source, ...]:
        """The formulas that took part, the longest sum of each."""
        return tuple(Source(op, formula, n, u) for (op, formula), (n, u) in sorted(self.sources.items()))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        what = _describe(func)
        if what.is_view:
            if what.base == "view" and args[1:] and isinstance(args[1], torch.dtype):
                raise InputError(
                    "the reference reinterprets a tensor's bits with view(dtype), which has no float64 form"
                )
            return func(*args, **kwargs)
        self.calls[what.base] += 1
        targets = [kwargs.pop(name) for name in what.out_names]
        cast = self._double(kwargs)
        args = tuple(map(_as_double, args))
        if kwargs:
            kwargs = {name: _as_double(value) for name, value in kwargs.items()}
        if what.functional is not func and not targets:
            targets = [args[0]]
        y = what.functional(*args, **kwargs)
        parts = None if self._whole else slices(what.base, what.pointwise, y, args, kwargs)
        if parts is None:
            self._follow(what, y, args, kwargs, targets, cast)
        else:
            self._sliced(what, y, args, kwargs, parts, cast)
            for where, value in zip(targets, y if isinstance(y, (tuple, list)) else (y,), strict=False):
                where.copy_(value)
                self.again(where, value)
        if targets:
            return targets[0] if len(targets) == 1 else tuple(targets)
        return y

    def _sliced(
        self, what: Operation, y: Any, args: Any, kwargs: Any, parts: Iterator[Slice], cast: Format | None
    ) -> None:
        """``_follow`` the operation a slice at a time: its roundings count once."""
        self._whole = key = (what.base, y.shape if isinstance(y, torch.Tensor) else y[0].shape)
        try:
            for nth, part in enumerate(parts):
                named = {name: part.of(v) if isinstance(v, torch.Tensor) else v for name, v in kwargs.items()}
                cut = tree_map(lambda t, of=part.of: None if t is None else of(t), y)
                self._follow(what, cut, part.args(args), named, [], cast, nth > 0)
        finally:
            self._whole = None
            self._repeats[key] = self._repeats.get(key, 0) + 1

    def _follow(
        self,
        what: Operation,
        y: Any,
        args: Any,
        kwargs: Any,
        targets: list[Tensor],
        cast: Format | None,
        more: bool = False,
    ) -> None:
        """Work out what is wrong with the results ``y``, or a slice of them (``more``: not the first), and keep it."""
        self._own = (0.0, 0.0, None)
        errs = self.errors(what, y, args, kwargs)
        alone, size, shape = self._own
        if self._alone:
            alone = max(alone, self.worst_alone(args)[0])
        results = y if isinstance(y, (tuple, list)) else (y,)
        for at, (value, err) in enumerate(zip(results, errs, strict=True)):
            if not isinstance(value, torch.Tensor):
                if value is None:
                    continue
                if not err.exact or any(not self.err(a).exact for a in args):
                    self.branches.add(what.base)
                    if isinstance(value, float) and args and isinstance(args[0], torch.Tensor):
                        self.scalars[value] = Err(*(None if e is None else e.reshape(()) for e in self.err(args[0])))
                continue
            err = self._finish(what.base, value, err, cast)
            where = targets[at] if targets else value
            if targets:
                where.copy_(value)
            elif _shares(value, args):
                continue
            self.keep(where, at, value, err)
            if self._alone or alone:
                key, kept = where.untyped_storage()._cdata, size if value.shape == shape else 0.0
                before = self._alone.get(key, (0.0, 0.0)) if more else (0.0, 0.0)
                self._alone[key] = max(alone, before[0]), max(kept, before[1])

    def keep(self, t: Tensor, at: int, value: Tensor, err: Err) -> None:
        """Remember the error of an operation's result ``value``, its ``at``-th, which now stands in ``t``."""
        self.tables.put(t, shaped(err, t))

    def again(self, t: Tensor, value: Tensor) -> None:
        """``t`` now holds what ``value`` does."""
        self.tables.put(t, self.tables.find(value) or EXACT)
        if self._alone:
            self._alone[t.untyped_storage()._cdata] = self._alone.get(value.untyped_storage()._cdata, (0.0, 0.0))

    def number(self, value: float, made: Tensor) -> None:
        """A float the reference returns now stands in the tensor ``made``."""

    def adopt(self, y: Any, parts: Sequence[Any]) -> tuple[Err, ...]:
        """The errors of the results ``y``, told by those of their decomposition."""
        return tuple(self.err(p) for p in parts)

    def _double(self, kwargs: dict[str, Any]) -> Format | None:
        """Turn a floating ``dtype`` argument into float64; returns the narrower format of the cast it stood for."""
        dtype = kwargs.get("dtype")
        if dtype is None or not dtype.is_floating_point or dtype is torch.float64:
            return None
        kwargs["dtype"] = torch.float64
        kind = FORMATS.get(dtype)
        return kind if kind is not None and kind.u > self.u else None

    def errors(self, what: Operation, y: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Err, ...]:
        """The errors of an operation's results ``y``, by its rule or without one."""
        self.current, self.function = what.base, what.functional
        operands = [a for a in args if isinstance(a, torch.Tensor)]
        if operands and not any(a.numel() for a in operands):
            return (EXACT,) * (len(y) if isinstance(y, (tuple, list)) else 1)
        if what.base in WHOLE and not y.is_floating_point():
            doubt = any(not self.err(a).exact for a in operands)
            return (Err(None, None, torch.ones_like(y, dtype=torch.bool)) if doubt else EXACT,)
        if what.rule is not None:
            errs = what.rule(self, y, *args, **kwargs)
        else:
            tensors = [a for a in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(a, torch.Tensor)]
            count = len(y) if isinstance(y, (tuple, list)) else 1
            random = what.base in RANDOM
            if not tensors or random or not any(t.is_floating_point() or not self.err(t).exact for t in tensors):
                errs = (EXACT,) * count
            elif what.pointwise and count == 1:
                errs = pointwise_by_sampling(self, y, what.functional, args, kwargs)
            elif what.decomposed is not None:
                with self:
                    parts = what.decomposed(*args, **kwargs)
                errs = self.adopt(y, parts if isinstance(parts, (tuple, list)) else (parts,))
            else:
                self.estimated.add(what.base)
                errs = stochastic(self, y, what.functional, args, kwargs)
        return errs if type(errs) is tuple else (errs,)

    def _finish(self, base: str, y: Tensor, err: Err, cast: Format | None) -> Err:
        """Handle non-finite and overflowing values, and add what storing the result in a narrow type costs."""
        if not y.is_floating_point() or y.numel() == 0:
            return err
        if self.lam == 1.0:
            err = err.systematic()
        low, high = torch.aminmax(y)
        largest = max(-float(low), float(high))
        if not largest <= self.model.largest:
            bad = ~torch.isfinite(y)
            over = None if base in CONSTANTS else (y.abs() > self.model.largest) & ~bad
            c = None if err.c is None else torch.where(bad, 0.0, err.c)
            i = None if err.i is None else torch.where(bad, 0.0, err.i)
            err = Err(c, i, either(err.und, over))
        u, eta = (self.model.u_step, self.model.eta_step) if base not in CONSTANTS else (0.0, 0.0)
        if cast is not None:
            u, eta = max(u, cast.u), max(eta, cast.eta)
        if not u:
            return err
        share = 1.0 if self.lam == 1.0 else 0.5
        stored = y.abs().mul_(u * share).add_(eta * share)
        if not largest <= self.model.largest:
            stored.nan_to_num_(0.0, 0.0)
        self.record("store", "i += u|y|/2 + eta/2", 1, u)
        return Err(plus(err.c, stored), err.i, err.und) if self.lam == 1.0 else Err(err.c, plus(err.i, stored), err.und)


def _as_double(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() and value.dtype is not torch.float64 else value
    if isinstance(value, float) and abs(value) == LIMIT64:
        return LIMIT32 if value > 0 else -LIMIT32
    if type(value) is list or type(value) is tuple:
        return type(value)(map(_as_double, value))
    return value


def _shares(value: Tensor, args: Any) -> bool:
    key = value.untyped_storage()._cdata
    return any(isinstance(a, torch.Tensor) and a.untyped_storage()._cdata == key for a in args)


def shaped(err: Err, t: Tensor) -> Err:
    """The error expanded to the shape of ``t`` where a rule gave a broadcastable one."""
    if all(p is None or p.shape == t.shape for p in err):
        return err
    return Err(*(p if p is None or p.shape == t.shape else p.expand(t.shape) for p in err))
