"""A chunk's place is a product of four 32-bit numbers, (batch * T * H + head) * K: it wraps past 2^31."""

import torch
import triton
import triton.language as tl

SOURCE = "fla-org/flash-linear-attention #1080"
EXPECT = ("CMP-03",)
MISSED = "it takes 8 GiB; bounds for all sizes are the static side's to prove"


@triton.jit
def decay(x, out, T, H, K, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0)
    batch, head = row // H, row % H
    if MENDED:
        batch = batch.to(tl.int64)
    base = (batch * T * H + head) * K
    at = tl.arange(0, BLOCK)
    state = tl.zeros((BLOCK,), tl.float32)
    for _ in range(T):
        v = tl.load(x + base + at, at < K, 0.0).to(tl.float32)
        state = 0.5 * state + v
        tl.store(out + base + at, state, at < K)
        base += H * K


class Model(torch.nn.Module):
    def forward(self, x):
        state, states = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            state = 0.5 * state + x[:, t]
            states.append(state)
        return torch.stack(states, 1)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        b, t, h, k = x.shape
        block = triton.next_power_of_2(max(k, 16))
        decay[(b * h,)](x, out, t, h, k, BLOCK=block, MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(2, 8, 3, 20)]


def get_init_inputs():
    return []
