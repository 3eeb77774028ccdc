"""Running a reference in float64 with its bound: quantised inputs and parameters doubled, forward and backward."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

from kcontract.dynamic.oracle.attention import piecewise
from kcontract.dynamic.oracle.dtypes import DType, Tensor
from kcontract.dynamic.oracle.mode import BoundMode, Choice, Source
from kcontract.dynamic.oracle.model import Accumulation
from kcontract.dynamic.oracle.tables import Err
from kcontract.errors import InputError, KContractError

SALT = 0x6B636F6E
"""Parts the stream of upstream gradients from others of the same seed (a CPU generator takes 32 bits of it)."""


@dataclass(frozen=True, slots=True)
class Bounded:
    """One output, or one gradient, of the reference.

    ``value`` is float64 (or integer, bool: exact), ``bound`` how far an honest result may be from it *before* it is
    rounded to ``dtype``, ``undetermined`` where nothing can be promised. ``choice`` says, for an index, from what.
    """

    name: str
    value: Tensor
    bound: Tensor
    undetermined: Tensor
    dtype: DType
    choice: Choice | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """What a reference promises on one set of inputs.

    ``outputs`` in the order the reference returns them; ``grads`` by name (``input 0``, or a parameter's name), for
    ``upstream`` gradients. ``sources`` are the formulas that took part, each with the longest sum N and its u;
    ``estimated`` operations make the verdict an estimate; ``branches`` are operations whose uncertain value steered
    Python code.
    """

    outputs: tuple[Bounded, ...]
    model: Accumulation
    sources: tuple[Source, ...]
    grads: dict[str, Bounded] = field(default_factory=dict)
    upstream: tuple[Tensor, ...] = ()
    estimated: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()

    @property
    def longest(self) -> int:
        """The longest sum that took part."""
        return max((s.n for s in self.sources), default=1)


@contextlib.contextmanager
def _reference_settings(seed: int, devices: Sequence[int]) -> Iterator[None]:
    """float64 by default, attention as plain products, no fused inference path, a fixed seed on the CPU and the CUDA
    ``devices`` in use; all restored."""
    default, fast = torch.get_default_dtype(), torch.backends.mha.get_fastpath_enabled()
    torch.set_default_dtype(torch.float64)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with (
            torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
            piecewise(),
            torch.random.fork_rng(devices),
        ):
            # torch.manual_seed would queue a seeding call, with its stack, for a CUDA that is never started
            torch.default_generator.manual_seed(seed)
            for device in devices:
                torch.cuda.default_generators[device].manual_seed(seed)
            yield
    finally:
        torch.set_default_dtype(default)
        torch.backends.mha.set_fastpath_enabled(fast)


@contextlib.contextmanager
def _named(what: str) -> Iterator[None]:
    """Says of an exception that escapes it where it comes from."""
    try:
        yield
    except KContractError:
        raise
    except Exception as error:
        why = next(iter(str(error).splitlines()), "")
        raise InputError(f"{what} cannot be followed in float64: {type(error).__name__}: {why}") from error


def double(value: Any) -> Any:
    """Private float64 copies of floating tensors (gradient wish kept), copies of others, the rest as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    if not value.is_floating_point():
        return value.detach().clone()
    return value.detach().to(torch.float64, copy=True).requires_grad_(value.requires_grad)


def outputs_of(result: Any) -> list[Tensor]:
    """The tensors a reference or candidate returned, in order (nested containers flattened)."""
    return [t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor)]


def random_upstream(shapes: Sequence[Any], dtypes: Sequence[DType], seed: int) -> tuple[Tensor, ...]:
    """Standard normal upstream gradients, one an output; never ones, which hide per-row mistakes, nor the values that
    inputs drawn with the same seed hold (a layer norm's gradient for its own input is 0)."""
    generator = torch.Generator().manual_seed(seed ^ SALT)
    return tuple(
        torch.randn(tuple(s), generator=generator, dtype=torch.float32).to(d)
        for s, d in zip(shapes, dtypes, strict=True)
    )


def run(
    reference: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    model: Accumulation | None = None,
    out_dtype: DType | Sequence[DType] | None = None,
    grads: bool | Sequence[Tensor] = False,
    flush_inputs: bool = False,
    seed: int = 0,
) -> Expected:
    """The reference's outputs in float64 with the error bound of any honest implementation under ``model``.

    ``inputs`` are what the candidate gets, already in its dtypes (so already quantised); a module's parameters
    likewise. ``out_dtype`` is what the candidate returns (default: the first floating input's dtype). With
    ``grads`` true, gradients of every input and parameter that requires one are bounded too, for random upstream
    gradients of ``seed`` (returned) or the given ones. ``flush_inputs`` admits inputs below 2^-126 read as zero.
    Raises ``InputError`` where the reference raises, returns no tensor or cannot be followed. Memory:
    about 3 times the plain float64 run.
    """
    if isinstance(inputs, (torch.Tensor, Mapping)) or not isinstance(inputs, Iterable):
        raise InputError(f"the inputs are a {type(inputs).__name__}: give a list of the reference's arguments")
    if not isinstance(grads, bool) and not len(grads):
        raise InputError("an empty list of upstream gradients is given: pass one a differentiable output, or True")
    model = model or Accumulation.fp32()
    module = copy.deepcopy(reference).double() if isinstance(reference, torch.nn.Module) else None
    call = reference if module is None else module
    args = tree_map(double, list(inputs))
    leaves = [t for t in tree_flatten(args)[0] if isinstance(t, torch.Tensor)]
    floating = [t for t in tree_flatten(list(inputs))[0] if isinstance(t, torch.Tensor) and t.is_floating_point()]
    default = floating[0].dtype if floating else torch.float32
    wanted = {f"input {k}": t for k, t in enumerate(leaves) if t.requires_grad}
    if module is not None:
        wanted |= {name: p for name, p in module.named_parameters() if p.requires_grad}
    devices = sorted({t.device.index for t in leaves if t.device.type == "cuda"})
    with _reference_settings(seed, devices), torch.set_grad_enabled(bool(grads)):
        mode = BoundMode(model, bool(model.u_factor) or any(t.dtype.itemsize <= 2 for t in floating))
        if flush_inputs:
            for t in leaves:
                if t.is_floating_point():
                    small = torch.where(t.detach().abs() < 2.0**-126, t.detach().abs(), 0.0)
                    mode.tables.put(t, Err(small / model.lam))
        with mode, _named("the reference"):
            outs = outputs_of(call(*args))
        if not outs:
            raise InputError("the reference returns no tensor, so there is nothing to compare; return its results")
        count = len(outs)
        dtypes = list(out_dtype) if isinstance(out_dtype, (list, tuple)) else [out_dtype or default] * count
        if len(dtypes) != count:
            raise InputError(f"{len(dtypes)} output dtypes are given for {count} outputs")
        upstream: tuple[Tensor, ...] = ()
        gradients: dict[str, Bounded] = {}
        if grads:
            can = [(o, d) for o, d in zip(outs, dtypes, strict=True) if o.requires_grad]
            if not can or not wanted:
                raise InputError("gradients are asked for, but no output depends on an input that requires one")
            given = () if grads is True else tuple(grads)
            if given and len(given) != len(can):
                raise InputError(f"{len(given)} upstream gradients are given for {len(can)} differentiable outputs")
            upstream = given or random_upstream([o.shape for o, _ in can], [d for _, d in can], seed)
            with mode, _named("the backward of the reference"):
                given_to = [g.to(o) for g, (o, _) in zip(upstream, can, strict=True)]
                found = torch.autograd.grad([o for o, _ in can], list(wanted.values()), given_to, allow_unused=True)
            for (name, t), g in zip(wanted.items(), found, strict=True):
                gradients[name] = _bounded(
                    mode, name, torch.zeros_like(t) if g is None else g, _native(name, inputs, reference)
                )
    bounded = tuple(_bounded(mode, f"output {k}", o, d) for k, (o, d) in enumerate(zip(outs, dtypes, strict=True)))
    return Expected(
        bounded,
        model,
        mode.provenance(),
        gradients,
        upstream,
        tuple(sorted(mode.estimated)),
        tuple(sorted(mode.branches)),
    )


def _native(name: str, inputs: Sequence[Any], reference: Any) -> DType:
    """The dtype of an input or parameter as the candidate has it: its gradient's dtype."""
    if name.startswith("input "):
        tensors = [t for t in tree_flatten(list(inputs))[0] if isinstance(t, torch.Tensor)]
        return tensors[int(name[6:])].dtype
    return dict(reference.named_parameters())[name].dtype


def _bounded(mode: BoundMode, name: str, t: Tensor, dtype: DType) -> Bounded:
    err = mode.err(t)
    choice = mode.choice(t)
    t = t.detach()
    und = err.und if err.und is not None else torch.zeros((), dtype=torch.bool, device=t.device).expand(t.shape)
    nothing = torch.zeros((), dtype=torch.float64, device=t.device).expand(t.shape)
    if not t.is_floating_point() or (err.c is None and err.i is None):
        return Bounded(name, t, nothing, und, dtype if t.is_floating_point() else t.dtype, choice)
    factor = mode.lam * mode.model.reference_share
    bound: Tensor = err.total()  # the table itself where there is one part only
    bound = bound * factor if err.c is None or err.i is None else bound.mul_(factor)
    if not bool(torch.isfinite(bound.sum())):
        und = und | (~torch.isfinite(bound) & torch.isfinite(t))
        bound = bound.nan_to_num_(0.0, 0.0)
    return Bounded(name, t, bound, und, dtype, choice)
