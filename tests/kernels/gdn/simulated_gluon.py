"""Runs the Gluon reverse scan's sm_100 PTX in kcontract's simulator and prints its errors against float64 as JSON.

A script, so that a compiler that aborts does not take the tests with it.
"""

from __future__ import annotations

import json

import torch

from kcontract.dynamic.engines.simulator.driver import simulate
from kcontract.kernels.gdn.gluon_scan import reverse_scan


def scan64(k, do, beta, ga, A, P, Qg, D):
    """The same steps in float64 on whole chunks, heads left out: gradients of the states, Y, dv and dh0."""
    states, rows, values = [], [], []
    for c in reversed(range(len(ga))):
        states.append(D)
        r, gam, end = (ga[c, -1] - ga[c]).exp(), ga[c].exp(), ga[c, -1].exp()
        Y = A[c].mT @ (r[:, None] * (k[c] @ D.mT) + P[c].mT @ do[c])
        rows.append(Y)
        values.append(beta[c, :, None] * Y)
        D = end * D + (Qg[c].mT @ do[c]).mT - ((beta[c] * gam)[:, None] * Y).mT @ k[c]
    return [torch.stack(x[::-1]) for x in (states, rows, values)], D


def errors(T: int, K: int) -> dict[str, float]:
    torch.manual_seed(0)
    V, C = 128, 64
    NT = -(-T // C)
    pad = NT * C - T
    whole = lambda x: torch.nn.functional.pad(x, (0, 0, 0, pad)).double().reshape(NT, C, -1)  # noqa: E731
    k = torch.nn.functional.normalize(torch.randn(T, K), dim=-1).bfloat16()
    do, beta = torch.randn(T, V).bfloat16(), torch.rand(T)
    ga = (-0.1 * torch.rand(NT, C)).cumsum(-1)
    A = (torch.eye(C) + 0.2 * torch.randn(NT, C, C).tril(-1)).bfloat16()
    P, Qg = (0.2 * torch.randn(NT, C, C)).tril().bfloat16(), torch.randn(NT, C, K).bfloat16()
    dht = torch.randn(1, 1, K, V)
    dh, Y = torch.full((NT, V, K), torch.nan).bfloat16(), torch.full((NT, C, V), torch.nan).bfloat16()
    dv, dh0 = torch.full((T, V), torch.nan).bfloat16(), torch.full((1, 1, K, V), torch.nan)
    with simulate("sm_100"):
        reverse_scan[(1, 1)](k, do, beta, ga, A, P, Qg, dh, Y, dv, dht, dh0, T, NT, 1, 1, V, K=K, C=C, num_warps=4)
    padded = torch.nn.functional.pad(beta, (0, pad)).double().reshape(NT, C)
    (states, rows, values), first = scan64(
        whole(k), whole(do), padded, ga.double(), A.double(), P.double(), Qg.double(), dht[0, 0].double().mT
    )
    pairs = {
        "dh": (dh, states),
        "Y": (Y, rows),
        "dv": (dv, values.reshape(-1, V)[:T]),
        "dh0": (dh0[0, 0], first.mT),
    }
    return {name: float((a.double() - b).norm() / b.norm()) for name, (a, b) in pairs.items()}


if __name__ == "__main__":
    print(json.dumps(errors(150, 64)))
