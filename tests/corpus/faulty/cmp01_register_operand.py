"""The gradients of q and k in one chunk of linear attention. ``ModelNew`` hands its masked scores, as they lie in
registers, to a product of 64x32x64: for that the ptxas of Triton 3.6.0 (12.8) takes the upper half of the descriptors
of the second to fourth slice of k from their lower half, and Hopper reads k elsewhere. The PTX is right."""

import torch
import triton
import triton.language as tl

SOURCE = "fla-org/flash-linear-attention #640"
EXPECT = ("CMP-01",)
ALSO = "values"
CONTRACT = {"ranges": {"length": (0, 64), "length2": (0, 128)}}
ENGINE = "gpu"
CAPABILITY = (9, 0)
TRITON = "3.6."


@triton.jit
def gradients(
    q, k, v, do, h, dh, dq, dk, T, K, V, BT: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, MENDED: tl.constexpr
):
    i = tl.program_id(1).to(tl.int64)
    t = tl.arange(0, BT)
    d = tl.program_id(0) * BK + tl.arange(0, BK)
    c = tl.arange(0, BV)
    rows, columns, depth = t < T, d < K, c < V
    wide = rows[:, None] & depth[None, :]
    narrow = rows[:, None] & columns[None, :]
    state = depth[:, None] & columns[None, :]
    bv = tl.load(v + (i * T + t)[:, None] * V + c[None, :], wide, 0.0)
    bdo = tl.load(do + (i * T + t)[:, None] * V + c[None, :], wide, 0.0)
    bh = tl.load(h + (i * V + c)[:, None] * K + d[None, :], state, 0.0)
    bdh = tl.load(dh + (i * V + c)[:, None] * K + d[None, :], state, 0.0)
    s = tl.dot(bdo, tl.trans(bv), input_precision="ieee")
    gq = tl.dot(bdo, bh, input_precision="ieee")
    gk = tl.dot(bv, bdh, input_precision="ieee")
    bq = tl.load(q + (i * T + t)[:, None] * K + d[None, :], narrow, 0.0)
    bk = tl.load(k + (i * T + t)[:, None] * K + d[None, :], narrow, 0.0)
    s = tl.where((t[:, None] >= t[None, :]) & rows[:, None], s, 0.0).to(bk.dtype)
    if MENDED:
        gq += tl.trans(tl.dot(tl.trans(bk), tl.trans(s), input_precision="ieee"))
    else:
        gq = tl.dot(s, bk, gq, input_precision="ieee")
    gk = tl.dot(tl.trans(s), bq, gk, input_precision="ieee")
    tl.store(dq + (i * T + t)[:, None] * K + d[None, :], gq, narrow)
    tl.store(dk + (i * T + t)[:, None] * K + d[None, :], gk, narrow)


class Model(torch.nn.Module):
    def forward(self, qk, vo, states):
        (q, k), (v, do), (h, dh) = qk.unbind(1), vo.unbind(1), states.unbind(1)
        s = torch.tril(do @ v.mT)
        return do @ h + s @ k, v @ dh + s.mT @ q


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, qk, vo, states):
        q, k, v, do, h, dh = (x.contiguous() for pair in (qk, vo, states) for x in pair.unbind(1))
        B, T, K, V = *q.shape, v.shape[2]
        if T > 64 or V > 128:
            raise ValueError(f"a chunk of at most 64 by 128, not {T} by {V}")
        dq, dk = torch.empty_like(q), torch.empty_like(k)
        grid = (triton.cdiv(K, 32), B)
        if q.numel():
            gradients[grid](q, k, v, do, h, dh, dq, dk, T, K, V, BT=64, BK=32, BV=128, MENDED=self.mended)
        return dq, dk


class Repaired(ModelNew):
    mended = True


def get_inputs():
    shapes = ((4, 2, 64, 32), (4, 2, 64, 128), (4, 2, 128, 32))
    qk, vo, states = (torch.randn(shape, dtype=torch.bfloat16) for shape in shapes)
    return [qk * 1e-5, vo, states]


def get_init_inputs():
    return []
