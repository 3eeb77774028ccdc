"""The gated delta rule as written, one token at a time in float64: the oracle of every other form here.

Slow on purpose and differentiable by autograd. One parametrisation holds the whole family; leaving a part out gives its
members:

    gate g            delta   member
    [B, T, HV]        yes     gated delta rule (GDN)
    [B, T, HV, K]     yes     channel-wise gate (KDA, GDN-2)
    none              yes     DeltaNet
    [B, T, HV, K]     no      gated linear attention (GLA)
    [B, T, HV]        no      state-space duality (SSD, Mamba-2; beta is its step size)
    none              no      linear attention
"""

from __future__ import annotations

import itertools

import torch

from kcontract.kernels.gdn.problem import check


def reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor | None,
    beta: torch.Tensor | None,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    *,
    delta: bool = True,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return ``(o [B, T, HV, V], final state [N, HV, K, V] or None)`` in float64.

    A token does, with S the K x V state of its head::

        S = exp(g) * S                    decay first
        S = S + k (x) beta (v - S^T k)    the correction reads the decayed state; without delta it adds k (x) beta v
        o = scale * S^T q

    Shapes and errors: see `problem.check`. ``g`` is a natural logarithm; None means no decay. ``beta`` None means 1.
    """
    p = check(q, k, v, g, beta, scale, initial_state, cu_seqlens)
    q, k, v = (x.double() for x in (q, k, v))
    q, k = (x.repeat_interleave(p.HV // p.H, dim=2) for x in (q, k))
    ends = [(b, 0, p.T) for b in range(p.B)]
    if cu_seqlens is not None:
        cuts = cu_seqlens.tolist()
        ends = [(0, start, stop) for start, stop in itertools.pairwise(cuts)]
    rows, finals = [], []
    for n, (b, start, stop) in enumerate(ends):
        S = q.new_zeros(p.HV, p.K, p.V) if initial_state is None else initial_state[n].double()
        outs = []
        for t in range(start, stop):
            if g is not None:
                S = S * g[b, t].double().exp().reshape(p.HV, -1, 1)
            u = v[b, t] - torch.einsum("hk,hkv->hv", k[b, t], S) if delta else v[b, t]
            if beta is not None:
                u = u * beta[b, t].double().unsqueeze(-1)
            S = S + k[b, t].unsqueeze(-1) * u.unsqueeze(-2)
            outs.append(p.scale * torch.einsum("hk,hkv->hv", q[b, t], S))
        rows.append(torch.stack(outs) if outs else v.new_zeros(0, p.HV, p.V))
        finals.append(S)
    o = torch.cat(rows).reshape(p.B, p.T, p.HV, p.V)
    return o, torch.stack(finals) if output_final_state else None
