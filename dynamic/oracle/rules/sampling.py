"""Resizing by weights an axis: bicubic and antialiased forms and their gradients. Torch's decomposition of bicubic
picks cells, so that one coordinate on a border would spoil it. Grids go through ``oracle.sampling``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from kcontract.dynamic.oracle.dtypes import Tensor
from kcontract.dynamic.oracle.registry import rule
from kcontract.dynamic.oracle.rules.algebra import linear
from kcontract.dynamic.oracle.tables import Err

if TYPE_CHECKING:
    from kcontract.dynamic.oracle.mode import BoundMode

STEEPEST = 1.35
"""The largest |w'(t)| of the cubic kernel with a = −0.75, at t = 0.6 (of a = −0.5: 1.2; of a tent: 1)."""


@rule("upsample_bicubic2d_backward", "_upsample_bicubic2d_aa_backward", "_upsample_bilinear2d_aa_backward")
def resized_backward(
    ctx: BoundMode, y: Tensor, g: Tensor, output_size: Any, input_size: Any, corners: bool, *scales: Any
) -> Err:
    """y = W_hᵀ g W_w, see ``separable``."""
    forward = getattr(torch.ops.aten, ctx.current.removesuffix("_backward")).default
    high, wide = _weights(forward, y, input_size[2:], output_size, corners, scales)
    return separable(ctx, y, g, high, wide.t(), (input_size[2], input_size[3]))


@rule("upsample_bicubic2d", "_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa")
def resized(ctx: BoundMode, y: Tensor, x: Tensor, output_size: Any, corners: bool, *scales: Any) -> Err:
    """y = W_h x W_wᵀ, see ``separable``."""
    high, wide = _weights(ctx.function, y, x.shape[2:], output_size, corners, scales)
    return separable(ctx, y, x, high.t(), wide, (x.shape[2], x.shape[3]))


def _weights(forward: Any, like: Tensor, inner: Any, outer: Any, corners: bool, scales: Any) -> list[Tensor]:
    """The weights (inputs, outputs) of the two axes: what the operation makes of unit vectors."""
    found = []
    for axis, (size, out) in enumerate(zip(inner, outer, strict=True)):
        # two columns or rows beside: torch 2.13's antialiased forms mistake the layout of a tensor one wide
        shape, target = ((size, 1, size, 1), [out, 2]) if axis == 0 else ((size, 1, 1, size), [2, out])
        eye = torch.eye(size, dtype=like.dtype, device=like.device).reshape(shape)
        given = [s if k == axis else None for k, s in enumerate(scales)]
        units = eye.repeat((1, 1, 1, 2) if axis == 0 else (1, 1, 2, 1))
        found.append(forward(units, target, corners, *given).select(3 - axis, 0).reshape(size, out))
    return found


def separable(ctx: BoundMode, y: Tensor, x: Tensor, left: Tensor, right: Tensor, sizes: tuple[int, int]) -> Err:
    """y = L x R: |L|c|R| and sqrt(L²i²R²) carried; gamma_2N·|L||x||R| with N the products in a sum; of size s along an
    axis a coordinate errs by 4u·s (see ``movement``), entered twice, over λ, times the steepest slope of the kernel at
    the taps within reach and beside them."""
    slopes = []
    for w, size in ((left, sizes[0]), (right.t(), sizes[1])):
        reach = torch.nn.functional.max_pool2d((w != 0).to(w)[None, None], 3, 1, 1)[0, 0]
        slopes.append(reach.mul_(8 * STEEPEST * ctx.u * size / ctx.lam))
    n = max(2, int((left != 0).sum(1).max()) * int((right != 0).sum(0).max()))
    ctx.record(ctx.current, "gamma_2N·Σ|w||x|", n)
    a, b, size = left.abs(), right.abs(), x.abs()
    c = (a @ size @ b).mul_((ctx.model.factor(2 * n) + n * ctx.model.u_step) / ctx.lam)
    c += slopes[0] @ size @ b + a @ size @ slopes[1].t()
    ctx.alone_of(c, y)
    e = ctx.err(x)
    if e.c is not None:
        c += a @ e.c @ b
    i = None if e.i is None else (a * a @ (e.i * e.i) @ (b * b)).sqrt_()
    und = None if e.und is None else a @ e.und.to(y) @ b > 0
    return linear(ctx, y, [(Err(c, i, und), 1)], ctx.fresh(y, 1.0))
