"""A classifier's weight gradient, summed over blocks of tokens in bfloat16."""

import torch
import triton
import triton.language as tl

SOURCE = "apple/ml-cross-entropy #14"
EXPECT = ("ORD-01", "PRC-02")
ALSO = "values"


@triton.jit
def outer(g, x, dw, T, V, H, TILE: tl.constexpr, STEP: tl.constexpr, MENDED: tl.constexpr):
    classes = tl.program_id(0) * TILE + tl.arange(0, TILE)
    hidden = tl.program_id(1) * TILE + tl.arange(0, TILE)
    token = tl.arange(0, STEP)
    kind = tl.float32 if MENDED else dw.dtype.element_ty
    total = tl.zeros((TILE, TILE), kind)
    for t in range(0, T, STEP):
        real = t + token < T
        left = tl.load(g + (t + token)[None, :] * V + classes[:, None], real[None, :] & (classes < V)[:, None], 0.0)
        right = tl.load(x + (t + token)[:, None] * H + hidden[None, :], real[:, None] & (hidden < H)[None, :], 0.0)
        total = (total + tl.dot(left, right, input_precision="ieee")).to(kind)
    mask = (classes < V)[:, None] & (hidden < H)[None, :]
    tl.store(dw + classes[:, None] * H + hidden[None, :], total.to(dw.dtype.element_ty), mask)


class Model(torch.nn.Module):
    def forward(self, g, x):
        return g.t() @ x


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, g, x):
        g, x = g.contiguous(), x.contiguous()
        (t, v), h = g.shape, x.shape[1]
        dw = torch.empty(v, h, dtype=x.dtype, device=x.device)
        grid = (triton.cdiv(v, 16), triton.cdiv(h, 16))
        outer[grid](g, x, dw, t, v, h, TILE=16, STEP=32, MENDED=self.mended)
        return dw


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.rand(128, 24).bfloat16(), torch.rand(128, 16).bfloat16()]


def get_init_inputs():
    return []
