"""Causal attention that counts keys from the first query: right where queries and keys are as many."""

import torch
import triton
import triton.language as tl

SOURCE = "triton-lang/kernels #6"
EXPECT = ("CMP-03",)
ALSO = ("CMP-01",)


@triton.jit
def attend(
    q,
    k,
    v,
    out,
    queries,
    keys,
    d,
    dv,
    KEYS: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
    MENDED: tl.constexpr,
):
    row = tl.program_id(0)
    batch, query = row // queries, row % queries
    key, at, to = tl.arange(0, KEYS), tl.arange(0, D), tl.arange(0, DV)
    last = query + keys - queries if MENDED else query
    seen = (key <= last) & (key < keys)
    place = batch * keys * d + key[:, None] * d + at[None, :]
    mask = (key < keys)[:, None] & (at < d)[None, :]
    left = tl.load(q + row * d + at, at < d, 0.0).to(tl.float32)
    s = tl.sum(left[None, :] * tl.load(k + place, mask, 0.0).to(tl.float32), 1) * 0.25
    s = tl.where(seen, s, -float("inf"))
    e = tl.exp(s - tl.max(s, 0))
    p = e / tl.sum(e, 0)
    place = batch * keys * dv + key[:, None] * dv + to[None, :]
    values = tl.load(v + place, (key < keys)[:, None] & (to < dv)[None, :], 0.0).to(tl.float32)
    tl.store(out + row * dv + to, tl.sum(p[:, None] * values, 0), to < dv)


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        scores = q @ k.transpose(-1, -2) / 4
        seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).tril(k.shape[1] - q.shape[1])
        return torch.softmax(scores.masked_fill(~seen, -float("inf")), dim=-1) @ v


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        (batch, queries, d), (_, keys, dv) = q.shape, v.shape
        out = torch.empty(batch, queries, dv, dtype=q.dtype, device=q.device)
        blocks = {name: triton.next_power_of_2(max(n, 16)) for name, n in (("KEYS", keys), ("D", d), ("DV", dv))}
        attend[(batch * queries,)](q, k, v, out, queries, keys, d, dv, **blocks, MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(2, 12, 16) for _ in range(3)]


def get_init_inputs():
    return []
