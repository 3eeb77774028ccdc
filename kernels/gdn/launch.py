"""Allocates buffers and launches the Triton kernels: two launches forward, three backward, one more when a sequence is split.

Nothing here waits for the GPU or reads a tensor's values, so a call can be captured in a CUDA graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kcontract.kernels.gdn.channelwise import gradients_channel, prepare_channel
from kcontract.kernels.gdn.gradients import gradients_scalar
from kcontract.kernels.gdn.prepare import prepare_scalar
from kcontract.kernels.gdn.problem import CHUNK, Problem
from kcontract.kernels.gdn.scan import scan

Tensor = torch.Tensor

SCAN = {"BV": 64, "STAGES": 2, "num_warps": 4}
GRAD = {"BK": 64, "BV": 64, "STAGES": 2, "num_warps": 4}
GRAD_CHANNEL = {"BK": 64, "BV": 64, "STAGES": 1, "num_warps": 8}
PREP = {"num_warps": 4}
PREP_CHANNEL = {"num_warps": 8}

SEGMENT = 8
"""Fewest chunks worth a segment of their own when a sequence is split: below, composing segments costs more than it saves."""


@dataclass(frozen=True)
class Chunks:
    """Where each chunk lies. Without ``cu_seqlens`` the three tensors are placeholders that no kernel reads."""

    count: int
    per_sequence: int
    cu_seqlens: Tensor
    sequence: Tensor
    start: Tensor
    varlen: bool


def locate(p: Problem, like: Tensor, cu_seqlens: Tensor | None) -> Chunks:
    """Number the chunks. For packed sequences on the device, up to the bound ceil(T / CHUNK) + N; unused ones get sequence N."""
    per = -(-p.T // CHUNK)
    if cu_seqlens is None:
        return Chunks(p.B * per, per, like, like, like, False)
    count = per + p.N
    chunks = (cu_seqlens.diff() + CHUNK - 1) // CHUNK
    start = torch.nn.functional.pad(chunks.cumsum(0), (1, 0)).to(torch.int32)
    index = torch.arange(count, device=like.device, dtype=torch.int32)
    sequence = torch.searchsorted(start[1:], index, right=True, out_int32=True)
    return Chunks(count, per, cu_seqlens, sequence, start, True)


@dataclass(frozen=True)
class Prepared:
    """What the scans multiply with, ``[chunk, HV, ...]``; names as in `NOTES.md`. A is in the dtype of k, `square` as it is used.

    The rows k and Kg and the decay GC are those of a channel-wise gate; with a scalar gate k is the input, and the scans derive
    the other two from ga.
    """

    ga: Tensor
    A: Tensor
    square: Tensor
    P: Tensor
    Qg: Tensor
    k: Tensor
    Kg: Tensor
    GC: Tensor


def prepare(
    p: Problem, c: Chunks, q: Tensor, k: Tensor, g: Tensor, beta: Tensor, kept: tuple[Tensor, Tensor] | None = None
) -> Prepared:
    """First launch. ``kept`` is (ga, A) of the forward; without it they are computed.

    In the forward A and P multiply in float32 as tf32: rounded to bfloat16 they alone would cost half of the error allowed in o.
    """
    tiles, solve = (c.count, p.HV), kept is None
    float32 = g.new_empty(0, dtype=torch.float32)
    ga, A = kept or (float32.new_empty(*tiles, 0 if p.channelwise else CHUNK), k.new_empty(*tiles, CHUNK, CHUNK))
    square, P = (float32.new_empty(A.shape), float32.new_empty(A.shape)) if solve else (A, torch.empty_like(A))
    rows = (*tiles, CHUNK, p.K)
    place = (c.cu_seqlens, c.sequence, c.start, p.scale, p.T, c.per_sequence, p.N, p.H, p.HV)
    constants = {"K": p.K, "C": CHUNK, "SOLVE": solve, "VARLEN": c.varlen, "PRECISION": precision(k)}
    if p.channelwise:
        Qg, Kg, Kr = (k.new_empty(rows) for _ in range(3))
        out = Prepared(ga, A, square, P, Qg, Kr, Kg, GC=float32.new_empty(*tiles, p.K))
        prepare_channel[(p.HV, c.count)](
            q, k, g, beta, A, square, P, Qg, Kg, Kr, out.GC, *place, **constants, **PREP_CHANNEL
        )
    else:
        Qg = ga if solve else k.new_empty(rows)
        out = Prepared(ga, A, square, P, Qg, k, Kg=k, GC=ga)
        prepare_scalar[(p.HV, c.count)](q, k, g, beta, ga, A, square, P, Qg, *place, **constants, **PREP)
    return out


def precision(x: Tensor) -> str:
    """How products of float32 operands are computed; it does not matter for 16-bit ones."""
    return "tf32x3" if x.dtype == torch.float32 else "tf32"


def segments(p: Problem, c: Chunks, programs: int, like: Tensor) -> int:
    """Into how many pieces to cut each sequence so that the scans fill the device: 1 when heads alone do.

    Composing segments multiplies by K x K float32 matrices, rounded to tf32, in shared memory: too coarse for float32 inputs, too
    large for K = 256.
    """
    device = like.device
    if device.type != "cuda" or like.dtype == torch.float32 or p.K > 128:
        return 1
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    return max(1, min(processors // max(programs, 1), c.per_sequence // SEGMENT))


def run_scan(
    p: Problem, c: Chunks, x: Prepared, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, nseg: int, *,
    o: Tensor | None = None, h0: Tensor | None = None, ht: Tensor | None = None,
    do: Tensor | None = None, h: Tensor | None = None, dh: Tensor | None = None, Vn: Tensor | None = None,
    KS: Tensor | None = None, Y: Tensor | None = None, dv: Tensor | None = None, dht: Tensor | None = None,
    dh0: Tensor | None = None,
) -> None:  # fmt: skip
    """The forward scan into o and ht, or with ``do`` both scans into h, dh, Vn, KS, Y, dv and dh0."""
    back = do is not None
    summary = None
    if nseg > 1:
        summary = x.ga.new_empty(2 if back else 1, p.N * p.HV, nseg, p.K, p.V + p.K)
    kept = [x.ga if t is None else t for t in (h, dh, Vn, KS, Y, o, dv, h0, ht, dht, dh0, summary)]
    for final in [False, True] if nseg > 1 else [True]:
        rows = p.V if final else p.V + p.K
        BV = scan_rows(p, nseg)
        scan[(rows // BV, p.N * p.HV, nseg * (2 if back else 1))](
            q, x.k, v, do if back else v, beta, x.ga, x.square, x.P, x.Qg, x.Kg, x.GC, *kept,
            c.cu_seqlens, c.start, p.scale, p.T, c.per_sequence, p.N, p.H, p.HV, p.V,
            K=p.K, C=CHUNK, BV=BV, NSEG=nseg, VARLEN=c.varlen, CHANNEL=p.channelwise,
            HAS_H0=h0 is not None, WANT_HT=ht is not None, HAS_DHT=dht is not None, WANT_DH0=dh0 is not None,
            BACKWARD=back, SUMMARY=not final, PRECISION=precision(k),
            STAGES=SCAN["STAGES"] if p.K * k.element_size() <= 256 else 1, num_warps=BV // 16,
        )  # fmt: skip


def scan_rows(p: Problem, nseg: int) -> int:
    """Rows of V a program of the scan: 128 share each tile among more threads, 64 give twice the programs."""
    return SCAN["BV"]


def forward(
    p: Problem, c: Chunks, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, h0: Tensor | None, want_ht: bool
) -> tuple[Tensor, Tensor | None, Prepared]:
    """Return o, the final state (float32) and what the backward keeps."""
    x = prepare(p, c, q, k, g, beta)
    o = torch.empty_like(v)
    ht = x.ga.new_empty(p.N, p.HV, p.K, p.V) if want_ht else None
    run_scan(p, c, x, q, k, v, beta, segments(p, c, p.N * p.HV * (p.V // 64), v), o=o, h0=h0, ht=ht)
    return o, ht, x


def backward(
    p: Problem, c: Chunks, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, ga: Tensor, A: Tensor,
    h0: Tensor | None, do: Tensor, dht: Tensor | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return dq, dk, dv, dg (float32), dbeta (float32), dh0 (float32 or None)."""
    x = prepare(p, c, q, k, g, beta, (ga, A))
    tiles = (c.count, p.HV)
    h, dh = k.new_empty(*tiles, p.V, p.K), k.new_empty(*tiles, p.V, p.K)
    Vn, KS, Y = (k.new_empty(*tiles, CHUNK, p.V) for _ in range(3))
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    dh0 = None if h0 is None else torch.empty_like(h0, dtype=torch.float32)
    nseg = segments(p, c, 2 * p.N * p.HV * (p.V // 64), v)
    run_scan(p, c, x, q, k, v, beta, nseg, h0=h0, do=do, h=h, dh=dh, Vn=Vn, KS=KS, Y=Y, dv=dv, dht=dht, dh0=dh0)
    dg, db = torch.empty_like(g, dtype=torch.float32), torch.empty_like(beta, dtype=torch.float32)
    sums = (
        (ga, ga)
        if p.HV == p.H
        else (torch.empty_like(q, dtype=torch.float32), torch.empty_like(k, dtype=torch.float32))
    )
    place = (c.cu_seqlens, c.sequence, c.start, p.scale, p.T, c.per_sequence, p.N, p.H, p.V)
    constants = {"GROUP": p.HV // p.H, "K": p.K, "C": CHUNK, "VARLEN": c.varlen, "PRECISION": precision(k)}
    if p.channelwise:
        gradients_channel[(p.H, c.count)](
            q, k, v, g, beta, do, h, dh, Vn, KS, Y, dq, dk, *sums, dg, db, *place, **constants, **GRAD_CHANNEL
        )
    else:
        gradients_scalar[(p.H, c.count)](
            q, k, v, beta, ga, do, h, dh, Vn, KS, Y, dq, dk, *sums, dg, db, *place, **constants, **GRAD
        )
    return dq, dk, dv, dg, db, dh0
