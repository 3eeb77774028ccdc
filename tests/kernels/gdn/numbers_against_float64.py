"""Errors of the launcher's outputs and gradients against float64, for any way of running Triton on CPU tensors."""

from __future__ import annotations

import torch

from kcontract.kernels.gdn import launch, reference
from kcontract.kernels.gdn.problem import check

PLAN = launch.plan
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
    dtype: torch.dtype = torch.float32,
    major: int = 9,
) -> dict[str, float]:
    """Relative RMS error of each output and gradient, by name in `NAMES`."""
    torch.manual_seed(T)
    q, v = torch.randn(1, T, 1, K), torch.randn(1, T, HV, V)
    k = torch.nn.functional.normalize(torch.randn(1, T, 1, K), dim=-1)
    g = -strength * torch.rand(1, T, HV, *([K] if channelwise else []))
    beta = torch.rand(1, T, HV)
    cu_seqlens = None if cuts is None else torch.tensor(cuts)
    start = torch.randn(1 if cuts is None else len(cuts) - 1, HV, K, V)
    do, dstate = torch.randn_like(v), torch.randn_like(start)

    q, k, v, do = (x.to(dtype) for x in (q, k, v, do))
    p = check(q, k, v, g, beta, None, start, cu_seqlens)
    launch.describe = lambda _: launch.Device(1, 0, major)
    if segments > 1:
        launch.plan = lambda *_: launch.Plan(64, segments, 1)
    else:
        launch.plan = PLAN
    chunks = launch.locate(p, q, cu_seqlens)
    o, state, x = launch.forward(p, chunks, q, k, v, g, beta, start, True)
    got = launch.backward(p, chunks, q, k, v, g, beta, x.kept, start, do, dstate)

    leaves = [t.double().requires_grad_() for t in (q, k, v, g, beta, start)]
    want = reference(*leaves[:5], None, leaves[5], True, cu_seqlens)
    gradients = torch.autograd.grad(want, leaves, [do.double(), dstate.double()])
    pairs = zip(NAMES, (o, state, *got), (*want, *gradients), strict=True)
    return {name: float((a.double() - b).detach().norm() / b.detach().norm()) for name, a, b in pairs}
