"""Running a reference in float64 with its bound: quantised inputs and parameters doubled, forward and backward."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

from kcontract.dynamic import results
from kcontract.dynamic.oracle.attention import piecewise
from kcontract.dynamic.oracle.dtypes import DType, Tensor
from kcontract.dynamic.oracle.ensemble import COARSE, FORMULA, Perturbed, loose, spreads
from kcontract.dynamic.oracle.mode import BoundMode, Choice, Source
from kcontract.dynamic.oracle.model import Accumulation
from kcontract.dynamic.oracle.sampling import stepwise
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
def _reference_settings(seed: int, devices: Sequence[int], wide: bool) -> Iterator[None]:
    """float64 by default, attention as plain products, no fused inference path, the epsilon that an RMS norm takes of
    float32 (unless the candidate is float64: ``wide``), a fixed seed on the CPU and the CUDA ``devices`` in use; all
    restored."""
    plain: Any = torch.nn.functional.rms_norm

    def rms_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Any:
        return plain(input, normalized_shape, weight, torch.finfo(torch.float32).eps if eps is None else eps)

    default, fast = torch.get_default_dtype(), torch.backends.mha.get_fastpath_enabled()
    torch.set_default_dtype(torch.float64)
    torch.backends.mha.set_fastpath_enabled(False)
    if not wide:
        torch.nn.functional.rms_norm = rms_norm
    try:
        with (
            torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
            piecewise(),
            stepwise(),
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
        torch.nn.functional.rms_norm = plain


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
    """The tensors a reference or candidate returned, in order (nested containers flattened), and its numbers as tensors
    without dimensions."""
    return results.tensors(result)


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
    likewise. ``out_dtype``, by name or as torch has it, is what the candidate returns (default: the first floating
    input's), one or one an output. With
    ``grads`` true, gradients of every input and parameter that requires one are bounded too, for random upstream
    gradients of ``seed`` (returned) or the given ones. ``flush_inputs`` admits inputs below 2^-126 read as zero.
    Raises ``InputError`` where the reference raises, returns no tensor or cannot be followed. Memory:
    about 3 times the plain float64 run.
    """
    if isinstance(inputs, (torch.Tensor, Mapping)) or not isinstance(inputs, Iterable):
        raise InputError(f"the inputs are a {type(inputs).__name__}: give a list of the reference's arguments")
    if not isinstance(grads, bool):
        if not isinstance(grads, (list, tuple)) or not all(isinstance(g, torch.Tensor) for g in grads):
            raise InputError(f"grads is {_kind(grads)}: give True, False, or a list of upstream gradients (tensors)")
        if not len(grads):
            raise InputError("an empty list of upstream gradients is given: pass one a differentiable output, or True")
    if isinstance(out_dtype, (list, tuple)):
        out_dtype = [_dtype(d) for d in out_dtype]
    elif out_dtype is not None:
        out_dtype = _dtype(out_dtype)
    if not isinstance(flush_inputs, bool):
        raise InputError(f"flush_inputs is {_kind(flush_inputs)}: give True or False")
    model = model or Accumulation.fp32()
    if not isinstance(model, Accumulation):
        raise InputError(f"the model is {_kind(model)}: give an Accumulation, such as oracle.Accumulation.fp32()")
    for t in tree_flatten(list(inputs))[0]:
        if isinstance(t, torch.Tensor) and t.is_complex():
            raise InputError("an input is complex: the oracle follows real numbers only; give its two parts apart")
    job = _Job(reference, inputs, out_dtype, grads, seed, flush_inputs)
    expected, alone = _running(job, model)
    return expected if flush_inputs or model.lam == 1.0 else _sharpened(job, expected, alone)


def _dtype(given: Any) -> DType:
    """A dtype, or the one a name says."""
    found = getattr(torch, given, None) if isinstance(given, str) else given
    if not isinstance(found, torch.dtype):
        raise InputError(f"an output dtype is {_kind(given)}: give a torch.dtype, such as torch.bfloat16, or its name")
    return found


def _kind(value: Any) -> str:
    return repr(value) if isinstance(value, str) else f"a {type(value).__name__}"


def _running(job: _Job, model: Accumulation) -> tuple[Expected, list[tuple[float, float]]]:
    """Values and bounds by running tables, and the largest error of one operation behind each with its size."""
    mode = BoundMode(model, job.narrow_factors(model))
    found = job.under(mode)
    bounded = [
        _bounded(mode, f"output {k}", o, d) for k, (o, d) in enumerate(zip(found.outs, found.dtypes, strict=True))
    ]
    expected = Expected(
        tuple(bounded),
        model,
        mode.provenance(),
        {name: _bounded(mode, name, g, _native(name, job.inputs, job.reference)) for name, g in found.grads.items()},
        found.upstream,
        tuple(sorted(mode.estimated)),
        tuple(sorted(mode.branches)),
    )
    return expected, [mode.worst_alone(t) for t in (*found.outs, *found.grads.values())]


def _sharpened(job: _Job, expected: Expected, alone: list[tuple[float, float]]) -> Expected:
    """The same with the bounds of ``ensemble`` where running tables are too coarse, and a source that says so."""
    model, told = expected.model, [*expected.outputs, *expected.grads.values()]
    weak = [
        k
        for k, (b, single) in enumerate(zip(told, alone, strict=True))
        if loose(model, b.value, b.bound, b.undetermined, single)
    ]
    if not weak:
        return expected

    def make(part: int) -> Perturbed:
        return Perturbed(model, job.narrow_factors(model), job.seed + part, wide=told[0].value.is_cuda)

    def again(mode: Perturbed) -> list[tuple[Sequence[Tensor], Tensor | None]]:
        found = job.under(mode)
        tensors = [*found.outs, *found.grads.values()]
        return [(mode.runs(tensors[k].detach()), mode.err(tensors[k]).und) for k in weak]

    bounds = [(told[k].bound, told[k].undetermined) for k in weak]
    coarse = max(model.u, model.u_step) > COARSE
    sharper = spreads(again, [told[k].value for k in weak], bounds, make, model.reference_share, coarse)
    if sharper is None:
        return expected
    for k, (bound, und) in zip(weak, sharper, strict=True):
        told[k] = replace(told[k], bound=bound, undetermined=und)
    count = len(expected.outputs)
    source = Source("+".join(told[k].name for k in weak), FORMULA, 1, model.u)
    return replace(
        expected,
        outputs=tuple(told[:count]),
        grads=dict(zip(expected.grads, told[count:], strict=True)),
        sources=(*expected.sources, source),
    )


@dataclass(frozen=True, slots=True)
class _Found:
    outs: list[Tensor]
    dtypes: list[DType]
    grads: dict[str, Tensor]
    upstream: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class _Job:
    """A reference and what it is run on, any number of times: see ``run``."""

    reference: Any
    inputs: Sequence[Any]
    out_dtype: DType | Sequence[DType] | None
    grads: bool | Sequence[Tensor]
    seed: int
    flush_inputs: bool

    def floating(self) -> list[Tensor]:
        """The floating tensors among the inputs."""
        return [t for t in tree_flatten(list(self.inputs))[0] if isinstance(t, torch.Tensor) and t.is_floating_point()]

    def narrow_factors(self, model: Accumulation) -> bool:
        """True where products may be formed by matrix units."""
        return bool(model.u_factor) or any(t.dtype.itemsize <= 2 for t in self.floating())

    def under(self, mode: BoundMode) -> _Found:
        """One run under a mode, forward and (if asked for) backward, on private copies of module and inputs."""
        module = copy.deepcopy(self.reference).double() if isinstance(self.reference, torch.nn.Module) else None
        call = self.reference if module is None else module
        args = tree_map(double, list(self.inputs))
        leaves = [t for t in tree_flatten(args)[0] if isinstance(t, torch.Tensor)]
        wanted = {f"input {k}": t for k, t in enumerate(leaves) if t.requires_grad}
        if module is not None:
            wanted |= {name: p for name, p in module.named_parameters() if p.requires_grad}
        devices = sorted({t.device.index for t in leaves if t.device.type == "cuda"})
        floating = self.floating()
        wide = bool(floating) and all(t.dtype is torch.float64 for t in floating)
        with _reference_settings(self.seed, devices, wide), torch.set_grad_enabled(bool(self.grads)):
            if self.flush_inputs:
                for t in leaves:
                    if t.is_floating_point():
                        small = torch.where(t.detach().abs() < 2.0**-126, t.detach().abs(), 0.0)
                        mode.tables.put(t, Err(small / mode.lam))
            with mode, _named("the reference"):
                outs = [_exactly(mode, part, leaves) for part in results.leaves(call(*args)) if results.compared(part)]
            if not outs:
                raise InputError("the reference returns no tensor, so there is nothing to compare; return its results")
            dtypes = self._dtypes(len(outs))
            if not self.grads:
                return _Found(outs, dtypes, {}, ())
            can = [(o, d) for o, d in zip(outs, dtypes, strict=True) if o.requires_grad]
            if not can or not wanted:
                raise InputError("gradients are asked for, but no output depends on an input that requires one")
            given = () if self.grads is True else tuple(self.grads)
            if given and len(given) != len(can):
                raise InputError(f"{len(given)} upstream gradients are given for {len(can)} differentiable outputs")
            upstream = given or random_upstream([o.shape for o, _ in can], [d for _, d in can], self.seed)
            with mode, _named("the backward of the reference"):
                given_to = [g.to(o) for g, (o, _) in zip(upstream, can, strict=True)]
                found = torch.autograd.grad([o for o, _ in can], list(wanted.values()), given_to, allow_unused=True)
            pairs = zip(wanted.items(), found, strict=True)
            return _Found(outs, dtypes, {n: torch.zeros_like(t) if g is None else g for (n, t), g in pairs}, upstream)

    def _dtypes(self, count: int) -> list[DType]:
        """What the candidate returns, one a output: as given, else the first floating input's."""
        if isinstance(self.out_dtype, (list, tuple)):
            if len(self.out_dtype) != count:
                raise InputError(f"{len(self.out_dtype)} output dtypes are given for {count} outputs")
            return list(self.out_dtype)
        floating = self.floating()
        return [self.out_dtype or (floating[0].dtype if floating else torch.float32)] * count


def _exactly(mode: BoundMode, part: Any, given: Sequence[Tensor]) -> Tensor:
    """A returned tensor as it is; a number as one, with the error of the element it was read from. Of a float made
    from others that have an error nothing is promised; else it may be rounded to float32."""
    if isinstance(part, torch.Tensor):
        return part
    made: Tensor = results.tensor_of(part).to(given[0].device if given else "cpu")
    if isinstance(part, float):
        doubtful = Err(None, None, torch.ones_like(made, dtype=torch.bool))
        mode.tables.put(made, mode.scalars.get(part, doubtful if mode.scalars else Err(made.abs() * 2.0**-23)))
        mode.number(part, made)
    return made


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
