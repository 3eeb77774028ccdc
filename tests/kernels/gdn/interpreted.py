"""Runs the Triton kernels in Triton's interpreter, on the CPU, and prints each case's errors against float64 as JSON.

A script, because TRITON_INTERPRET must stand before Triton is imported. float32 only: the interpreter's bfloat16
products are wrong.
"""

from __future__ import annotations

import json
import os

os.environ["TRITON_INTERPRET"] = "1"

import torch

from kcontract.kernels.gdn import launch, reference
from kcontract.kernels.gdn.problem import check

CASES = {
    "tail and grouped heads": {"T": 65, "HV": 2},
    "split in three": {"T": 140, "segments": 3},
    "packed, one sequence empty": {"T": 80, "cuts": [0, 70, 70, 71, 80]},
    "one token": {"T": 1},
    "strong gate": {"T": 64, "strength": 20.0},
    "channel-wise, grouped": {"T": 20, "HV": 2, "channelwise": True},
    "channel-wise, packed and split": {"T": 90, "cuts": [0, 20, 90], "segments": 2, "channelwise": True},
    "channel-wise, strong": {"T": 64, "strength": 20.0, "channelwise": True},
}
NAMES = ("o", "final state", "q", "k", "v", "g", "beta", "initial state")


def errors(
    T: int,
    HV: int = 1,
    K: int = 64,
    V: int = 64,
    strength: float = 0.3,
    segments: int = 1,
    cuts: list[int] | None = None,
    channelwise: bool = False,
) -> dict[str, float]:
    """Relative RMS error of each output and gradient."""
    torch.manual_seed(T)
    q, v = torch.randn(1, T, 1, K), torch.randn(1, T, HV, V)
    k = torch.nn.functional.normalize(torch.randn(1, T, 1, K), dim=-1)
    g = -strength * torch.rand(1, T, HV, *([K] if channelwise else []))
    beta = torch.rand(1, T, HV)
    cu_seqlens = None if cuts is None else torch.tensor(cuts)
    start = torch.randn(1 if cuts is None else len(cuts) - 1, HV, K, V)
    do, dstate = torch.randn_like(v), torch.randn_like(start)

    p = check(q, k, v, g, beta, None, start, cu_seqlens)
    launch.plan = lambda *_: launch.Plan(64, segments, 1)
    launch.describe = lambda _: launch.Device(1, 0, 9)
    chunks = launch.locate(p, q, cu_seqlens)
    o, state, x = launch.forward(p, chunks, q, k, v, g, beta, start, True)
    got = launch.backward(p, chunks, q, k, v, g, beta, x.ga, x.A, start, do, dstate)

    leaves = [t.double().requires_grad_() for t in (q, k, v, g, beta, start)]
    want = reference(*leaves[:5], None, leaves[5], True, cu_seqlens)
    gradients = torch.autograd.grad(want, leaves, [do.double(), dstate.double()])
    pairs = zip(NAMES, (o, state, *got), (*want, *gradients), strict=True)
    return {name: float((a.double() - b).detach().norm() / b.detach().norm()) for name, a, b in pairs}


if __name__ == "__main__":
    print(json.dumps({name: errors(**case) for name, case in CASES.items()}))
