"""Kernels of liger-kernel written in NVIDIA's CuTe DSL, compiled for sm_100a and run simulated against torch.

    python tests/dynamic/simulator/cute/kernels.py [checked] [OUT.json]

Needs nvidia-cutlass-dsl, liger-kernel and a C compiler, no GPU. The PTX is NVIDIA's compiler's: the products are
persistent two-CTA `tcgen05.mma.cta_group::2` kernels fed by tensor copies with multicast signals.
"""

from __future__ import annotations

import gc
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import bridge  # isort: skip
import torch
import torch.nn.functional as F

from kcontract.dynamic.engines import devices, shim
from kcontract.dynamic.engines.simulator.options import Options

shim.install(devices.device("sm_100"))

import cutlass  # noqa: E402
from cutlass import cute  # noqa: E402

Pairs = Iterator[tuple[str, torch.Tensor, torch.Tensor, float]]
BF16 = torch.bfloat16


@cute.jit
def identity(accumulator, output):
    """The epilogue of a plain product."""
    for element in cutlass.range_constexpr(cute.size(accumulator)):
        output[element] = accumulator[element].to(output.element_type)


def rand(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


def product(m: int, n: int, k: int) -> Callable[[], Pairs]:
    def run() -> Pairs:
        from liger_kernel.ops.cutedsl.ops._sm100_gemm import run_epilogue_gemm

        x, w = rand(m, k, dtype=BF16), rand(n, k, dtype=BF16) * k**-0.5
        out = torch.empty(m, n, dtype=BF16, device="cuda")
        run_epilogue_gemm(x, w, out, identity)
        yield "product", out, (x.float() @ w.float().t()).to(BF16), 0.02

    return run


def fused_swiglu() -> Pairs:
    from liger_kernel.ops.cutedsl.ops.swiglu import fused_swiglu as fused

    x, g, u = rand(40, 128, dtype=BF16), rand(64, 128, dtype=BF16) * 0.1, rand(64, 128, dtype=BF16) * 0.1
    y, z = x.float() @ g.float().t(), x.float() @ u.float().t()
    yield "output", fused(x, g, u), F.silu(y) * z, 0.05


def swiglu() -> Pairs:
    from liger_kernel.ops.cutedsl.ops import LigerSiLUMulFunction

    a, b = rand(16, 256).requires_grad_(), rand(16, 256).requires_grad_()
    a2, b2 = a.detach().clone().requires_grad_(), b.detach().clone().requires_grad_()
    found, wanted = LigerSiLUMulFunction.apply(a, b), F.silu(a2) * b2
    yield "output", found.detach().clone(), wanted, 1e-5
    up = rand(16, 256)
    found.backward(up.clone())
    wanted.backward(up)
    yield "gradient of a", a.grad, a2.grad, 1e-4
    yield "gradient of b", b.grad, b2.grad, 1e-4


def rope() -> Pairs:
    from liger_kernel.ops.cutedsl.ops import rope_forward

    q, k = rand(1, 4, 16, 64, dtype=BF16), rand(1, 2, 16, 64, dtype=BF16)
    angle = torch.rand(1, 16, 32, device="cuda").repeat(1, 1, 2)
    cos, sin = angle.cos().to(BF16), angle.sin().to(BF16)
    wanted = []
    for x in (q.float(), k.float()):
        turned = torch.cat([-x[..., 32:], x[..., :32]], -1)
        wanted.append(x * cos.float()[:, None] + turned * sin.float()[:, None])
    found = rope_forward(q.clone(), k.clone(), cos, sin)
    for name, y, z in zip("qk", found, wanted, strict=False):
        yield name, y if y.shape == z.shape else y.transpose(1, 2), z, 0.03


def cross_entropy() -> Pairs:
    from liger_kernel.ops.cutedsl.ops import LigerCrossEntropyFunction

    x, labels = rand(16, 512).requires_grad_(), torch.randint(0, 512, (16,), device="cuda")
    x2 = x.detach().clone().requires_grad_()
    found = LigerCrossEntropyFunction.apply(x.clone(), labels, None, -100, 0.0, 0.0, "mean", None, False, False, False)[
        0
    ]
    wanted = F.cross_entropy(x2, labels)
    yield "loss", found.detach().clone(), wanted, 1e-5
    found.backward()
    wanted.backward()
    yield "gradient", x.grad, x2.grad, 1e-6


def fused_linear_cross_entropy() -> Pairs:
    from liger_kernel.ops.cutedsl.ops import LigerFusedLinearCrossEntropyFunction

    x, w = rand(32, 128, dtype=BF16).requires_grad_(), (rand(256, 128, dtype=BF16) * 0.1).requires_grad_()
    labels = torch.randint(0, 256, (32,), device="cuda")
    x2, w2 = x.detach().float().requires_grad_(), w.detach().float().requires_grad_()
    found, wanted = LigerFusedLinearCrossEntropyFunction.apply(x, w, labels), F.cross_entropy(x2 @ w2.t(), labels)
    found = found[0] if isinstance(found, tuple) else found
    yield "loss", found.detach().clone(), wanted, 0.02
    found.backward()
    wanted.backward()
    yield "gradient of x", x.grad, x2.grad, 2e-3
    yield "gradient of w", w.grad, w2.grad, 2e-3


CASES: dict[str, Callable[[], Pairs]] = {
    "product 33x96x128": product(33, 96, 128),
    "product 33x97x192": product(33, 97, 192),
    "product 300x520x256": product(300, 520, 256),
    "product and swiglu": fused_swiglu,
    "swiglu": swiglu,
    "rope": rope,
    "cross entropy": cross_entropy,
    "linear and cross entropy": fused_linear_cross_entropy,
}


class _Alive(dict[str, Any]):
    """Every tensor of the process: CuTe DSL's launches name no tensors."""

    def items(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = [x for x in gc.get_objects() if isinstance(x, torch.Tensor)]
        return [(f"tensor {k}", x) for k, x in enumerate(found)]


def main() -> None:
    simulated = bridge.Simulated(Options(checked="checked" in sys.argv))
    simulated.tensors = _Alive()
    lines: dict[str, Any] = {}
    for name, case in CASES.items():
        torch.manual_seed(0)
        before = len(simulated.grids)
        simulated.failure = None
        line: dict[str, Any] = {"passed": True}
        try:
            errors = {}
            for what, found, wanted, allowed in case():
                error = float((found.detach().float() - wanted.detach().float()).abs().max())
                errors[what] = error
                if not error <= allowed:
                    line["passed"], line["reason"] = False, f"{what}: error {error:.2e}, allowed {allowed:.0e}"
            line["errors"] = {what: float(f"{e:.3g}") for what, e in errors.items()}
        except Exception as error:
            line |= {"passed": False, "reason": str(simulated.failure or error)[:300]}
        ran = simulated.grids[before:]
        opcodes = {i.name for g in ran for i in g.kernel.function.instructions}
        line |= {"launches": len(ran), "tcgen05": sorted({o for o in opcodes if o.startswith("tcgen05.mma")})}
        if reported := sorted({str(fault) for g in ran for fault in g.reported}):
            line["reported"] = reported
        lines[name] = line
        print(name, line, flush=True)
    for path in sys.argv[1:]:
        if path.endswith(".json"):
            Path(path).write_text(json.dumps(lines, indent=1) + "\n")
    sys.exit(not all(line["passed"] for line in lines.values()))


if __name__ == "__main__":
    main()
