"""Allocates buffers and launches the kernels: two launches forward; backward two on Hopper (three with grouped heads),
three elsewhere; one more where a sequence is split.

Nothing here waits for the GPU or reads a tensor's values, so a call can be captured in a CUDA graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from kcontract.kernels.gdn.channelwise import gradients_channel, prepare_channel
from kcontract.kernels.gdn.gradients import gradients_scalar
from kcontract.kernels.gdn.hopper_gradients import backward_gradients, sum_of_heads
from kcontract.kernels.gdn.hopper_scan import backward_scans
from kcontract.kernels.gdn.prepare import prepare_scalar
from kcontract.kernels.gdn.problem import CHUNK, Problem
from kcontract.kernels.gdn.scan import scan

SEGMENT = 8
"""Fewest chunks worth a segment of their own when a sequence is split: below, composing segments costs more than it
saves.
"""


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
    """Number the chunks. For packed sequences on the device, up to the bound ceil(T / CHUNK) + N; unused ones get
    sequence N.
    """
    per = -(-p.T // CHUNK)
    if cu_seqlens is None:
        return Chunks(p.B * per, per, like, like, like, False)
    count = per + p.N
    chunks = (cu_seqlens.diff() + CHUNK - 1) // CHUNK
    start = torch.nn.functional.pad(chunks.cumsum(0), (1, 0)).to(torch.int32)
    index = torch.arange(count, device=like.device, dtype=torch.int32)
    sequence = torch.searchsorted(start[1:], index, right=True, out_int32=True)
    return Chunks(count, per, cu_seqlens, sequence, start, True)


class Kept(NamedTuple):
    """What the backward takes over from the forward: ga and A. On Hopper N in place of A (A = I + beta N), P in 16 bit
    and rows, the vectors Gam, r, beta and ga: 9 KB more a chunk and head.
    """

    ga: Tensor
    A: Tensor
    P: Tensor | None
    rows: Tensor | None


@dataclass(frozen=True)
class Prepared:
    """What the scans multiply with, ``[chunk, HV, ...]``; names as in `NOTES.md`. A is in the dtype of k, `square` as
    it is used.

    The rows k and Kg and the decay GC are those of a channel-wise gate; with a scalar gate k is the input, and the
    scans derive the other two from ga.
    """

    ga: Tensor
    A: Tensor
    square: Tensor
    P: Tensor
    Qg: Tensor
    k: Tensor
    Kg: Tensor
    GC: Tensor
    kept: Kept


def prepare(p: Problem, c: Chunks, q: Tensor, k: Tensor, g: Tensor, beta: Tensor, kept: Kept | None = None) -> Prepared:
    """First launch. ``kept`` is that of the forward; without it, it is computed.

    In the forward A and P multiply in float32 as tf32: rounded to bfloat16 they alone would cost half of the error
    allowed in o.
    """
    tiles, solve = (c.count, p.HV), kept is None
    float32 = g.new_empty(0, dtype=torch.float32)
    if kept is None:
        hopper = on_hopper(p, k)
        kept = Kept(
            float32.new_empty(*tiles, 0 if p.channelwise else CHUNK),
            k.new_empty(*tiles, CHUNK, CHUNK),
            k.new_empty(*tiles, CHUNK, CHUNK) if hopper else None,
            float32.new_empty(*tiles, 4, CHUNK) if hopper else None,
        )
    ga, A = kept.ga, kept.A
    square, P = (float32.new_empty(A.shape), float32.new_empty(A.shape)) if solve else (A, torch.empty_like(A))
    rows = (*tiles, CHUNK, p.K)
    place = (c.cu_seqlens, c.sequence, c.start, p.scale, p.T, c.per_sequence, p.N, p.H, p.HV)
    # With a gate a channel, 128 columns of float32 take 131,072 bytes of shared memory, more than sm_120 has.
    small = k.element_size() == 4 and describe(k.device).major == 12
    sizes = {"K": p.K, "C": CHUNK, "BK": min(p.K, 64 if small else 128)}
    constants = {**sizes, "SOLVE": solve, "VARLEN": c.varlen, "PRECISION": precision(k)}
    if p.channelwise:
        Kg, Kr = (k.new_empty(rows) for _ in range(2))
        Qg = float32.new_empty(rows) if solve else k.new_empty(rows)
        out = Prepared(ga, A, square, P, Qg, Kr, Kg, float32.new_empty(*tiles, p.K), kept)
        prepare_channel[(p.HV, c.count)](
            q, k, g, beta, A, square, P, Qg, Kg, Kr, out.GC, *place, **constants, num_warps=8
        )
    else:
        Qg = ga if solve else k.new_empty(rows)
        out = Prepared(ga, A, square, P, Qg, k, k, ga, kept)
        extra = [ga if t is None else t for t in (kept.P, kept.rows)]
        prepare_scalar[(p.HV, c.count)](
            q, k, g, beta, ga, A, square, P, *extra, Qg, *place, **constants, KEEP=kept.P is not None, num_warps=4
        )
    return out


def precision(x: Tensor) -> str:
    """How products of float32 operands are computed; it does not matter for 16-bit ones."""
    return "tf32x3" if x.dtype == torch.float32 else "tf32"


@dataclass(frozen=True)
class Device:
    """What a plan depends on: multiprocessors, bytes of shared memory a block, and compute capability (9, 10, 12)."""

    processors: int
    shared_memory: int
    major: int


def describe(device: torch.device) -> Device:
    x = torch.cuda.get_device_properties(device)
    return Device(x.multi_processor_count, x.shared_memory_per_block_optin, x.major)


def on_hopper(p: Problem, k: Tensor) -> bool:
    """Whether the backward is that of `hopper_scan` and `hopper_gradients`."""
    return not p.channelwise and p.K == p.V == 128 and k.element_size() == 2 and describe(k.device).major == 9


@dataclass(frozen=True)
class Plan:
    """How a scan is spread: rows of V a program, segments a sequence, and chunks in flight."""

    rows: int
    segments: int
    stages: int


def plan(p: Problem, c: Chunks, directions: int, k: Tensor) -> Plan:
    """128 rows when heads alone fill a Hopper: two warpgroups then share each tile. Else 64, and sequences cut into
    segments.

    128 rows would take 544 to 576 columns of Tensor Memory, more than there are. Composing segments multiplies by K x K
    float32 matrices, rounded to tf32, in shared memory: too coarse for float32 inputs, too large for K = 256 and for
    sm_120. From sm_100 on, float32 or K = 256 gets tiles of 32 rows, both together of 16: see `scan`.
    """
    heads, device = directions * p.N * p.HV, describe(k.device)
    small = k.element_size() == 2 and p.K <= 128 and device.shared_memory > 200_000
    if not small:
        wide = (k.element_size() == 4) + (p.K > 128) if device.major >= 10 else 0
        return Plan(64 >> wide, 1, 1)
    if device.major == 9 and p.V >= 128 and heads * (p.V // 128) >= device.processors:
        return Plan(128, 1, 2)
    return Plan(64, max(1, min(device.processors // (heads * (p.V // 64)), c.per_sequence // SEGMENT)), 2)


def run_scan(
    p: Problem, c: Chunks, x: Prepared, q: Tensor, v: Tensor, beta: Tensor, *,
    o: Tensor | None = None, h0: Tensor | None = None, ht: Tensor | None = None,
    do: Tensor | None = None, h: Tensor | None = None, dh: Tensor | None = None, Vn: Tensor | None = None,
    KS: Tensor | None = None, Y: Tensor | None = None, dv: Tensor | None = None, dht: Tensor | None = None,
    dh0: Tensor | None = None,
) -> None:  # fmt: skip
    """The forward scan into o and ht, or with ``do`` both scans into h, dh, Vn, KS, Y, dv and dh0."""
    directions = 1 if do is None else 2
    way = plan(p, c, directions, q)
    summary = x.ga.new_empty(directions, p.N * p.HV, way.segments, p.K, p.V + p.K) if way.segments > 1 else None
    kept = [x.ga if t is None else t for t in (h, dh, Vn, KS, Y, o, dv, h0, ht, dht, dh0, summary)]
    for final in [False, True] if way.segments > 1 else [True]:
        rows = p.V if final else p.V + p.K
        scan[(rows // way.rows, p.N * p.HV, way.segments * directions)](
            q, x.k, v, v if do is None else do, beta, x.ga, x.square, x.P, x.Qg, x.Kg, x.GC, *kept,
            c.cu_seqlens, c.start, p.scale, p.T, c.per_sequence, p.N, p.H, p.HV, p.V,
            K=p.K, C=CHUNK, BV=way.rows, NSEG=way.segments, VARLEN=c.varlen, CHANNEL=p.channelwise,
            HAS_H0=h0 is not None, WANT_HT=ht is not None, HAS_DHT=dht is not None, WANT_DH0=dh0 is not None,
            BACKWARD=do is not None, SUMMARY=not final, PRECISION=precision(q),
            STAGES=way.stages, num_warps=4 if way.rows == 64 else 8,
        )  # fmt: skip


def forward(
    p: Problem, c: Chunks, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, h0: Tensor | None, want_ht: bool
) -> tuple[Tensor, Tensor | None, Prepared]:
    """Return o, the final state (float32) and what the backward keeps."""
    x = prepare(p, c, q, k, g, beta)
    o = torch.empty_like(v)
    ht = x.ga.new_empty(p.N, p.HV, p.K, p.V) if want_ht else None
    run_scan(p, c, x, q, v, beta, o=o, h0=h0, ht=ht)
    return o, ht, x


def backward(
    p: Problem, c: Chunks, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, kept: Kept,
    h0: Tensor | None, do: Tensor, dht: Tensor | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return dq, dk, dv, dg (float32), dbeta (float32), dh0 (float32 or None)."""
    tiles = (c.count, p.HV)
    h, dh = k.new_empty(*tiles, p.V, p.K), k.new_empty(*tiles, p.V, p.K)
    Vn, Y = (k.new_empty(*tiles, CHUNK, p.V) for _ in range(2))
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    dg, db = torch.empty_like(g, dtype=torch.float32), torch.empty_like(beta, dtype=torch.float32)
    dh0 = None if h0 is None else torch.empty_like(h0, dtype=torch.float32)
    results = (dq, dk, dv, dg, db)
    if kept.P is not None:
        _backward_on_hopper(p, c, q, k, v, kept, h0, do, dht, h, dh, Vn, Y, results, dh0)
        return *results, dh0
    x = prepare(p, c, q, k, g, beta, kept)
    KS = torch.empty_like(Vn)
    group = p.HV // p.H
    sums = [torch.empty_like(t, dtype=torch.float32) if group > 1 else x.ga for t in (q, k)]
    place = (c.cu_seqlens, c.sequence, c.start, p.scale, p.T, c.per_sequence, p.N, p.H, p.V)
    run_scan(p, c, x, q, v, beta, h0=h0, do=do, h=h, dh=dh, Vn=Vn, KS=KS, Y=Y, dv=dv, dht=dht, dh0=dh0)
    constants = {"GROUP": group, "K": p.K, "C": CHUNK, "VARLEN": c.varlen, "PRECISION": precision(k)}
    written = (dq, dk, *sums, dg, db)
    constants |= blocks_of_gradients(p, k)
    if p.channelwise:
        gradients_channel[(p.H, c.count)](
            q, k, v, g, beta, do, h, dh, Vn, KS, Y, *written, *place, **constants, num_warps=8
        )  # fmt: skip
    else:
        gradients_scalar[(p.H, c.count)](
            q, k, v, beta, x.ga, do, h, dh, Vn, KS, Y, *written, *place, **constants,
            num_warps=8 if constants["ROLLED"] else 4, num_stages=1,
        )  # fmt: skip
    return *results, dh0


def blocks_of_gradients(p: Problem, k: Tensor) -> dict[str, int]:
    """Channels and columns of V a step of the last launch. From sm_100 on the loops over them stay loops and float32
    takes small blocks: unrolled, or with blocks of 64, they need more than the 512 columns of Tensor Memory and spill
    up to 100 KB a thread.
    """
    float32, blackwell = k.element_size() == 4, describe(k.device).major >= 10
    if p.channelwise:
        return dict.fromkeys(("BK", "BV"), 32 if float32 and blackwell else 64)
    if blackwell:
        # One block of 64 channels for K = 64 does not compile for sm_100 with Triton 3.6.
        return {"BK": 32 if float32 or p.K == 64 else 64, "BV": 32 if float32 else 64, "ROLLED": True}
    return {"BK": 32 if float32 else 64, "BV": min(p.V, 64 if float32 else 128), "ROLLED": False}


def _backward_on_hopper(
    p: Problem, c: Chunks, q: Tensor, k: Tensor, v: Tensor, kept: Kept, h0: Tensor | None, do: Tensor,
    dht: Tensor | None, h: Tensor, dh: Tensor, W: Tensor, Y: Tensor, results: tuple[Tensor, ...], dh0: Tensor | None,
) -> None:  # fmt: skip
    """Two launches; one more sums dq and dk, one a value head and rounded to 16 bit, where heads are grouped."""
    dq, dk, dv, dg, db = results
    group = p.HV // p.H
    each = (dq, dk) if group == 1 else (torch.empty_like(v), torch.empty_like(v))
    backward_scans[(p.V // 64, p.N * p.HV, 2)](
        q, k, v, do, kept.rows, kept.A, kept.P, h, dh, W, Y, *(kept.ga if t is None else t for t in (h0, dht, dh0)),
        c.cu_seqlens, c.start, p.scale, p.T, c.per_sequence, p.H, p.HV,
        VARLEN=c.varlen, HAS_H0=h0 is not None, HAS_DHT=dht is not None, WANT_DH0=dh0 is not None, num_warps=4,
    )  # fmt: skip
    backward_gradients[(p.HV, c.count)](
        q, k, kept.rows, do, h, dh, W, Y, *each, dv, dg, db,
        c.cu_seqlens, c.sequence, c.start, p.scale, p.T, c.per_sequence, p.N, p.H, p.HV, VARLEN=c.varlen, num_warps=4,
    )  # fmt: skip
    if group > 1:
        rows = p.B * p.T * p.H
        sum_of_heads[(-(-rows // 32), 2)](dq, dk, *each, rows, GROUP=group, K=p.K, BLOCK=32, num_warps=4)
