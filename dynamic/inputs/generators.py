"""Values that show faults: one function a kind, seeded, already quantised to the dtype the kernel gets.

Each kind is a distribution over one tensor with a summation axis. A plain normal draw shows neither a one-pass
variance nor a dropped eps, nor a 16-bit sum of cancelling terms; hence the others. No kind knows a kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kcontract.errors import InputError

Tensor = Any
Draw = Callable[[tuple[int, ...], Any, Any], Tensor]
"""draw(shape, dtype, generator) -> float64 values; the last axis is the one that is summed."""

_KINDS: dict[str, Draw] = {}


def _kind(fn: Draw) -> Draw:
    _KINDS[fn.__name__] = fn
    return fn


def normal_draw(shape: tuple[int, ...], generator: Any) -> Tensor:
    """Standard normal float64 values."""
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@_kind
def normal(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """Standard normal."""
    return normal_draw(shape, generator)


@_kind
def uniform(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """Uniform in [0, 1): all terms of one sign, the common benchmark input."""
    return torch.rand(shape, generator=generator, dtype=torch.float64)


@_kind
def signs(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """Random signs on sizes in [1, 2): no term is negligible, sums are of size sqrt(N)."""
    size = 1 + torch.rand(shape, generator=generator, dtype=torch.float64)
    return size * (torch.randint(0, 2, shape, generator=generator) * 2 - 1)


@_kind
def cancelling(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """Pairs x, −x in a random order beside small residuals: the sum is tiny, the partial sums are not."""
    n = shape[-1] if shape else 1
    if n < 4:
        return normal_draw(shape, generator)
    pairs = n // 3
    big = normal_draw((*shape[:-1], pairs), generator) * 16
    rest = normal_draw((*shape[:-1], n - 2 * pairs), generator) / 16
    values = torch.cat([big.to(dtype).double(), -big.to(dtype).double(), rest], -1)
    order = torch.rand(values.shape, generator=generator, dtype=torch.float64).argsort(-1)
    return values.gather(-1, order)


@_kind
def wide(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """Sizes log-uniform over 2^-10 … 2^6 with random signs."""
    power = torch.rand(shape, generator=generator, dtype=torch.float64) * 16 - 10
    return torch.exp2(power) * (torch.randint(0, 2, shape, generator=generator) * 2 - 1)


@_kind
def large_mean(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """Mean a thousand deviations away (128 in bfloat16 and narrower, whose grid holds no more)."""
    mean = 1000.0 if torch.finfo(dtype).eps < 2.0**-8 else 128.0
    return normal_draw(shape, generator) + mean


@_kind
def tiny_scale(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """Normal times 2^-10: a dropped eps shows."""
    return normal_draw(shape, generator) * 2.0**-10


@_kind
def spike_first(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """Normal / 8 with one large value in the first place of the axis: later terms must not be swallowed."""
    values = normal_draw(shape, generator) / 8
    if values.dim() and values.numel():
        values[..., 0] = 512.0
    return values


@_kind
def spike_last(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """Normal with one large value in the last place of the axis: a dropped last element shows."""
    values = normal_draw(shape, generator)
    if values.dim() and values.numel():
        values[..., -1] = 64.0
    return values


@_kind
def sparse(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """About 16 non-zero terms a sum: the bound stays small however long the axis."""
    values = normal_draw(shape, generator)
    share = min(1.0, 16.0 / max(shape[-1] if shape else 1, 1))
    kept = torch.rand(shape, generator=generator, dtype=torch.float64) < share
    if values.dim() and values.numel():
        kept[..., -1] = True
    return values * kept


@_kind
def shifted(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """Normal less its mean along the axis: sums and means lie near 0, where a relative error shows."""
    values = normal_draw(shape, generator)
    return values - values.mean(-1, keepdim=True) if values.dim() else values


@_kind
def ascending(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """Normal, sorted along the axis: prefixes are far larger than the sum."""
    values = normal_draw(shape, generator)
    return values.sort(-1).values if values.dim() else values


@_kind
def alternating(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """Sizes near 4 with strictly alternating signs."""
    values = normal_draw(shape, generator).abs() / 4 + 4
    return values * (1 - 2 * (torch.arange(shape[-1] if shape else 1) % 2).to(values))


@_kind
def steep(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """Normal times 8, less the maximum along the axis: a softmax of it has few terms that count, its logarithm is
    near 0."""
    values = normal_draw(shape, generator) * 8
    return values - values.amax(-1, keepdim=True) if values.dim() and values.numel() else values


@_kind
def peaked(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """About 16 terms a row in (−4, 0], the rest between −80 and −40: however long the axis, few terms of a softmax
    count, and its logarithms differ widely."""
    near = torch.rand(shape, generator=generator, dtype=torch.float64) * -4
    far = -40 - 40 * torch.rand(shape, generator=generator, dtype=torch.float64)
    share = min(1.0, 16.0 / max(shape[-1] if shape else 1, 1))
    kept = torch.rand(shape, generator=generator, dtype=torch.float64) < share
    if kept.dim() and kept.numel():
        kept[..., 0] = True
    return torch.where(kept, near, far)


@_kind
def constant_rows(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """One value repeated along the axis: every addition may round the same way."""
    lead = (*shape[:-1], 1) if shape else ()
    return normal_draw(lead, generator).expand(shape).clone()


@_kind
def nearly_constant(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """256 throughout but for one 255 a row: the variance is far below the mean square's rounding error."""
    values = torch.full(shape, 256.0, dtype=torch.float64)
    if values.dim() and values.numel():
        at = torch.randint(0, shape[-1], (*shape[:-1], 1), generator=generator)
        values.scatter_(-1, at, 255.0)
    return values


@_kind
def mirrored(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """x in the first half of the axis, −x and a little in the second: halves summed apart cancel at the end."""
    values = normal_draw(shape, generator) / 64
    half = (shape[-1] if shape else 1) // 2
    if half:
        first = normal_draw((*shape[:-1], half), generator).to(dtype).double()
        values[..., :half] = first
        values[..., half : 2 * half] -= first
    return values


@_kind
def repeated(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """The same normal values in both halves of the axis: what ``mirrored`` is to be multiplied with."""
    values = normal_draw(shape, generator)
    half = (shape[-1] if shape else 1) // 2
    if half:
        values[..., half : 2 * half] = values[..., :half].clone()
    return values


@_kind
def decay(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """Nothing above 0: 1e8 … 3e8 (1e3 … 3e3 in float16) in a stretch that begins anywhere and ends up to 24 places
    before the end, below 1e-3 elsewhere. A difference of two of the last prefix sums has lost every digit, and its
    sign."""
    size = 1e3 if torch.finfo(dtype).max < 1e6 else 1e8
    drawn = torch.rand((3, *shape), generator=generator, dtype=torch.float64)
    n = shape[-1] if shape else 1
    end = n - min(24, n // 2)
    at = torch.arange(n)
    large = (at >= (drawn[2][..., :1] * end if shape else 0)) & (at < end)
    return -torch.where(large, size * (1 + 2 * drawn[0]), drawn[1] * 1e-3)


@_kind
def exponents(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """Powers of two of these lie in the subnormal range of the dtype."""
    info = torch.finfo(dtype)
    top = torch.tensor(info.smallest_normal, dtype=torch.float64).log2()
    bits = -torch.tensor(info.eps, dtype=torch.float64).log2()
    return top - bits * torch.rand(shape, generator=generator, dtype=torch.float64)


@_kind
def logarithms(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """Exponentials of these lie in the subnormal range of the dtype."""
    return exponents(shape, dtype, generator) * 0.6931471805599453


@_kind
def roots(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """Products of two of these lie in the subnormal range of the dtype, both signs."""
    size = torch.exp2(exponents(shape, dtype, generator) / 2)
    return size * (torch.randint(0, 2, shape, generator=generator) * 2 - 1)


@_kind
def zeros(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """All zero."""
    return torch.zeros(shape, dtype=torch.float64)


@_kind
def huge(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """Normal times 1e6 (times 1e3 in float16, whose largest value is 65504)."""
    return normal_draw(shape, generator) * (1e3 if torch.finfo(dtype).max < 1e6 else 1e6)


@_kind
def small(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """Normal times 1e-6."""
    return normal_draw(shape, generator) * 1e-6


@_kind
def subnormal(shape: tuple[int, ...], dtype: Any, generator: Any) -> Tensor:
    """Spread over the whole subnormal range of the dtype, both signs."""
    info = torch.finfo(dtype)
    step, top = info.smallest_normal * info.eps, info.smallest_normal
    power = torch.rand(shape, generator=generator, dtype=torch.float64)
    size = step * (top / step) ** power
    return size * (torch.randint(0, 2, shape, generator=generator) * 2 - 1)


def kinds() -> tuple[str, ...]:
    """Names of all kinds of values."""
    return tuple(_KINDS)


def draw(kind: str, shape: tuple[int, ...], dtype: Any, seed: int, axis: int = -1) -> Tensor:
    """A tensor of that kind in ``dtype``; ``axis`` is the one a kernel sums over. 8-bit types saturate. Raises
    ``InputError`` for an unknown kind."""
    if kind not in _KINDS:
        raise InputError(f"no kind of input {kind!r}; the kinds are {', '.join(_KINDS)}")
    generator = torch.Generator().manual_seed(seed)
    along = axis % len(shape) if shape else 0
    moved = (*(s for k, s in enumerate(shape) if k != along), *shape[along : along + 1])
    values = _KINDS[kind](moved, dtype, generator)
    if dtype.itemsize == 1:
        values = values.clamp(-torch.finfo(dtype).max, torch.finfo(dtype).max)
    return values.to(dtype) if along >= len(shape) - 1 else values.movedim(-1, axis).to(dtype).contiguous()
