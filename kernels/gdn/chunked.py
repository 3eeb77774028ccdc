"""The chunked form and its two backward passes in float64: the algebra of the kernels, without their tiling.

Every function takes heads and sequences as leading dimensions (``[..., T, K]``), has no grouping of heads, and pads the
last chunk with zero rows, as the kernels do. A scalar gate is a channel-wise one that is the same in each channel.

`forward` and `backward` follow the solve-adjoint form: the adjoint of the triangular solve, ``Y = A^T dVn``, gives the
gradient of the triangle by one product, ``dL = -Y Vn^T``. `backward(form="wy")` is flash-linear-attention's, through
the gradients of A, W and U. Decays are exponentials of differences, never above 1, so that no gate can overflow.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Chunk:
    """One chunk of C rows: what the backward needs of the forward. Names as in `NOTES.md`."""

    q: Tensor
    k: Tensor
    v: Tensor
    beta: Tensor
    ga: Tensor
    A: Tensor
    S0: Tensor
    Vn: Tensor


@dataclass(frozen=True)
class Gradients:
    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor
    beta: Tensor
    initial_state: Tensor


def decay(ga: Tensor) -> Tensor:
    """``exp(ga_i - ga_j)`` for ``i >= j``, else 0: ``[..., C, K]`` -> ``[..., C, C, K]``."""
    lower = torch.ones(ga.shape[-2], ga.shape[-2], dtype=torch.bool, device=ga.device).tril().unsqueeze(-1)
    difference = ga.unsqueeze(-2) - ga.unsqueeze(-3)
    return torch.where(lower, difference, -torch.inf).exp()


def gram(a: Tensor, b: Tensor, G: Tensor) -> Tensor:
    """``sum_d a_id b_jd G_ijd``: ``[..., C, C]``."""
    return torch.einsum("...id,...jd,...ijd->...ij", a, b, G)


def forward(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float, S: Tensor, size: int, delta: bool = True
) -> tuple[Tensor, Tensor, list[Chunk]]:
    """Return outputs ``[..., T, V]``, the final state ``[..., K, V]`` and what each chunk keeps for `backward`.

    q, k, g ``[..., T, K]``, v ``[..., T, V]``, beta ``[..., T]``, S ``[..., K, V]``, all float64; ``size`` rows a
    chunk.
    """
    T = q.shape[-2]
    outs, kept = [], []
    for start in range(0, T, size):
        cq, ck, cv, cg = (_rows(x, start, size) for x in (q, k, v, g))
        cb = _rows(beta.unsqueeze(-1), start, size)
        ga = cg.cumsum(-2)
        G, last = decay(ga), ga[..., -1:, :]
        eye = torch.eye(size, dtype=q.dtype, device=q.device)
        L = (cb * gram(ck, ck, G)).tril(-1) if delta else torch.zeros_like(eye)
        A = torch.linalg.solve_triangular(eye + L, eye.expand_as(eye + L), upper=False, unitriangular=True)
        R = cv - (ga.exp() * ck) @ S if delta else cv
        Vn = A @ (cb * R)
        outs.append(scale * ((ga.exp() * cq) @ S + gram(cq, ck, G) @ Vn))
        kept.append(Chunk(cq, ck, cv, cb, ga, A, S, Vn))
        S = last.exp().mT * S + ((last - ga).exp() * ck).mT @ Vn
    o = torch.cat(outs, -2)[..., :T, :] if outs else v
    return o, S, kept


def backward(
    do: Tensor, dS: Tensor, kept: list[Chunk], scale: float, form: str = "solve-adjoint", delta: bool = True
) -> Gradients:
    """Gradients given ``do [..., T, V]`` and ``dS``, the gradient of the final state. ``form``: "solve-adjoint" or
    "wy".

    The gradient of the gate is per channel; sum it over channels for a scalar gate. A call without tokens has no chunk
    to keep and no gradient but ``dS``: callers leave it out.
    """
    T, size = do.shape[-2], kept[0].q.shape[-2]
    parts = []
    for index in reversed(range(len(kept))):
        c = kept[index]
        dO = _rows(do, index * size, size)
        G, gam, last = decay(c.ga), c.ga.exp(), c.ga[..., -1:, :]
        r, GC = (last - c.ga).exp(), last.exp()
        P = scale * gram(c.q, c.k, G)
        KK = gram(c.k, c.k, G).tril(-1)
        dVn = (r * c.k) @ dS + P.mT @ dO
        Y = c.A.mT @ dVn
        dP = scale * (dO @ c.Vn.mT).tril()
        dq_inter, dk_end = scale * gam * (dO @ c.S0.mT), r * (c.Vn @ dS.mT)
        Zr = -(c.beta * Y)
        if not delta:
            dL, dk_start, db = torch.zeros_like(KK), torch.zeros_like(c.k), (Y * c.v).sum(-1)
            Zr = torch.zeros_like(Zr)
        elif form == "solve-adjoint":
            R = c.v - (gam * c.k) @ c.S0
            dL = -(Y @ c.Vn.mT).tril(-1)
            dk_start = gam * (Zr @ c.S0.mT)
            db = (Y * R).sum(-1)
        else:
            dW, dU = -(dVn @ c.S0.mT), dVn
            dA = dW @ (c.beta * gam * c.k).mT + dU @ (c.beta * c.v).mT
            dL = -(c.A.mT @ dA @ c.A.mT).tril(-1)
            X = c.A.mT @ dW
            dk_start = c.beta * gam * X
            db = (gam * X * c.k).sum(-1) + (Y * c.v).sum(-1)
        dKK = c.beta * dL
        dq_intra = torch.einsum("...ij,...jd,...ijd->...id", dP, c.k, G)
        dk_intra = torch.einsum("...ij,...id,...ijd->...jd", dP, c.q, G)
        dk_row = torch.einsum("...ij,...jd,...ijd->...id", dKK, c.k, G)
        dk_col = torch.einsum("...ij,...id,...ijd->...jd", dKK, c.k, G)
        dq = dq_inter + dq_intra
        dk = dk_start + dk_end + dk_intra + dk_row + dk_col
        dga = c.q * dq + c.k * (dk_start + dk_row - dk_end - dk_intra - dk_col)
        dga[..., -1, :] += (c.k * dk_end).sum(-2) + GC.squeeze(-2) * (c.S0 * dS).sum(-1)
        dg = dga.flip(-2).cumsum(-2).flip(-2)
        parts.append((dq, dk, c.beta * Y, dg, (db + (dL * KK).sum(-1)).unsqueeze(-1)))
        dS = GC.mT * dS + scale * (gam * c.q).mT @ dO + (gam * c.k).mT @ Zr
    q, k, v, g, b = (torch.cat(x[::-1], -2)[..., :T, :] for x in zip(*parts, strict=True))
    return Gradients(q, k, v, g, b.squeeze(-1), dS)


def gate_gradient_identity(q: Tensor, dq: Tensor, v: Tensor, dv: Tensor, S: Tensor, dS: Tensor) -> Tensor:
    """``dg_t = sum_{i >= t} (q_i.dq_i - v_i.dv_i) + <S_T, dS_T>`` for a scalar gate: ``[..., T]``.

    Exact over a whole sequence, for the members with and without delta. Good for checking, not for computing: with
    16-bit operands at strong decay it is off by some 5e-2 where the direct form is off by 5e-3.
    """
    per_token = (q * dq).sum(-1) - (v * dv).sum(-1)
    return per_token.flip(-1).cumsum(-1).flip(-1) + (S * dS).sum((-2, -1)).unsqueeze(-1)


def _rows(x: Tensor, start: int, size: int) -> Tensor:
    rows = x[..., start : start + size, :]
    return torch.nn.functional.pad(rows, (0, 0, 0, size - rows.shape[-2]))
