"""Causal attention that counts keys from the first query: right where queries and keys are as many."""

import torch
import triton
import triton.language as tl

SOURCE = "triton-lang/kernels #6"
EXPECT = ("CMP-03",)


@triton.jit
def attend(q, k, v, out, queries, keys, d, scale, KEYS: tl.constexpr, D: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0)
    batch, query = row // queries, row % queries
    key, at = tl.arange(0, KEYS), tl.arange(0, D)
    last = query + keys - queries if MENDED else query
    seen = (key <= last) & (key < keys)
    place = batch * keys * d + key[:, None] * d + at[None, :]
    mask = (key < keys)[:, None] & (at < d)[None, :]
    left = tl.load(q + row * d + at, at < d, 0.0).to(tl.float32)
    s = tl.sum(left[None, :] * tl.load(k + place, mask, 0.0).to(tl.float32), 1) * scale
    s = tl.where(seen, s, -float("inf"))
    e = tl.exp(s - tl.max(s, 0))
    p = tl.where(seen, e / tl.sum(e, 0), 0.0)
    total = tl.sum(p[:, None] * tl.load(v + place, mask, 0.0).to(tl.float32), 0)
    tl.store(out + row * d + at, total, at < d)


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        scores = q @ k.transpose(-1, -2) / 4
        seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).tril(k.shape[1] - q.shape[1])
        return torch.softmax(scores.masked_fill(~seen, -float("inf")), dim=-1) @ v


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        out = torch.empty_like(q)
        batch, queries, d = q.shape
        keys = k.shape[1]
        blocks = {"KEYS": triton.next_power_of_2(max(keys, 16)), "D": triton.next_power_of_2(max(d, 16))}
        attend[(batch * queries,)](q, k, v, out, queries, keys, d, 0.25, **blocks, MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(2, 20, 16) for _ in range(3)]


def get_init_inputs():
    return []
