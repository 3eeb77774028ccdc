"""What ``verify_libraries.py`` found, each in the smallest form whose right answer is exact: found and wanted, a line.

    python benchmarks/libraries/reproducers.py                                      on a CUDA device
    kcontract run --engine sim:sm_90 -- python benchmarks/libraries/reproducers.py  on a simulated one

Needs liger-kernel and fla-core. docs/verified_findings.md explains each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

NAN = float("nan")


def t(*values: Any, grad: bool = False) -> torch.Tensor:
    return torch.tensor(values, device="cuda", requires_grad=grad)


def second_backward(loss: torch.Tensor, of: torch.Tensor, upstream: float) -> list[float]:
    """The gradient that a second backward of one graph gives."""
    given = torch.full_like(loss, upstream)
    torch.autograd.grad(loss, of, given.clone(), retain_graph=True)
    return torch.autograd.grad(loss, of, given.clone())[0].flatten().tolist()  # type: ignore[no-any-return]


def liger() -> Iterator[tuple[str, Sequence[float], Sequence[float]]]:
    from liger_kernel.transformers import functional as f

    for name, function in (("liger_swiglu", f.liger_swiglu), ("liger_geglu", f.liger_geglu)):
        a, b = t([0.0], grad=True), t([1.0], grad=True)
        result = function(a, b)
        yield f"{name}: second backward, d/da at a = 0, b = 1", second_backward(result, a, 1.0), [0.5]
        a, b = t([0.0], grad=True), t([1.0], grad=True)
        function(a, b).sum().backward()
        yield f"{name}: the input a after one backward", a.flatten().tolist(), [0.0]
    x, label = t([0.0, 0.0], grad=True), t(0)
    logits = x * 1.0
    loss = f.liger_cross_entropy(logits, label)
    yield "liger_cross_entropy: its input after the forward", logits.flatten().tolist(), [0.0, 0.0]
    yield "liger_cross_entropy: second backward, upstream 2", second_backward(loss, x, 2.0), [-1.0, 1.0]
    w = t([0.0], [0.0], grad=True)
    loss = f.liger_fused_linear_cross_entropy(t([1.0], grad=True), w, label)
    yield "liger_fused_linear_cross_entropy: second backward, upstream 2", second_backward(loss, w, 2.0), [-1.0, 1.0]
    w = t([0.0], [0.0], grad=True)
    f.liger_fused_linear_cross_entropy(t([1.0]), w, label).backward()
    found = [] if w.grad is None else w.grad.flatten().tolist()
    yield "liger_fused_linear_cross_entropy: w's gradient where x wants none", found, [-0.5, 0.5]
    q, k = torch.ones(2, 2, 1, 2, device="cuda") * t(1.0, 0.0), torch.zeros(2, 2, 1, 2, device="cuda")
    found = f.liger_rope(q, k, torch.zeros(1, 1, 2, device="cuda"), torch.ones(1, 1, 2, device="cuda"))[0]
    wanted = [0.0, 1.0] * 4
    yield "liger_rope: 2 rows, 2 heads, 1 position, (1, 0) turned by 90 degrees", found.flatten().tolist(), wanted
    found = f.liger_sparsemax(t([NAN, 0.5, 0.25])).flatten().tolist()
    yield "liger_sparsemax of a row with NaN", found, [NAN, NAN, NAN]
    found = f.liger_group_norm(t([4097.0, 4095.0]).unsqueeze(0), t(1.0), t(0.0), 1, 1, 1e-6).flatten().tolist()
    yield "liger_group_norm of one group (4097, 4095)", found, [1.0, -1.0]
    yield "liger_relu_squared of NaN", f.liger_relu_squared(t([NAN])).flatten().tolist(), [NAN]


def fla() -> Iterator[tuple[str, Sequence[float], Sequence[float]]]:
    from fla.modules.convolution import causal_conv1d
    from fla.modules.fused_linear_cross_entropy import fused_linear_cross_entropy_loss

    w = t([0.0], [0.0], grad=True)
    loss = fused_linear_cross_entropy_loss(t([1.0], grad=True), t(0), w)
    yield "fla fused_linear_cross_entropy_loss: second backward, upstream 2", second_backward(loss, w, 2.0), [-1.0, 1.0]
    x, taps = torch.ones(1, 1, 1, device="cuda"), t([0.0, 0.0, 0.0, float("inf")])
    found = causal_conv1d(x, taps)[0].flatten().tolist()
    yield "fla causal_conv1d: x = 1, taps (0, 0, 0, inf), no activation", found, [float("inf")]
    from fla.ops.gla import chunk_gla
    from fla.ops.simple_gla import chunk_simple_gla

    generator = torch.Generator().manual_seed(0)
    q, k, v, upstream = (torch.randn(1, 2, 1, 16, generator=generator).cuda() for _ in range(4))
    for x in (q, k, v):
        x[..., 0] = 512
    g = torch.full((1, 2, 1, 16), -40.0, device="cuda", requires_grad=True)
    (grad,) = torch.autograd.grad(chunk_gla(q, k, v, g, scale=1.0)[0], g, upstream)
    wanted = [2.5e-17, 1.3e-16, -9.4e-17]  # by the recurrence in float64
    yield (
        "chunk_gla: 2 places, gates of -40, first elements of 512: gradient of gates 1 to 3",
        grad[0, 1, 0, 1:4].tolist(),
        wanted,
    )
    gates = torch.zeros(64)
    gates[:40] = -1e8 * (1 + 2 * torch.rand(40, generator=torch.Generator().manual_seed(1)))
    q, v = torch.full((1, 64, 1, 16), 0.25, device="cuda"), torch.ones(1, 64, 1, 16, device="cuda")
    found = chunk_simple_gla(q, q.clone(), v, gates.view(1, 64, 1).cuda(), scale=1.0)[0][0, 41:44, 0, 0]
    yield "chunk_simple_gla: 40 gates of -1e8 to -3e8, then 0: the next but one", found.tolist(), [3.0, 4.0, 5.0]


def show(cases: Callable[[], Iterator[tuple[str, Sequence[float], Sequence[float]]]]) -> None:
    for name, found, wanted in cases():
        same = len(found) == len(wanted) and all(
            a == b or (a != a and b != b) for a, b in zip(found, wanted, strict=True)
        )
        print(f"{'right' if same else 'WRONG'}  {name}: found {list(found)}, wanted {list(wanted)}", flush=True)


if __name__ == "__main__":
    show(liger)
    show(fla)
