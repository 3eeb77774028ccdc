"""The sets of inputs a gate is tried on. Every tensor can be drawn again from its label's kinds and its seed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from kcontract.dynamic.inputs.generators import draw
from kcontract.dynamic.inputs.lattice import SMALLEST, lattice_rows
from kcontract.dynamic.inputs.nonfinite import placements
from kcontract.dynamic.inputs.shapes import boundary_shapes, resized, strided_views
from kcontract.dynamic.inputs.spec import Argument, Role, Sample, Spec
from kcontract.errors import InputError

Tensor = Any
Build = Callable[[Spec, int, bool], Iterator[Sample]]
"""build(spec, seed, thorough) -> samples of one gate."""

ORDERS = ("cancelling", "signs", "spike_first", "spike_last", "sparse", "shifted", "steep", "peaked")
MORE_ORDERS = ("normal", "uniform", "wide", "large_mean", "tiny_scale", "ascending", "alternating", "constant_rows")
EXTREMES = ("zeros", "huge", "small", "subnormal")


def build(spec: Spec, seed: int, kind: str = "normal", only: str | None = None) -> tuple[Any, ...]:
    """One set of inputs: data arguments of that kind (only the named one, when ``only`` is given; the rest normal),
    parameters drawn around their ``center`` and off it, indices uniform. Each argument has its own stream."""
    return tuple(_argument(spec, a, seed, kind if only in (None, a.name) else "normal") for a in spec.arguments)


def _argument(spec: Spec, a: Argument, seed: int, kind: str) -> Any:
    if a.role is Role.FIXED:
        return a.value
    own = (seed * 1000003 + zlib.crc32(a.name.encode())) % 2**31
    shape = spec.shape(a)
    if a.role is Role.GIVEN:
        return _turned(resized(a.value, shape), own if seed else 0)
    if a.role is Role.INDEX:
        high = max(1, spec.size(a.high))
        return torch.randint(
            0, high, shape, generator=torch.Generator().manual_seed(own), dtype=getattr(torch, a.dtype)
        )
    dtype = getattr(torch, a.dtype)
    if a.role is Role.PARAMETER:
        values = draw("normal", shape, torch.float64, own) / 2
        values = (values + 0.25 * torch.sign(values) + a.center).to(dtype)
    else:
        values = draw(kind, shape, dtype, own, a.axis)
    if a.positive:
        values = values.abs()
    return values.requires_grad_(a.requires_grad) if a.requires_grad else values


def _turned(value: Tensor, seed: int) -> Tensor:
    """The values turned along every axis, so that a row of a mask keeps as many; a mask that is all alike gets a
    quarter of the other value, but never on its diagonal, so that no row is left without. Seed 0 changes nothing."""
    if not seed or not value.numel():
        return value.clone()
    generator = torch.Generator().manual_seed(seed)
    if value.dtype is torch.bool and value.dim() and bool((value == value.reshape(-1)[0]).all()):
        n = value.shape[-1]
        rows = value.clone().reshape(-1, n)
        diagonal = torch.arange(len(rows))[:, None] % n == torch.arange(n)
        return (rows ^ (~diagonal & (torch.rand(rows.shape, generator=generator) < 0.25))).reshape(value.shape)
    shifts = [int(torch.randint(1, max(2, size), (), generator=generator)) for size in value.shape]
    return value.roll(shifts, tuple(range(value.dim()))) if shifts else value.clone()


def _kinds(gate: str, spec: Spec, seed: int, names: tuple[str, ...], one_at_a_time: bool = False) -> Iterator[Sample]:
    for name in names:
        yield Sample(gate, name, seed, build(spec, seed, name), spec.dims)
    if one_at_a_time:
        data = [a.name for a in spec.arguments if a.role is Role.DATA]
        for name in names:
            for argument in data if len(data) > 1 else ():
                yield Sample(gate, f"{argument}: {name}", seed, build(spec, seed, name, argument), spec.dims)


def _values(spec: Spec, seed: int, thorough_: bool) -> Iterator[Sample]:
    draws = 16 if thorough_ else 8
    for k in range(draws):
        yield Sample("CMP-01", f"normal {k}", seed + k, build(spec, seed + k), spec.dims)
    yield from _kinds("CMP-01", spec, seed, EXTREMES, thorough_)
    longest = max(spec.dims, key=lambda d: spec.dims[d], default=None)
    if longest is not None:
        grown = spec.with_dims({longest: spec.dims[longest] * (8 if thorough_ else 4)})
        yield Sample("CMP-01", f"long {longest}", seed, build(grown, seed), grown.dims)
    for a in spec.arguments:
        if a.role is Role.FIXED:
            continue
        other = build(spec, seed + 7919)
        base = build(spec, seed)
        mixed = tuple(o if b.name == a.name else v for b, o, v in zip(spec.arguments, other, base, strict=True))
        yield Sample("CMP-01", f"only {a.name} changes", seed, mixed, spec.dims)
    if thorough_:
        yield from _kinds("CMP-01", spec, seed, ORDERS + MORE_ORDERS)


def _gradients(spec: Spec, seed: int, thorough_: bool) -> Iterator[Sample]:
    names = ("normal", "shifted", "spike_first") + (ORDERS + MORE_ORDERS if thorough_ else ())
    for k, name in enumerate(dict.fromkeys(names)):
        yield Sample("CMP-02", name, seed + k, build(spec, seed + k, name), spec.dims)


def _shapes(spec: Spec, seed: int, thorough_: bool) -> Iterator[Sample]:
    for label, dims in boundary_shapes(spec.dims, spec.block, thorough=thorough_):
        moved = spec.with_dims(dims)
        yield Sample("CMP-03", label, seed, build(moved, seed), moved.dims)
    base = build(spec, seed)
    for at, a in enumerate(spec.arguments):
        if a.role in (Role.DATA, Role.INDEX):
            for label, view in strided_views(base[at]):
                inputs = (*base[:at], view, *base[at + 1 :])
                yield Sample("CMP-03", f"{a.name} {label}", seed, inputs, spec.dims)


def _orders(gate: str) -> Build:
    def make(spec: Spec, seed: int, thorough_: bool) -> Iterator[Sample]:
        yield from _kinds(gate, spec, seed, ORDERS + MORE_ORDERS if thorough_ else ORDERS, thorough_)
        if thorough_:
            for k in range(1, 4):
                yield from _kinds(gate, spec, seed + k, ORDERS)

    return make


def _nonfinite(spec: Spec, seed: int, thorough_: bool) -> Iterator[Sample]:
    base = build(spec, seed)
    for at, a in enumerate(spec.arguments):
        if a.role is not Role.DATA:
            continue
        for label, placed in placements(
            base[at].detach().movedim(a.axis, -1) if base[at].dim() else base[at], seed, thorough=thorough_
        ):
            back = placed.movedim(-1, a.axis).contiguous() if placed.dim() else placed
            yield Sample("EXC-01", f"{a.name} {label}", seed, (*base[:at], back, *base[at + 1 :]), spec.dims)


def _subnormals(spec: Spec, seed: int, thorough_: bool) -> Iterator[Sample]:
    for k in range(4 if thorough_ else 1):
        yield from _kinds("EXC-02", spec, seed + k, ("subnormal",), True)
    base = build(spec, seed, "subnormal")
    for at, a in enumerate(spec.arguments):
        if a.role is Role.DATA:
            info = torch.finfo(getattr(torch, a.dtype))
            edge = base[at].clone()
            flat = edge.reshape(-1)
            marks = [info.smallest_normal * info.eps, info.smallest_normal * (1 - info.eps), info.smallest_normal]
            for k, value in enumerate(v * s for v in marks for s in (1, -1)):
                if k < flat.numel():
                    flat[k] = value
            yield Sample(
                "EXC-02", f"{a.name} edges", seed, (*base[:at], flat.reshape(edge.shape), *base[at + 1 :]), spec.dims
            )


def _dtypes(spec: Spec, seed: int, thorough_: bool) -> Iterator[Sample]:
    names = ("float32", "float16", "bfloat16") + (("float64",) if thorough_ else ())
    for dtype in names:
        moved = spec.with_dtype(dtype)
        for kind in ("normal", *(ORDERS if thorough_ else ())):
            yield Sample("PRC-01", f"{dtype} {kind}", seed, build(moved, seed, kind), spec.dims)


def _accumulators(spec: Spec, seed: int, thorough_: bool) -> Iterator[Sample]:
    """The first data argument on the lattice, the others ±1 (products stay exact), then the ORD inputs as they are."""
    base = build(spec, seed)
    data = [k for k, a in enumerate(spec.arguments) if a.role is Role.DATA]
    for k in range(4 if thorough_ else 1):
        inputs = list(base)
        generator = torch.Generator().manual_seed(seed + k)
        for order, at in enumerate(data):
            a = spec.arguments[at]
            shape, dtype = spec.shape(a), getattr(torch, a.dtype)
            n = shape[a.axis] if shape else 1
            if n < SMALLEST:
                return
            if order == 0:
                lead = [s for d, s in enumerate(shape) if d != a.axis % len(shape)]
                rows = lattice_rows(max(1, int(torch.tensor(lead).prod()) if lead else 1), n, dtype, generator)
                inputs[at] = rows.reshape(*lead, n).movedim(-1, a.axis).to(dtype).contiguous()
            else:
                inputs[at] = (torch.randint(0, 2, shape, generator=generator) * 2 - 1).to(dtype)
        yield Sample("PRC-02", f"lattice {k}", seed + k, tuple(inputs), spec.dims, exact=True)
    yield from _kinds("PRC-02", spec, seed, ORDERS + MORE_ORDERS if thorough_ else ORDERS)


_SETS: Mapping[str, Build] = {
    "CMP-01": _values,
    "CMP-02": _gradients,
    "CMP-03": _shapes,
    "ORD-01": _orders("ORD-01"),
    "ORD-03": _orders("ORD-03"),
    "EXC-01": _nonfinite,
    "EXC-02": _subnormals,
    "PRC-01": _dtypes,
    "PRC-02": _accumulators,
}


def _set(gate: str) -> Build:
    if gate.upper() not in _SETS:
        raise InputError(f"no inputs are made for gate {gate!r}; there are sets for {', '.join(_SETS)}")
    return _SETS[gate.upper()]


def sample(gate: str, spec: Spec, seed: int = 0) -> Iterator[Sample]:
    """The small set of a gate. Raises ``InputError`` for a gate without one."""
    return _set(gate)(spec, seed, False)


def thorough(gate: str, spec: Spec, seed: int = 0) -> Iterator[Sample]:
    """The thorough set of a gate; it begins with other draws than, but contains the kinds of, the small one."""
    return _set(gate)(spec, seed, True)
