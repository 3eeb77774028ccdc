"""The table of fla-core: one call a public operation, and more where an option selects other kernels."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from cases import BF16, Case, backward, ids, t
from fla import modules, ops
from fla_args import F32, B, H, K, T, V, call, gate, rate, seq, unit


def _op(name: str, package: str | None = None, **options: Callable[[], Any]) -> Case:
    """A call of ``fla.ops.NAME`` (or of ``fla.ops.PACKAGE.NAME``)."""

    def run() -> Any:
        home = importlib.import_module(f"fla.ops.{package}") if package else ops
        return call(getattr(home, name), **{key: make() for key, make in options.items()})

    return run


def _module(name: str, *arguments: Any, inputs: Callable[[], tuple[Any, ...]], **options: Any) -> Case:
    """A forward of the module class ``fla.modules.NAME``."""

    def run() -> Any:
        module = getattr(modules, name)(*arguments, **options).to("cuda", BF16)
        return module(*inputs())

    return run


def _function(package: str, name: str, *inputs: Callable[[], Any], **options: Any) -> Case:
    """A call of ``fla.modules.PACKAGE.NAME``."""

    def run() -> Any:
        function = getattr(importlib.import_module(f"fla.modules.{package}"), name)
        return function(*(make() for make in inputs), **options)

    return run


def cu_seqlens() -> torch.Tensor:
    """Three sequences of unequal length in one row."""
    return torch.tensor([0, 100, 130, T], device="cuda", dtype=torch.long)


def _packed(*tail: int) -> torch.Tensor:
    return t(1, T, H, *tail)


VARLEN: dict[str, Callable[[], Any]] = {
    "q": lambda: _packed(K),
    "k": lambda: _packed(K),
    "v": lambda: _packed(V),
    "cu_seqlens": cu_seqlens,
}
HIDDEN = 256
BTD = (B, T, HIDDEN)


def _x() -> tuple[torch.Tensor]:
    return (t(*BTD),)


def _xx() -> tuple[torch.Tensor, torch.Tensor]:
    return t(*BTD), t(*BTD)


def _linear() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return t(*BTD), t(HIDDEN, HIDDEN), t(HIDDEN)


def _true(make: Any = True) -> Callable[[], Any]:
    return lambda: make


def _cyfa() -> dict[str, Callable[[], Any]]:
    return {
        "delta": lambda: gate(),
        "readout": lambda: t(H, 15, 15, dtype=F32),
        "q_norm_weight": lambda: t(K),
        "k_norm_weight": lambda: t(K),
        "q_norm_eps": _true(1e-6),
        "k_norm_eps": _true(1e-6),
    }


def _wall_decode() -> Any:
    from fla.ops.wall_attn import build_wall_kv_cache

    k, g = seq(K), gate(K)
    k_tilde, r_cache = build_wall_kv_cache(k.detach(), g.detach().cumsum(1), 64)
    return ops.parallel_wall_attn_decode(
        t(B, 1, H, K), seq(V), torch.ones(B, 1, H, K, device="cuda"), k_tilde, r_cache, None, 0.125, 64
    )


def _ttt(name: str, package: str = "ttt") -> Case:
    return _op(
        name,
        package,
        w=lambda: t(H, V),
        b=lambda: t(H, V),
        eta=lambda: rate(1),
        chunk_size=_true(16),
    )


OPS: dict[str, Case] = {
    "chunk_abc": _op("chunk_abc"),
    "chunk_comba": _op("chunk_comba", beta=rate),
    "chunk_cyfa": _op("chunk_cyfa", **_cyfa()),
    "chunk_delta_rule": _op("chunk_delta_rule"),
    "chunk_delta_rule/varlen": _op("chunk_delta_rule", **VARLEN, beta=lambda: t(1, T, H).sigmoid().detach()),
    "chunk_dplr_delta_rule": _op("chunk_dplr_delta_rule"),
    "chunk_gated_delta_rule": _op("chunk_gated_delta_rule"),
    "chunk_gated_delta_rule/l2norm": _op("chunk_gated_delta_rule", use_qk_l2norm_in_kernel=_true()),
    "chunk_gated_delta_rule/state": _op(
        "chunk_gated_delta_rule", initial_state=lambda: t(B, H, K, V, dtype=F32), output_final_state=_true()
    ),
    "chunk_gated_delta_rule/fp16": _op(
        "chunk_gated_delta_rule",
        **{name: (lambda: seq(K, dtype=torch.float16)) for name in ("q", "k", "v")},
        beta=lambda: torch.rand(B, T, H, device="cuda").half().requires_grad_(),
    ),
    "chunk_gdn": _op("chunk_gdn"),
    "chunk_gla": _op("chunk_gla", g=lambda: gate(K)),
    "chunk_gla/varlen": _op("chunk_gla", **VARLEN, g=lambda: -torch.rand(1, T, H, K, device="cuda")),
    "chunk_gsa": _op("chunk_gsa", g=lambda: gate(32)),
    "chunk_iplr_delta_rule": _op("chunk_iplr_delta_rule"),
    "chunk_kda": _op("chunk_kda", g=lambda: gate(K)),
    "chunk_lightning_attn": _op("chunk_lightning_attn"),
    "chunk_linear_attn": _op("chunk_linear_attn"),
    "chunk_log_linear_attn": _op("chunk_log_linear_attn", level_scales=lambda: rate(9)),
    "chunk_mesa_net": _op("chunk_mesa_net"),
    "chunk_momentum_delta_rule": _op("chunk_momentum_delta_rule"),
    "chunk_precond_gated_delta_rule": _op("chunk_precond_gated_delta_rule"),
    "chunk_precond_kda": _op("chunk_precond_kda", g=lambda: gate(K)),
    "chunk_retention": _op("chunk_retention"),
    "chunk_rwkv6": _op("chunk_rwkv6", w=lambda: gate(K)),
    "chunk_rwkv7": _op("chunk_rwkv7", w=lambda: gate(K)),
    "chunk_simple_gla": _op("chunk_simple_gla", g=gate),
    "fused_attnres": _op(
        "fused_attnres",
        query=lambda: t(HIDDEN),
        residuals=lambda: [t(*BTD) for _ in range(4)],
        rms_weight=lambda: t(HIDDEN),
    ),
    "fused_chunk_based": _op("fused_chunk_based", q=lambda: seq(16), k=lambda: seq(16)),
    "fused_chunk_linear_attn": _op("fused_chunk_linear_attn"),
    "fused_chunk_retention": _op("fused_chunk_retention"),
    "fused_chunk_simple_gla": _op("fused_chunk_simple_gla", g=gate),
    "fused_recurrent_comba": _op("fused_recurrent_comba", beta=rate),
    "fused_recurrent_cyfa": _op("fused_recurrent_cyfa", **_cyfa()),
    "fused_recurrent_delta_rule": _op("fused_recurrent_delta_rule", beta=rate),
    "fused_recurrent_dplr_delta_rule": _op("fused_recurrent_dplr_delta_rule"),
    "fused_recurrent_gated_delta_rule": _op("fused_recurrent_gated_delta_rule", g=gate, beta=rate),
    "fused_recurrent_gdn": _op("fused_recurrent_gdn", g=gate, beta=rate),
    "fused_recurrent_gla": _op("fused_recurrent_gla", gk=lambda: gate(K)),
    "fused_recurrent_gsa": _op("fused_recurrent_gsa", g=lambda: gate(32)),
    "fused_recurrent_hgrn": _op(
        "fused_recurrent_hgrn", x=lambda: t(B, T, HIDDEN), g=lambda: -t(B, T, HIDDEN).abs().detach()
    ),
    "fused_recurrent_iplr_delta_rule": _op("fused_recurrent_iplr_delta_rule"),
    "fused_recurrent_kda": _op("fused_recurrent_kda", g=lambda: gate(K)),
    "fused_recurrent_lightning_attn": _op("fused_recurrent_lightning_attn"),
    "fused_recurrent_linear_attn": _op("fused_recurrent_linear_attn"),
    "fused_recurrent_momentum_delta_rule": _op("fused_recurrent_momentum_delta_rule"),
    "fused_recurrent_precond_gated_delta_rule": _op(
        "fused_recurrent_precond_gated_delta_rule", g=gate, beta=rate, g_atk=gate, beta_atk=rate
    ),
    "fused_recurrent_precond_kda": _op("fused_recurrent_precond_kda", g=lambda: gate(K)),
    "fused_recurrent_retention": _op("fused_recurrent_retention"),
    "fused_recurrent_rwkv6": _op("fused_recurrent_rwkv6", w=lambda: gate(K)),
    "fused_recurrent_rwkv7": _op("fused_recurrent_rwkv7", w=lambda: gate(K)),
    "fused_recurrent_simple_gla": _op("fused_recurrent_simple_gla", g=gate),
    "parallel_attn": _op("parallel_attn"),
    "parallel_attn/varlen": _op("parallel_attn", **VARLEN),
    "parallel_based": _op("parallel_based", q=lambda: seq(16), k=lambda: seq(16)),
    "parallel_forgetting_attn": _op("parallel_forgetting_attn"),
    "parallel_nsa": _op(
        "parallel_nsa",
        q=lambda: t(B, T, 16, K),
        k=lambda: t(B, T, 1, K),
        v=lambda: t(B, T, 1, V),
        **{name: (lambda: t(B, T, 16).sigmoid().detach().requires_grad_()) for name in ("g_cmp", "g_slc", "g_swa")},
        block_counts=_true(4),
        block_size=_true(32),
    ),
    "parallel_parallax": _op("parallel_parallax"),
    "parallel_path_attn": _op(
        "parallel_path_attn", g=gate, w=lambda: F.normalize(seq(K, dtype=F32), dim=-1), beta=lambda: rate().float()
    ),
    "parallel_retention": _op("parallel_retention"),
    "parallel_simple_gla": _op("parallel_simple_gla", g=gate),
    "parallel_stickbreaking_attn": _op("parallel_stickbreaking_attn"),
    "parallel_wall_attn": _op("parallel_wall_attn", g=lambda: gate(K)),
    "parallel_wall_attn_decode": _wall_decode,
    "chunk_gated_delta_product": _op(
        "chunk_gated_delta_product",
        "gated_delta_product",
        k=lambda: t(B, 2 * T, H, K),
        v=lambda: t(B, 2 * T, H, V),
        beta=lambda: t(B, 2 * T, H).sigmoid().detach().requires_grad_(),
    ),
    "chunk_gated_oja_rule": _op("chunk_gated_oja_rule", "gated_oja_rule", gv=lambda: gate(V)),
    "fused_recurrent_gated_oja_rule": _op(
        "fused_recurrent_gated_oja_rule", "gated_oja_rule", gv=lambda: gate(V), beta=rate
    ),
    "chunk_gdn2": _op("chunk_gdn2", "gdn2", g=lambda: gate(K), b=lambda: rate(K), w=lambda: rate(V)),
    "fused_recurrent_gdn2": _op(
        "fused_recurrent_gdn2", "gdn2", g=lambda: gate(K), b=lambda: rate(K), w=lambda: rate(V)
    ),
    "chunk_hgrn": _op("chunk_hgrn", "hgrn", x=lambda: t(B, T, HIDDEN), g=lambda: -t(B, T, HIDDEN).abs().detach()),
    "chunk_lightnet": _op("chunk_lightnet", "lightnet"),
    "fused_recurrent_lightnet": _op("fused_recurrent_lightnet", "lightnet"),
    "mesa_net_decoding_one_step": _op(
        "mesa_net_decoding_one_step",
        "mesa_net",
        **{name: (lambda: t(B, H, K)) for name in ("q", "k", "v")},
        **{name: (lambda: t(B, H).sigmoid().detach()) for name in ("g", "beta")},
        prev_h_kk=lambda: t(B, H, K, K, dtype=F32),
        prev_h_kv=lambda: t(B, H, K, V, dtype=F32),
    ),
    "parallel_rebased": _op("parallel_rebased", "rebased", q=lambda: seq(16), k=lambda: seq(16)),
    "fused_recurrent_rwkv4": _op(
        "fused_recurrent_rwkv4",
        "rwkv4",
        w=lambda: t(HIDDEN, dtype=F32),
        u=lambda: t(HIDDEN, dtype=F32),
        k=lambda: t(B, T, HIDDEN, dtype=F32),
        v=lambda: t(B, T, HIDDEN, dtype=F32),
        state=lambda: t(B, 3, 1, HIDDEN, dtype=F32),
    ),
    "fused_mul_recurrent_rwkv7": _op("fused_mul_recurrent_rwkv7", "rwkv7", w=lambda: gate(K), kk=lambda: unit(K)),
    "chunk_ttt_linear": _ttt("chunk_ttt_linear"),
    "fused_chunk_ttt_linear": _ttt("fused_chunk_ttt_linear"),
    "chunk_atk_fwd": _op("chunk_atk_fwd", "atk", log_g=gate),
    "recompute_atk_fwd": _op("recompute_atk_fwd", "atk", log_g=gate),
    "chunk_global_cumsum": _op("chunk_global_cumsum", "utils", s=gate),
    "chunk_global_cumsum_scalar": _op("chunk_global_cumsum_scalar", "utils", s=gate),
    "chunk_global_cumsum_vector": _op("chunk_global_cumsum_vector", "utils", s=lambda: gate(K)),
    "chunk_local_cumsum": _op("chunk_local_cumsum", "utils", chunk_size=_true(64)),
    "chunk_local_cumsum_scalar": _op("chunk_local_cumsum_scalar", "utils", chunk_size=_true(64)),
    "chunk_local_cumsum_vector": _op("chunk_local_cumsum_vector", "utils", g=lambda: gate(K), chunk_size=_true(64)),
    "logsumexp_fwd": _op("logsumexp_fwd", "utils", x=lambda: t(*BTD)),
    "matmul": _op("matmul", "utils", a=lambda: t(256, 256), b=lambda: t(256, 256)),
    "addmm": _op("addmm", "utils", x=lambda: t(256, 256), a=lambda: t(256, 256), b=lambda: t(256, 256)),
    "mean_pooling": _op("mean_pooling", "utils", x=lambda: seq(K), chunk_size=_true(64)),
    "pack_sequence": _op("pack_sequence", "utils", x=lambda: t(3, 126, HIDDEN), cu_seqlens=cu_seqlens),
    "unpack_sequence": _op("unpack_sequence", "utils", x=lambda: t(T, HIDDEN), cu_seqlens=cu_seqlens),
    "softmax_fwd": _op("softmax_fwd", "utils", x=lambda: t(*BTD)),
    "softmax_bwd": _op("softmax_bwd", "utils", p=lambda: t(*BTD), dp=lambda: t(*BTD)),
    "sinkhorn": _op("sinkhorn", "utils", logits=lambda: t(B, T, 4, 4, dtype=F32)),
    "solve_tril": _op("solve_tril", "utils", A=lambda: seq(64, dtype=F32)),
    "prepare_position_ids": _op("prepare_position_ids", "utils", cu_seqlens=cu_seqlens),
    "build_wall_kv_cache": _op("build_wall_kv_cache", "wall_attn", g_cumsum=lambda: gate(K), chunk_size=_true(64)),
}

_NORMS = ("LayerNorm", "RMSNorm")
_GATED = ("FusedLayerNormGated", "FusedLayerNormSwishGate", "FusedRMSNormGated", "FusedRMSNormSwishGate")
_GATED_LINEAR = ("FusedLayerNormSwishGateLinear", "FusedRMSNormSwishGateLinear")

MODULES: dict[str, Case] = {
    **{name: _module(name, HIDDEN, inputs=_x) for name in _NORMS},
    **{name: _module(name, HIDDEN, inputs=_xx) for name in _GATED},
    **{name: _module(name, HIDDEN, inputs=lambda: (*_xx(), t(HIDDEN, HIDDEN), t(HIDDEN))) for name in _GATED_LINEAR},
    **{
        name: _module(name, HIDDEN, inputs=lambda: (t(*BTD), t(HIDDEN, HIDDEN), t(HIDDEN)))
        for name in ("LayerNormLinear", "RMSNormLinear")
    },
    "GroupNorm": _module("GroupNorm", 4, HIDDEN, inputs=_x),
    "GroupNormLinear": _module("GroupNormLinear", 4, HIDDEN, inputs=lambda: (t(*BTD), t(HIDDEN, HIDDEN), t(HIDDEN))),
    "L2Norm": _module("L2Norm", inputs=lambda: (seq(K),)),
    "BitLinear": _module("BitLinear", HIDDEN, HIDDEN, inputs=_x),
    "FusedBitLinear": _module("FusedBitLinear", HIDDEN, HIDDEN, inputs=_x),
    "FusedCrossEntropyLoss": _module("FusedCrossEntropyLoss", inputs=lambda: (t(512, 4096), ids(512, high=4096))),
    "FusedKLDivLoss": _module(
        "FusedKLDivLoss",
        inputs=lambda: (
            t(512, HIDDEN),
            t(512, HIDDEN, grad=False),
            t(4096, HIDDEN),
            t(4096, HIDDEN, grad=False),
        ),
    ),
    "FusedLinearCrossEntropyLoss": _module(
        "FusedLinearCrossEntropyLoss", inputs=lambda: (t(512, HIDDEN), ids(512, high=4096), t(4096, HIDDEN))
    ),
    "GatedMLP": _module("GatedMLP", HIDDEN, inputs=_x),
    "ShortConvolution": _module("ShortConvolution", HIDDEN, 4, inputs=_x),
    "ShortConvolution/bias": _module("ShortConvolution", HIDDEN, 4, bias=True, activation=None, inputs=_x),
    "RotaryEmbedding": _module("RotaryEmbedding", K, inputs=lambda: (seq(K), seq(K))),
    "TokenShift": _function("token_shift", "token_shift", lambda: t(*BTD)),
    **{
        name: _function("activations", name, lambda: t(*BTD))
        for name in ("logsigmoid", "sigmoid", "sqrelu", "swish", "fast_gelu_impl")
    },
    **{name: _function("activations", name, *[lambda: t(*BTD)] * 2) for name in ("swiglu", "sigmoidglu", "powglu")},
    **{
        name: _function("activations", name, *[lambda: t(*BTD)] * 2, lambda: t(HIDDEN, HIDDEN), lambda: t(HIDDEN))
        for name in ("swiglu_linear", "sigmoidglu_linear", "powglu_linear")
    },
    "causal_conv1d": _function(
        "causal_conv1d", "causal_conv1d", lambda: t(*BTD), lambda: t(HIDDEN, 4), activation="silu"
    ),
    "causal_conv1d_update": _function(
        *("causal_conv1d", "causal_conv1d_update", lambda: t(B, 1, HIDDEN, grad=False)),
        lambda: t(B, HIDDEN, 4, grad=False),
        None.__class__,
        lambda: t(HIDDEN, 4),
    ),
    "fused_grpo_loss": _function(
        *("grpo", "fused_grpo_loss", lambda: t(4, 65, 4096), lambda: t(4, 64, dtype=F32, grad=False)),
        lambda: ids(4, 64, high=4096),
        lambda: t(4, dtype=F32, grad=False),
    ),
    "rotary_embedding": _function(
        "rotary", "rotary_embedding", lambda: seq(K), *[lambda: t(T, K // 2, grad=False)] * 2
    ),
    "rms_norm_linear_quant": _function(
        *("fused_bitlinear", "rms_norm_linear_quant", lambda: t(*BTD), lambda: t(HIDDEN), lambda: t(HIDDEN)),
        *(lambda: t(HIDDEN, HIDDEN), lambda: t(HIDDEN)),
    ),
    **{
        name: (
            lambda name=name: getattr(importlib.import_module("fla.modules.norm"), name)(HIDDEN).to("cuda", BF16)(
                *_xx()
            )
        )
        for name in ("LayerNormGated", "RMSNormGated")
    },
}


def _gluon(case: Case) -> Case:
    """The case with the library's Gluon kernels chosen, which its environment variable does at each call."""

    def run() -> None:
        os.environ["FLA_GLUON"] = "1"
        try:
            backward(case())
        finally:
            del os.environ["FLA_GLUON"]

    return run


_WITH_GLUON = ("causal_conv1d", "FusedCrossEntropyLoss", "sinkhorn", "fused_attnres")

CASES: dict[str, Case] = {**OPS, **MODULES}
CASES |= {f"{name}/gluon": _gluon(CASES[name]) for name in _WITH_GLUON}

#: The library has no backward for these.
FORWARD_ONLY = {
    "chunk_iplr_delta_rule",
    "fused_recurrent_comba",
    "fused_recurrent_cyfa",
    "fused_recurrent_dplr_delta_rule",
    "fused_recurrent_gated_delta_rule",
    "fused_recurrent_gated_oja_rule",
    "fused_recurrent_gdn",
    "fused_recurrent_precond_gated_delta_rule",
    "fused_recurrent_rwkv7",
}
