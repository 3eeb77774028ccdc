"""Sweep program: the public operations of liger-kernel, forward and backward."""

from __future__ import annotations

import sys
from typing import Any

import torch
from cases import BF16, Case, ids, run, t
from liger_kernel import ops
from liger_kernel.ops.experimental import mm_int8int2
from liger_kernel.ops.grpo_loss import fused_selective_log_softmax

F32 = torch.float32
N, H, V = 512, 1024, 4096  # rows, hidden size, vocabulary


def _moe() -> Any:
    experts, k = 8, 2
    return ops.LigerFusedMoEFunction.apply(
        t(256, 512),
        t(experts, 2 * 256, 512),
        t(experts, 512, 256),
        ids(256, k, high=experts).int(),
        torch.softmax(t(256, k, dtype=F32, grad=False), -1).to(BF16).requires_grad_(),
    )


def _rope(function: Any = None, **options: Any) -> Any:
    cos, sin = t(1, 128, 64, grad=False), t(1, 128, 64, grad=False)
    return ops.LigerRopeFunction.apply(t(2, 8, 128, 64), t(2, 4, 128, 64), cos, sin)


def _mrope() -> Any:
    cos, sin = t(3, 2, 128, 64, grad=False), t(3, 2, 128, 64, grad=False)
    return ops.LigerQwen2VLMRopeFunction.apply(t(2, 8, 128, 64), t(2, 4, 128, 64), cos, sin, [8, 12, 12])


def _llama4_rope() -> Any:
    angles = torch.rand(128, 32, device="cuda")
    return ops.LigerLlama4RopeFunction.apply(
        t(2, 128, 8, 64), t(2, 128, 4, 64), torch.polar(torch.ones_like(angles), angles)
    )


def _grpo(kind: str, level: str = "token") -> Any:
    mask = torch.ones(4, 64, device="cuda", dtype=torch.int32)
    return ops.GrpoLossFunction.apply(
        *(t(4, 65, V), t(4, 64, dtype=F32, grad=False), t(4, 64, dtype=F32, grad=False), ids(4, 64, high=V)),
        *(t(4, dtype=F32, grad=False), mask, 0.9, 0.04, 0.2, 0.4, False, kind, 64, True, level),
    )


def _mhc_coeffs() -> Any:
    hc, c = 4, 256
    m = hc * hc + 2 * hc
    one = torch.ones((), device="cuda").requires_grad_
    return ops.LigerMHCCoeffsFunction.apply(
        *(t(128, hc, c), t(hc * c, m), t(m, dtype=F32), one(), one().clone(), one().clone()),
        *(True, 20, 1e-6, 0.0, 1e-6, 2.0),
    )


def _tiled_mlp() -> Any:
    class Mlp(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.up, self.down = (torch.nn.Linear(H, H, bias=False) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.down(ops.LigerSiLUMulFunction.apply(self.gate(x), self.up(x)))  # type: ignore[no-any-return]

    mlp = Mlp().to("cuda", BF16)
    return ops.apply_tiled_mlp(lambda module, x: module(x), mlp, t(2, 128, H), num_shards=4)


def _int8int2() -> Any:
    a = torch.randint(-128, 127, (256, 512), dtype=torch.int8, device="cuda")
    b = mm_int8int2.pack_weights(torch.randint(-1, 2, (512, 256), dtype=torch.int8, device="cuda"), 2)
    return mm_int8int2.matmul(a, b)


def _jsd(beta: float) -> Any:
    return ops.LigerJSDFunction.apply(t(N, V, dtype=F32), t(N, V, dtype=F32, grad=False), None, beta, -100)


def _ce(**options: Any) -> Any:
    order = (
        "weight",
        "ignore_index",
        "lse_square_scale",
        "label_smoothing",
        "reduction",
        "softcap",
        "z",
        "acc",
        "pred",
    )
    default = (None, -100, 0.0, 0.0, "mean", None, False, False, False)
    values = {**dict(zip(order, default, strict=True)), **options}
    return ops.LigerCrossEntropyFunction.apply(t(N, V), ids(N, high=V), *values.values())


CASES: dict[str, Case] = {
    "LigerAttnResFunction": lambda: ops.LigerAttnResFunction.apply(t(8, 2, 64, H), t(H), t(H), 1e-6),
    "LigerCrossEntropyFunction": _ce,
    "LigerCrossEntropyFunction/all": lambda: _ce(
        weight=t(V, dtype=F32, grad=False),
        lse_square_scale=1e-4,
        label_smoothing=0.1,
        softcap=30.0,
        z=True,
        acc=True,
        pred=True,
    ),
    "LigerCrossEntropyFunction/none": lambda: _ce(reduction="none"),
    "LigerDyTFunction": lambda: ops.LigerDyTFunction.apply(t(N, H), t(1), t(H), t(H)),
    "LigerEmbeddingFunction": lambda: ops.LigerEmbeddingFunction.apply(t(V, H), ids(4, 64, high=V)),
    "LigerFusedAddRMSNormFunction": lambda: ops.LigerFusedAddRMSNormFunction.apply(t(N, H), t(N, H), t(H), 1e-6),
    "LigerFusedAddRMSNormFunction/gemma": lambda: ops.LigerFusedAddRMSNormFunction.apply(
        t(N, H), t(N, H), t(H), 1e-6, 1.0, "gemma"
    ),
    "LigerFusedCETVDFunction": lambda: ops.LigerFusedCETVDFunction.apply(t(N, V), t(N, V, grad=False), ids(N, high=V)),
    "LigerFusedLinearCrossEntropyFunction": lambda: ops.LigerFusedLinearCrossEntropyFunction.apply(
        t(N, H), t(V, H), ids(N, high=V)
    ),
    "LigerFusedLinearJSDFunction": lambda: ops.LigerFusedLinearJSDFunction.apply(
        t(N, H), t(V, H), t(N, H, grad=False), t(V, H, grad=False)
    ),
    "LigerFusedLinearKLDivFunction": lambda: ops.LigerFusedLinearKLDivFunction.apply(
        t(N, H), t(V, H), torch.softmax(t(N, V, grad=False), -1)
    ),
    "LigerFusedMoEFunction": _moe,
    "LigerFusedNeighborhoodAttentionFunction": lambda: ops.LigerFusedNeighborhoodAttentionFunction.apply(
        t(2, 4, 128, 64), t(2, 4, 128, 64), t(2, 4, 128, 64), 7, 1, None
    ),
    "LigerGELUMulFunction": lambda: ops.LigerGELUMulFunction.apply(t(N, H), t(N, H)),
    "LigerGroupNormFunction": lambda: ops.LigerGroupNormFunction.apply(t(4, 32, 1024), t(32), t(32), 32, 8, 1e-6),
    "GrpoLossFunction": lambda: _grpo("grpo"),
    "GrpoLossFunction/dapo": lambda: _grpo("dapo"),
    "GrpoLossFunction/cispo": lambda: _grpo("cispo"),
    "GrpoLossFunction/sapo": lambda: _grpo("sapo"),
    "GrpoLossFunction/sequence": lambda: _grpo("grpo", "sequence"),
    "fused_selective_log_softmax": lambda: fused_selective_log_softmax(t(4, 65, V, grad=False), ids(4, 64, high=V)),
    "LigerJSDFunction": lambda: _jsd(0.5),
    "LigerJSDFunction/forward-kl": lambda: _jsd(0.0),
    "LigerJSDFunction/reverse-kl": lambda: _jsd(1.0),
    "LigerKLDivLossFunction": lambda: ops.LigerKLDivLossFunction.apply(
        t(N, V), t(N, V, grad=False), "batchmean", False, 1e-10
    ),
    "LigerKLDivLossFunction/log": lambda: ops.LigerKLDivLossFunction.apply(
        t(N, V), t(N, V, grad=False), "none", True, 1e-10
    ),
    "LigerLayerNormFunction": lambda: ops.LigerLayerNormFunction.apply(t(N, H), t(H), t(H), 1e-6),
    "LigerLlama4RopeFunction": _llama4_rope,
    "LigerMHCCoeffsFunction": _mhc_coeffs,
    "LigerMHCPostResFunction": lambda: ops.LigerMHCPostResFunction.apply(
        t(128, 4, 256), t(128, 256), t(128, 4, dtype=F32), t(128, 4, 4, dtype=F32)
    ),
    "LigerMHCPreFunction": lambda: ops.LigerMHCPreFunction.apply(t(128, 4, 256), t(128, 4, dtype=F32)),
    "LigerMLPFunction": lambda: ops.LigerMLPFunction.apply(t(2, 128, 512), t(1024, 512), t(1024, 512), t(512, 1024)),
    "LigerModulatedRMSNormFunction": lambda: ops.LigerModulatedRMSNormFunction.apply(
        t(2, 256, H), t(H), t(2, 1, H), t(2, 1, H), 1e-6
    ),
    "LigerMultiTokenAttentionFunction": lambda: ops.LigerMultiTokenAttentionFunction.apply(
        t(2, 4, 64, 64), t(4, 4, 3, 3), t(4), 1, 1, 1, 1, False
    ),
    "LigerMultiTokenAttentionFunction/sparse": lambda: ops.LigerMultiTokenAttentionFunction.apply(
        t(2, 4, 64, 64, dtype=F32), t(4, 4, 3, 3, dtype=F32), t(4, dtype=F32), 1, 1, 1, 1, True
    ),
    "LigerPolyNormFunction": lambda: ops.LigerPolyNormFunction.apply(t(N, H), t(3), t(1)[0].detach(), 1e-6, True),
    "LigerQwen2VLMRopeFunction": _mrope,
    "LigerReLUSquaredFunction": lambda: ops.LigerReLUSquaredFunction.apply(t(N, H)),
    "LigerRMSNormFunction": lambda: ops.LigerRMSNormFunction.apply(t(N, H), t(H), 1e-6, 0.0, "llama", True, True),
    "LigerRMSNormFunction/block": lambda: ops.LigerRMSNormFunction.apply(
        t(64 * N, 128), t(128), 1e-6, 0.0, "llama", False, None
    ),
    "LigerRMSNormFunction/gemma": lambda: ops.LigerRMSNormFunction.apply(t(N, H), t(H), 1e-6, 1.0, "gemma", True, True),
    "LigerRMSNormFunction/none": lambda: ops.LigerRMSNormFunction.apply(t(N, H), t(H), 1e-6, 0.0, "none", True, True),
    "LigerRopeFunction": _rope,
    "LigerSoftmaxFunction": lambda: ops.LigerSoftmaxFunction.apply(t(N, H)),
    "LigerSoftmaxFunction/long": lambda: ops.LigerSoftmaxFunction.apply(t(4, 65536)),
    "LigerSparsemaxFunction": lambda: ops.LigerSparsemaxFunction.apply(t(N, H), -1),
    "LigerFusedGateUpSiLUMulFunction": lambda: ops.LigerFusedGateUpSiLUMulFunction.apply(t(N, 2 * H), False),
    "LigerSiLUMulFunction": lambda: ops.LigerSiLUMulFunction.apply(t(N, H), t(N, H)),
    "LigerSiLUMulFunction/tiled": lambda: ops.LigerSiLUMulFunction.apply(t(64, 32768), t(64, 32768)),
    "LigerTiledMLPFunction": _tiled_mlp,
    "LigerTVDLossFunction": lambda: ops.LigerTVDLossFunction.apply(
        torch.softmax(t(N, V, grad=False), -1).requires_grad_(), torch.softmax(t(N, V, grad=False), -1)
    ),
    "mm_int8int2.matmul": _int8int2,
}


def public() -> set[str]:
    """The operations the package offers: every autograd function of ``liger_kernel.ops``, and two without one."""
    functions = {name for name in vars(ops) if name.endswith("Function")}
    return functions | {"fused_selective_log_softmax", "mm_int8int2.matmul"}


if __name__ == "__main__":
    run(CASES, sys.argv[2:], sys.argv[1], public())
