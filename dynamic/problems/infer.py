"""Finds out what a reference takes by probing it: which sizes can move, and together with which; what is reduced.

Why: a KernelBench file says nothing but one set of inputs. That ``A`` is (M, K) and ``B`` (K, N), that a weight fixes
the width, that a target is a class index below C, shows when the reference is called with other sizes. Sizes are
probed on torch's meta device, which computes nothing. A reference whose sizes depend on data is probed on the CPU.

Not found: constraints between sizes other than equality (a size that must be a multiple of eight is found movable
where some of its multiples work, and at the other sizes the reference itself fails, which gates count as not
applicable).
"""

from __future__ import annotations

import copy
import inspect
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kcontract.dynamic.inputs import Argument, Role, Spec, build, resized
from kcontract.dynamic.oracle.run import outputs_of
from kcontract.errors import InputError

#: Calls of the reference that looking for movable sizes may take.
_TRIES = 160
#: Elements, inputs and outputs together, of the problem the gates work on by default.
BUDGET = 1 << 18
#: A reduced dimension is kept this long where the budget allows, so that sums are long enough to show their order.
_LONG = 1024
#: Elements of all inputs, above which a reference is not run only to see whether it is random.
_MUCH = 1 << 20
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class Inferred:
    """``spec`` at sizes reduced to the budget, ``native`` the sizes of the problem's own inputs, by name."""

    spec: Spec
    native: Mapping[str, int]


def infer(reference: Callable[[], Any], inputs: Sequence[Any], *, budget: int = BUDGET) -> Inferred:
    """The spec of a reference from its own inputs. Raises ``InputError`` where it fails on those."""
    module = reference()
    probe = _Prober(module, inputs)
    probe.check_native()
    groups = probe.groups()
    names = _names(groups, inputs)
    native = {name: probe.size(group[0]) for name, group in zip(names, groups, strict=True)}
    named = {axis: name for name, group in zip(names, groups, strict=True) for axis in group}
    spec = Spec(tuple(_argument(module, probe, k, v, named) for k, v in enumerate(inputs)), native)
    spec = _reduced(spec, probe, dict(zip(names, groups, strict=True)), budget)
    spec = replace(spec, arguments=tuple(_domains(module, spec)))
    spec = replace(spec, arguments=tuple(_indices(module, spec)))
    return Inferred(_reduced_axes(module, spec), native)


def is_random(reference: Any, inputs: Sequence[Any]) -> bool:
    """Whether two runs on the same inputs differ. It is run on data only if it draws random numbers on none, or cannot
    be run without data; not if that is much work. The stream of random numbers is left as it was."""
    with torch.random.fork_rng(devices=()):
        probe, drawn = _Prober(reference, inputs), _Drawn()
        if probe.on_meta:
            with drawn:
                probe.works({})
            elements = sum(v.numel() for v in inputs if isinstance(v, torch.Tensor))
            if not drawn.names or elements > _MUCH:
                return bool(drawn.names)
        outputs = []
        for seed in (1, 2):
            torch.default_generator.manual_seed(seed)
            before = torch.get_rng_state()
            given = [v.detach().clone() if isinstance(v, torch.Tensor) else v for v in inputs]
            try:
                with torch.no_grad():
                    outputs.append(outputs_of(copy.deepcopy(reference)(*given)))
            except Exception:
                return False
            if torch.equal(before, torch.get_rng_state()):
                return False
    return not all(torch.equal(_sayable(a), _sayable(b)) for a, b in zip(*outputs, strict=True))


def _sayable(t: Any) -> Any:
    return t.nan_to_num(0.5) if t.is_floating_point() else t


class _Drawn(TorchDispatchMode):  # type: ignore[misc]
    """Names of the operations that draw random numbers."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch's switch: else the first use imports all of torch._dynamo, for code that is compiled

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(zip((a.name for a in function._schema.arguments), args, strict=False)) | (kwargs or {})
        idle = named.get("train") is False or any(named.get(name) == 0.0 for name in ("p", "dropout_p", "dropout"))
        if torch.Tag.nondeterministic_seeded in function.tags and not idle:
            self.names.add(str(function))
        return function(*args, **(kwargs or {}))


Axis = tuple[int, int]


class _Prober:
    """Calls the reference at other sizes."""

    def __init__(self, module: Any, inputs: Sequence[Any]) -> None:
        self.inputs, self.tries = list(inputs), 0
        self.module: Any = None
        self.on_meta = True
        try:
            self.module = copy.deepcopy(module).to("meta") if isinstance(module, torch.nn.Module) else module
            self._call([_meta(v, v.shape) if isinstance(v, torch.Tensor) else v for v in self.inputs])
        except Exception:
            self.on_meta, self.module = False, module
        self.native = module

    def check_native(self) -> None:
        """Raises ``InputError`` where the reference fails on the problem's own inputs."""
        if self.on_meta:
            return
        try:
            self._call(self.inputs)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"the reference fails on its own inputs: {type(error).__name__}: {error}") from None

    def size(self, axis: Axis) -> int:
        return int(self.inputs[axis[0]].shape[axis[1]])

    def works(self, sizes: Mapping[Axis, int]) -> list[tuple[int, ...]] | None:
        """Output shapes at those sizes, None where the reference fails."""
        made: list[Any] = []
        for k, value in enumerate(self.inputs):
            if not isinstance(value, torch.Tensor):
                made.append(value)
                continue
            shape = [sizes.get((k, a), s) for a, s in enumerate(value.shape)]
            made.append(_meta(value, shape) if self.on_meta else resized(value, shape))
        self.tries += 1
        try:
            return [tuple(o.shape) for o in self._call(made)]
        except Exception:
            return None

    def _call(self, inputs: Sequence[Any]) -> list[Any]:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return outputs_of(self.module(*inputs))

    def moves(self, axes: Sequence[Axis]) -> bool:
        size = self.size(axes[0])
        return any(self.works(dict.fromkeys(axes, to)) is not None for to in (size + 1, 2 * size))

    def groups(self) -> list[tuple[Axis, ...]]:
        """Axes that move together, in order of their first axis. An axis in none is fixed."""
        axes = [(k, a) for k, v in enumerate(self.inputs) if isinstance(v, torch.Tensor) for a in range(v.dim())]
        lone = [axis for axis in axes if self.size(axis) == 1]
        axes = [axis for axis in axes if self.size(axis) > 1]
        found: list[tuple[Axis, ...]] = [(axis,) for axis in axes if self.moves([axis])]
        left = [axis for axis in axes if (axis,) not in found]
        for count in range(2, 5):
            for together in itertools.combinations(left, count):
                if self.tries > _TRIES:
                    break
                sizes = {self.size(axis) for axis in together}
                if len(sizes) == 1 and all(a in left for a in together) and self.moves(together):
                    found.append(together)
                    left = [axis for axis in left if axis not in together]
        return sorted([*found, *self._lone(lone)])

    def _lone(self, axes: Sequence[Axis]) -> Iterator[tuple[Axis, ...]]:
        """Axes of size 1 that move: all that have the place of one in tensors of as many dimensions, or all that lead;
        not of a tensor that is spread over another axis."""
        for k, a in axes:
            shape, together = self.inputs[k].shape, []
            for j, b in axes:
                other = self.inputs[j].shape
                if b == a and (a == 0 or len(other) == len(shape)) and not _is_spread(other, shape):
                    together.append((j, b))
            if together[0] == (k, a) and self.moves(together):
                yield tuple(together)


def _is_spread(shape: Sequence[int], over: Sequence[int]) -> bool:
    """Whether a tensor of this shape is spread along an axis of another of as many dimensions."""
    return len(shape) == len(over) and any(s == 1 != o for s, o in zip(shape, over, strict=True))


def _meta(value: Any, shape: Sequence[int]) -> Any:
    return torch.empty(tuple(shape), dtype=value.dtype, device="meta")


def _names(groups: Sequence[tuple[Axis, ...]], inputs: Sequence[Any]) -> list[str]:
    """``batch`` for the leading axis of the first tensor, ``width`` for its last, ``length`` for the others."""
    taken: dict[str, int] = {}
    names = []
    for group in groups:
        k, a = group[0]
        last = inputs[k].dim() - 1
        name = "batch" if (k, a) == (0, 0) and last > 0 else "width" if k == 0 and a == last else "length"
        taken[name] = taken.get(name, 0) + 1
        names.append(name if taken[name] == 1 else f"{name}{taken[name]}")
    return names


def _argument(module: Any, probe: _Prober, k: int, value: Any, named: Mapping[Axis, str]) -> Argument:
    call = module.forward if isinstance(module, torch.nn.Module) else module
    try:
        parameters = list(inspect.signature(call).parameters)
    except (TypeError, ValueError):
        parameters = []
    name = parameters[k] if k < len(parameters) else f"input {k}"
    if not isinstance(value, torch.Tensor):
        return Argument(name, role=Role.FIXED, value=value)
    shape = tuple(named.get((k, a), int(size)) for a, size in enumerate(value.shape))
    dtype = str(value.dtype).removeprefix("torch.")
    if value.dtype in _FLOATS:
        return Argument(name, shape, dtype, requires_grad=value.requires_grad)
    if value.dtype is torch.bool or value.is_complex() or value.is_floating_point():
        return Argument(name, shape, dtype, Role.GIVEN, value=value.detach())
    return Argument(name, shape, dtype, Role.INDEX, high=int(value.long().max()) + 1 if value.numel() else 1)


def _reduced(spec: Spec, probe: _Prober, groups: Mapping[str, tuple[Axis, ...]], budget: int) -> Spec:
    """The spec at smaller sizes: the largest size is halved while all tensors together exceed the budget."""
    dims = dict(spec.dims)
    stuck: set[str] = set()

    def assigned(sizes: Mapping[str, int]) -> dict[Axis, int]:
        return {axis: sizes[name] for name, group in groups.items() for axis in group}

    def elements(sizes: Mapping[str, int], outputs: Sequence[tuple[int, ...]]) -> int:
        moved = spec.with_dims(sizes)
        shapes = [moved.shape(a) for a in moved.arguments if a.role is not Role.FIXED] + list(outputs)
        return sum(_product(shape) for shape in shapes)

    outputs = probe.works(assigned(dims)) or []
    while elements(dims, outputs) > budget and len(stuck) < len(dims):
        movable = [name for name in dims if name not in stuck]
        long = [name for name in movable if dims[name] > _LONG] or movable
        name = max(long, key=lambda n: (n != "width" or dims[n] > _LONG, dims[n]))
        smaller = {**dims, name: dims[name] // 2}
        shapes = probe.works(assigned(smaller)) if smaller[name] >= 2 else None
        if shapes is None or any(0 in shape for shape in shapes):
            stuck.add(name)
            continue
        dims, outputs = smaller, shapes
    return spec.with_dims(dims)


def _product(shape: Sequence[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _domains(module: Any, spec: Spec) -> Iterator[Argument]:
    """Arguments marked ``positive`` where the reference makes NaN of ordinary negative values of theirs."""
    small = spec.with_dims({name: min(size, 8) for name, size in spec.dims.items()})

    def sound(trial: Spec) -> bool:
        try:
            with torch.no_grad():
                return all(not bool(torch.isnan(o).any()) for o in outputs_of(module(*build(trial, 1))))
        except Exception:
            return True

    good = sound(small)
    for k, a in enumerate(spec.arguments):
        positive = replace(a, positive=True)
        trial = replace(small, arguments=(*small.arguments[:k], positive, *small.arguments[k + 1 :]))
        yield positive if not good and a.role is Role.DATA and sound(trial) else a


def _indices(module: Any, spec: Spec) -> Iterator[Argument]:
    """Index arguments with the size that bounds them: the one at which an index of that value is out of range."""
    small = spec.with_dims({name: min(size, 5 + k) for k, (name, size) in enumerate(spec.dims.items())})

    def taken(k: int, value: int) -> bool:
        inputs = list(build(small, 2))
        inputs[k] = torch.full_like(inputs[k], value)
        try:
            with torch.no_grad():
                module(*inputs)
        except Exception:
            return False
        return True

    for k, a in enumerate(spec.arguments):
        bounds = small.dims.items() if a.role is Role.INDEX else ()
        # the draw of another index argument may be out of range by then: what fails for every value bounds nothing
        named = [name for name, size in bounds if taken(k, size - 1) and not taken(k, size)]
        yield replace(a, high=named[0]) if named else a


def _reduced_axes(module: Any, spec: Spec) -> Spec:
    """Each argument's ``axis``: the longest of those along which one element of it moves more than one output."""
    small = spec.with_dims({name: min(size, 6) for name, size in spec.dims.items()})
    arguments = list(spec.arguments)
    for k, a in enumerate(spec.arguments):
        if a.role is not Role.DATA or len(a.shape) < 2:
            continue
        try:
            mixed = _mixed(module, small, k)
        except Exception:
            continue
        if mixed:
            arguments[k] = replace(a, axis=max(mixed, key=lambda axis: (spec.size(a.shape[axis]), axis)))
    return replace(spec, arguments=tuple(arguments))


def _mixed(module: Any, small: Spec, k: int) -> list[int]:
    """Axes of argument ``k`` whose elements meet: moving either of two neighbours along it moves a common output."""
    base = [
        v.detach().double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in build(small, 3)
    ]
    call = copy.deepcopy(module).double() if isinstance(module, torch.nn.Module) else module
    with torch.no_grad():
        before = outputs_of(call(*base))

        def moved(at: tuple[int, ...]) -> list[Any]:
            x = base[k].clone()
            x[at] = x[at] + 1.0
            after = outputs_of(call(*base[:k], x, *base[k + 1 :]))
            return [b != a for b, a in zip(before, after, strict=True)]

        origin = (0,) * base[k].dim()
        first = moved(origin)
        found = []
        for axis in range(base[k].dim()):
            if base[k].shape[axis] > 1:
                at = tuple(int(d == axis) for d in range(base[k].dim()))
                if any(bool((f & s).any()) for f, s in zip(first, moved(at), strict=True)):
                    found.append(axis)
    return found
