"""Attention weights in float32 times values in the input's type: with 16-bit inputs it does not compile."""

import torch
import triton
import triton.language as tl

SOURCE = "state-spaces/mamba #868"
EXPECT = ("PRC-01",)


@triton.jit
def mix(s, v, out, rows, T, D, KEYS: tl.constexpr, DIM: tl.constexpr, MENDED: tl.constexpr):
    row, key, at = tl.arange(0, 16), tl.arange(0, KEYS), tl.arange(0, DIM)
    row += tl.program_id(0) * 16
    scores = tl.load(s + row[:, None] * T + key[None, :], (row < rows)[:, None] & (key < T)[None, :], 0.0).to(
        tl.float32
    )
    weights = scores * scores
    values = tl.load(v + key[:, None] * D + at[None, :], (key < T)[:, None] & (at < D)[None, :], 0.0)
    if MENDED:
        values = values.to(tl.float32)
    total = tl.dot(weights, values, input_precision="ieee")
    mask = (row < rows)[:, None] & (at < D)[None, :]
    tl.store(out + row[:, None] * D + at[None, :], total, mask)


class Model(torch.nn.Module):
    def forward(self, s, v):
        return ((s * s).float() @ v.float()).to(v.dtype)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, s, v):
        s, v = s.contiguous(), v.contiguous()
        rows, (t, d) = s.shape[0], v.shape
        out = torch.empty(rows, d, dtype=v.dtype, device=v.device)
        blocks = {"KEYS": triton.next_power_of_2(max(t, 16)), "DIM": triton.next_power_of_2(max(d, 16))}
        mix[(triton.cdiv(rows, 16),)](s, v, out, rows, t, d, **blocks, MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(24, 24), torch.randn(24, 20)]


def get_init_inputs():
    return []
