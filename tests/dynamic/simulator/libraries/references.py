"""Operations of liger-kernel and fla-core against references, forward and backward: a program for a simulated GPU.

    kcontract run --engine sim:sm_90 --max-configs 1 -- python tests/dynamic/simulator/libraries/references.py OUT.jsonl

One JSON line a case. References are plain torch in float32, or fla's own naive functions. Needs liger-kernel, fla-core,
einops and transformers.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Function = Callable[..., Any]
#: name: (operation, reference, inputs, relative error allowed)
Case = tuple[Function, Function, Callable[[], list[torch.Tensor]], float]


def t(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").to(dtype).requires_grad_()


def norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def liger() -> dict[str, Case]:
    from liger_kernel import ops

    n, h, v = 24, 200, 300
    labels = torch.randint(0, v, (n,), device="cuda")
    logp = torch.log_softmax(torch.randn(n, v, device="cuda"), -1)
    softly = torch.softmax(torch.randn(n, v, device="cuda"), -1)

    def jsd(x: torch.Tensor) -> torch.Tensor:
        p, q = torch.exp(x), torch.exp(logp)
        m = torch.log(0.5 * p + 0.5 * q)
        return (0.5 * (p * (x - m)).sum() + 0.5 * (q * (logp - m)).sum()) / n

    def rotate(x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return torch.cat([-b, a], -1)

    def rope(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Any:
        return q * cos[:, None] + rotate(q) * sin[:, None], k * cos[:, None] + rotate(k) * sin[:, None]

    angles = torch.rand(1, 16, 16, device="cuda").repeat(1, 1, 2)
    cases: dict[str, Case] = {
        "rms_norm": (lambda x, w: ops.LigerRMSNormFunction.apply(x, w, 1e-6), norm, lambda: [t(n, h), t(h)], 1e-4),
        "fused_add_rms_norm": (
            lambda x, r, w: ops.LigerFusedAddRMSNormFunction.apply(x, r, w, 1e-6),
            lambda x, r, w: (norm(x + r, w), x + r), lambda: [t(n, h), t(n, h), t(h)], 1e-4),
        "layer_norm": (
            lambda x, w, b: ops.LigerLayerNormFunction.apply(x, w, b, 1e-6),
            lambda x, w, b: F.layer_norm(x, (h,), w, b, 1e-6), lambda: [t(n, h), t(h), t(h)], 1e-4),
        "group_norm": (
            lambda x, w, b: ops.LigerGroupNormFunction.apply(x, w, b, 8, 4, 1e-6),
            lambda x, w, b: F.group_norm(x, 4, w, b, 1e-6), lambda: [t(2, 8, 64), t(8), t(8)], 1e-4),
        "silu_mul": (lambda a, b: ops.LigerSiLUMulFunction.apply(a, b), lambda a, b: F.silu(a) * b,
                     lambda: [t(n, h), t(n, h)], 1e-5),
        "gelu_mul": (lambda a, b: ops.LigerGELUMulFunction.apply(a, b), lambda a, b: F.gelu(a, approximate="tanh") * b,
                     lambda: [t(n, h), t(n, h)], 1e-4),
        "softmax": (lambda x: ops.LigerSoftmaxFunction.apply(x), lambda x: torch.softmax(x, -1),
                    lambda: [t(n, h)], 1e-5),
        "cross_entropy": (
            lambda x: ops.LigerCrossEntropyFunction.apply(
                x, labels, None, -100, 0.0, 0.0, "mean", None, False, False, False)[0],
            lambda x: F.cross_entropy(x, labels), lambda: [t(n, v)], 1e-4),
        "cross_entropy_smooth": (
            lambda x: ops.LigerCrossEntropyFunction.apply(
                x, labels, None, -100, 0.0, 0.1, "sum", None, False, False, False)[0],
            lambda x: F.cross_entropy(x, labels, label_smoothing=0.1, reduction="sum"), lambda: [t(n, v)], 1e-4),
        "fused_linear_cross_entropy": (
            lambda x, w: ops.LigerFusedLinearCrossEntropyFunction.apply(x, w, labels)[0],
            lambda x, w: F.cross_entropy(x @ w.t(), labels), lambda: [t(n, h), t(v, h)], 1e-3),
        "kl_div": (
            lambda x: ops.LigerKLDivLossFunction.apply(torch.log_softmax(x, -1), softly, "batchmean", False, 1e-10),
            lambda x: F.kl_div(torch.log_softmax(x, -1), softly, reduction="batchmean"), lambda: [t(n, v)], 1e-3),
        "jsd": (lambda x: ops.LigerJSDFunction.apply(torch.log_softmax(x, -1), logp, None, 0.5, -100),
                lambda x: jsd(torch.log_softmax(x, -1)), lambda: [t(n, v)], 1e-3),
        "tvd": (lambda x: ops.LigerTVDLossFunction.apply(torch.softmax(x, -1), softly, None, "batchmean", -100),
                lambda x: 0.5 * (torch.softmax(x, -1) - softly).abs().sum() / n, lambda: [t(n, v)], 1e-3),
        "rope": (lambda q, k: ops.LigerRopeFunction.apply(q, k, angles.cos(), angles.sin()),
                 lambda q, k: rope(q, k, angles.cos(), angles.sin()), lambda: [t(2, 4, 16, 32), t(2, 2, 16, 32)], 1e-5),
        "embedding": (lambda w: ops.LigerEmbeddingFunction.apply(w, labels), lambda w: F.embedding(labels, w),
                      lambda: [t(v, h)], 1e-6),
        "dyt": (lambda x, a, g, b: ops.LigerDyTFunction.apply(x, a, g, b), lambda x, a, g, b: g * torch.tanh(a * x) + b,
                lambda: [t(n, h), t(1), t(h), t(h)], 1e-3),
    }  # fmt: skip
    return cases


def fla() -> dict[str, Case]:
    from fla.ops import delta_rule, gated_delta_rule, gla, kda, linear_attn, retention, simple_gla
    from fla.ops.delta_rule.naive import delta_rule_recurrence
    from fla.ops.gated_delta_rule.naive import naive_recurrent_gated_delta_rule
    from fla.ops.gla.naive import naive_recurrent_gla
    from fla.ops.kda.naive import naive_recurrent_kda
    from fla.ops.linear_attn.naive import naive_chunk_linear_attn
    from fla.ops.simple_gla.naive import naive_recurrent_simple_gla

    b, s, h, d = 1, 128, 2, 32

    def unit(x: torch.Tensor) -> torch.Tensor:
        return F.normalize(x.float(), dim=-1).to(x.dtype)

    def qkv(*more: Callable[[], torch.Tensor]) -> Callable[[], list[torch.Tensor]]:
        return lambda: [t(b, s, h, d), t(b, s, h, d), t(b, s, h, d), *(m() for m in more)]

    def heads_first(*xs: torch.Tensor) -> list[torch.Tensor]:
        return [x.transpose(1, 2) for x in xs]

    def gate() -> torch.Tensor:
        return t(b, s, h)

    def wide() -> torch.Tensor:
        return t(b, s, h, d)

    def halved(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor) -> list[torch.Tensor]:
        return [x.to(torch.bfloat16) for x in (q, unit(k), v, beta.sigmoid())]

    log = F.logsigmoid
    cases: dict[str, Case] = {}
    cases["gated_delta_rule_chunk"] = (
        lambda q, k, v, g, beta: gated_delta_rule.chunk_gated_delta_rule(
            unit(q), unit(k), v, log(g), beta.sigmoid())[0],
        lambda q, k, v, g, beta: naive_recurrent_gated_delta_rule(unit(q), unit(k), v, beta.sigmoid(), log(g))[0],
        qkv(gate, gate), 5e-3)  # fmt: skip
    cases["delta_rule_chunk"] = (
        lambda *xs: delta_rule.chunk_delta_rule(*halved(*xs))[0].float(),
        lambda q, k, v, beta: delta_rule_recurrence(*heads_first(q, unit(k), v, beta.sigmoid()))[0].transpose(1, 2),
        qkv(gate), 2e-2)  # fmt: skip
    for name, function in (("chunk", gla.chunk_gla), ("recurrent", gla.fused_recurrent_gla)):
        cases[f"gla_{name}"] = (
            lambda q, k, v, g, f=function: f(q, k, v, log(g))[0],
            lambda q, k, v, g: naive_recurrent_gla(q, k, v, log(g))[0], qkv(wide), 5e-3)  # fmt: skip
    cases["simple_gla_chunk"] = (
        lambda q, k, v, g: simple_gla.chunk_simple_gla(q, k, v, log(g))[0],
        lambda q, k, v, g: naive_recurrent_simple_gla(q, k, v, log(g))[0], qkv(gate), 5e-3)  # fmt: skip
    cases["kda_chunk"] = (
        lambda q, k, v, g, beta: kda.chunk_kda(unit(q), unit(k), v, log(g), beta.sigmoid())[0],
        lambda q, k, v, g, beta: naive_recurrent_kda(unit(q), unit(k), v, log(g), beta.sigmoid())[0],
        qkv(wide, gate), 1e-2)  # fmt: skip
    cases["linear_attn_chunk"] = (
        lambda q, k, v: linear_attn.chunk_linear_attn(q, k, v, normalize=False)[0],
        lambda q, k, v: _first(naive_chunk_linear_attn(q, k, v)), qkv(), 5e-3)  # fmt: skip
    cases["retention_chunk"] = (
        lambda q, k, v: retention.chunk_retention(q, k, v)[0],
        lambda q, k, v: naive_recurrent_simple_gla(
            q, k, v, torch.log1p(-torch.exp2(-5.0 - torch.arange(h, device="cuda"))).expand(b, s, h))[0],
        qkv(), 5e-3)  # fmt: skip
    from fla_operators import operators

    return cases | operators()


def _first(x: Any) -> torch.Tensor:
    return x[0] if isinstance(x, tuple) else x  # type: ignore[no-any-return]


def compare(case: Case) -> dict[str, float]:
    """Relative errors (root mean square) of outputs and gradients; raises where one is over the limit."""
    function, reference, inputs, limit = case
    torch.manual_seed(0)
    mine = inputs()
    theirs = [x.detach().clone().requires_grad_() for x in mine]
    errors: dict[str, float] = {}
    upstream: list[torch.Tensor] = []
    kept: list[torch.Tensor] = []
    for xs, f in ((mine, function), (theirs, reference)):
        outputs = f(*xs)
        outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        outputs = [o for o in outputs if isinstance(o, torch.Tensor)]
        upstream = upstream or [torch.randn_like(o.float()) for o in outputs]
        if xs is mine:
            kept = [o.detach().clone() for o in outputs]
        if all(o.requires_grad for o in outputs):
            sum((o.float() * u).sum() for o, u in zip(outputs, upstream, strict=True)).backward()  # type: ignore[union-attr]
    pairs = [(f"output {k}", a, b) for k, (a, b) in enumerate(zip(kept, outputs, strict=True))]
    if any(x.grad is not None for x in mine):
        pairs += [(f"gradient {k}", a.grad, b.grad) for k, (a, b) in enumerate(zip(mine, theirs, strict=True))
                  if b.grad is not None]  # fmt: skip
    for name, a, b in pairs:
        error = float((a.float() - b.float()).norm() / (b.float().norm() + 1e-12))
        errors[name] = error
    worst = max(errors, key=lambda k: errors[k] if errors[k] == errors[k] else float("inf"))
    if not errors[worst] <= limit:
        raise AssertionError(f"{worst}: relative error {errors[worst]:.2e}, allowed {limit:.0e}")
    return errors


def main() -> None:
    import triton

    out, *wanted = sys.argv[1:]
    launches: Counter[str] = Counter()
    triton.runtime.driver.active.observers.append(lambda name, grid: launches.update([name]))
    found: dict[str, Case] = {}
    for library in (liger, fla):
        found |= {f"{library.__name__}/{k}": v for k, v in library().items()}
    for name, case in found.items():
        if wanted and not any(w in name for w in wanted):
            continue
        start = time.perf_counter()
        line: dict[str, Any] = {"case": name}
        launches.clear()
        try:
            line |= {"passed": True, "worst": max(compare(case).values())}
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            line |= {
                "passed": False,
                "reason": f"{type(error).__name__}: {error}"[:300],
                "place": f"{where.filename}:{where.lineno}",
            }
        line["launches"] = dict(launches)
        line["seconds"] = round(time.perf_counter() - start, 1)
        with open(out, "a") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
