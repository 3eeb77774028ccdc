"""Logits rounded to bfloat16 by the product and then widened: the loss hardly moves, its terms do."""

import torch
import triton
import triton.language as tl

SOURCE = "linkedin/Liger-Kernel #1432"
EXPECT = ("ORD-01",)
ALSO = "values"


@triton.jit
def loss(x, w, target, out, T, V, H, TILE: tl.constexpr, COLUMNS: tl.constexpr, D: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    column, at = tl.arange(0, COLUMNS), tl.arange(0, D)
    left = tl.load(x + row[:, None] * H + at[None, :], (row < T)[:, None] & (at < H)[None, :], 0.0)
    right = tl.load(w + column[None, :] * H + at[:, None], (column < V)[None, :] & (at < H)[:, None], 0.0)
    logits = tl.dot(left, right, input_precision="ieee")
    if not MENDED:
        logits = logits.to(tl.bfloat16).to(tl.float32)
    logits = tl.where((column < V)[None, :], logits, -float("inf"))
    label = tl.load(target + row, row < T, 0)
    top = tl.max(logits, 1)
    chosen = tl.sum(tl.where(column[None, :] == label[:, None], logits, 0.0), 1)
    tl.store(out + row, top + tl.log(tl.sum(tl.exp(logits - top[:, None]), 1)) - chosen, row < T)


class Model(torch.nn.Module):
    def forward(self, x, w, target):
        return torch.nn.functional.cross_entropy(x.float() @ w.float().t(), target, reduction="none")


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x, w, target):
        x, w, target = x.contiguous(), w.contiguous(), target.contiguous()
        (t, h), v = x.shape, w.shape[0]
        out = torch.empty(t, dtype=torch.float32, device=x.device)
        blocks = {"COLUMNS": triton.next_power_of_2(max(v, 16)), "D": triton.next_power_of_2(max(h, 16))}
        loss[(triton.cdiv(t, 16),)](x, w, target, out, t, v, h, TILE=16, **blocks, MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    x, w = torch.randn(24, 32) / 4, torch.randn(48, 32) / 4
    return [x.bfloat16(), w.bfloat16(), torch.randint(0, 48, (24,))]


def get_init_inputs():
    return []
