"""The launcher's float32 results beside the bound of the oracle, which follows the token recurrence and its autograd.

Eight tokens: the recurrence's backward multiplies bounds of absolute values from token to token, so that at twenty the
bound on dg is as large as dg itself. A script for Triton's interpreter; prints, as JSON, each result's error as a share
of what is allowed, and the same for a result changed by a thousandth (dg: a fiftieth).
"""

from __future__ import annotations

import json
from dataclasses import replace

import torch

from kcontract.dynamic import oracle
from kcontract.kernels.gdn import launch, reference
from kcontract.kernels.gdn.problem import check

NAMES = ("o", "final state", "q", "k", "v", "g", "beta", "initial state")


def inputs(device: str = "cpu", T: int = 8, K: int = 64) -> list[torch.Tensor]:
    torch.manual_seed(0)
    k = torch.nn.functional.normalize(torch.randn(1, T, 1, K), dim=-1)
    q, v, start = torch.randn(1, T, 1, K), torch.randn(1, T, 1, K), torch.randn(1, 1, K, K)
    made = [q, k, v, -0.3 * torch.rand(1, T, 1), torch.rand(1, T, 1), start]
    return [x.to(device).requires_grad_() for x in made]


def promised(leaves: list[torch.Tensor]) -> tuple[list[oracle.Bounded], tuple[torch.Tensor, ...]]:
    """What the oracle allows of every output and gradient, and the gradients of the outputs it drew."""
    call = lambda q, k, v, g, beta, start: reference(q, k, v, g, beta, None, start, True)  # noqa: E731
    expected = oracle.run(call, leaves, grads=True)
    named = zip(NAMES, (*expected.outputs, *expected.grads.values()), strict=True)
    return [replace(x, name=name) for name, x in named], expected.upstream


def shares(results: list[torch.Tensor], allowed: list[oracle.Bounded]) -> dict[str, float]:
    found = [oracle.compare(a.detach().cpu(), b) for a, b in zip(results, allowed, strict=True)]
    return {x.output: x.ratio for x in found}


def main() -> None:
    leaves = inputs()
    allowed, (do, dstate) = promised(leaves)
    q, k, v, g, beta, start = (x.detach() for x in leaves)
    p = check(q, k, v, g, beta, None, start)
    launch.plan = lambda *_: launch.Plan(64, 1, 1)
    launch.describe = lambda _: launch.Device(1, 0, 9)
    chunks = launch.locate(p, q, None)
    o, state, x = launch.forward(p, chunks, q, k, v, g, beta, start, True)
    results = [o, state, *launch.backward(p, chunks, q, k, v, g, beta, x.kept, start, do, dstate)]
    wrong = [t * (1.02 if name == "g" else 1.001) for name, t in zip(NAMES, results, strict=True)]
    print(json.dumps({"right": shares(results, allowed), "wrong": shares(wrong, allowed)}))


if __name__ == "__main__":
    main()
