"""fla-core 0.6.0: its public operators under contracts, one function each (``verify_libraries.py`` runs them).

Log gates are made with ``logsigmoid`` and keys of the delta rules are given length 1, as the library's documentation
does; it gives no meaning to others. Each autotuner is left its first configuration: tuning them takes minutes a shape,
so CFG-01 has nothing to compare here. ``chunk_delta_rule`` refuses float32. The recurrent gated delta rule and the
cumulative sums have no backward.
"""

from __future__ import annotations

import functools
import importlib
import sys

import fla_references as right
import torch.nn.functional as F

import kcontract

ALL = ("float32", "float16", "bfloat16")
#: Sizes of the chunked operators: each head count and head width is a kernel of its own, compiled for minutes.
CHUNKED = {"batch": (1, 8), "length": (1, 1 << 20), "length2": (3, 3), "width": (16, 64), "length3": (16, 64)}
MULTIPLES = {"width": 16, "length3": 16}
#: A size that may be 0 is no use of these operators; a head is at most 256 wide.
SIZES = {"batch": (1, 1 << 16), "length": (1, 1 << 20), "length2": (1, 1 << 10), "width": (1, 256), "length3": (1, 256)}
#: Taps are unrolled in the kernel: few are meant.
FEW_TAPS = {**SIZES, "length2": (1, 8)}


@functools.cache
def fla(name: str):
    """A module of fla, each autotuner of the library left its first configuration."""
    from triton.runtime.autotuner import Autotuner

    found = importlib.import_module(f"fla.{name}")
    for module in [m for n, m in sys.modules.items() if n.startswith("fla.")]:
        for kernel in vars(module).values():
            while kernel is not None and type(kernel).__module__.startswith(("triton.", "fla.")):
                if isinstance(kernel, Autotuner):
                    kernel.configs = kernel.configs[:1]
                kernel = getattr(kernel, "fn", None)
    return found


@kcontract.contract(reference=right.rms_norm, inputs=right.scaled, gradients=True, dtypes=ALL, ranges=SIZES)
def rms_norm(x, w):
    return fla("modules.layernorm").rms_norm(x, w, None, eps=right.EPS)


@kcontract.contract(reference=right.layer_norm, inputs=right.affine, gradients=True, dtypes=ALL, ranges=SIZES)
def layer_norm(x, w, b):
    return fla("modules.layernorm").layer_norm(x, w, b, eps=right.EPS)


@kcontract.contract(reference=right.group_norm, inputs=right.affine, gradients=True, dtypes=ALL, ranges=SIZES)
def group_norm(x, w, b):
    return fla("modules.layernorm").group_norm(x, w, b, eps=right.EPS, num_groups=4)


@kcontract.contract(reference=right.rms_norm_gated, inputs=right.gated, gradients=True, dtypes=ALL, ranges=SIZES)
def rms_norm_gated(x, g, w):
    return fla("modules.fused_norm_gate").rms_norm_gated(x, g, w, None, eps=right.EPS)


@kcontract.contract(
    reference=right.layer_norm_gated, inputs=right.gated_affine, gradients=True, dtypes=ALL, ranges=SIZES
)
def layer_norm_gated(x, g, w, b):
    return fla("modules.fused_norm_gate").layer_norm_gated(x, g, w, b, eps=right.EPS)


@kcontract.contract(reference=right.l2norm, inputs=right.rows, gradients=True, dtypes=ALL, ranges=SIZES)
def l2norm(x):
    return fla("modules.l2norm").l2norm(x, eps=right.EPS)


@kcontract.contract(reference=right.swiglu, inputs=right.pairs, gradients=True, dtypes=ALL, ranges=SIZES)
def swiglu(x, y):
    return fla("modules.activations").swiglu(x, y)


@kcontract.contract(reference=right.logsigmoid, inputs=right.rows, gradients=True, dtypes=ALL, ranges=SIZES)
def logsigmoid(x):
    return fla("modules.activations").logsigmoid(x)


@kcontract.contract(reference=right.sigmoid, inputs=right.rows, gradients=True, dtypes=ALL, ranges=SIZES)
def sigmoid(x):
    return fla("modules.activations").sigmoid(x)


@kcontract.contract(reference=right.rotary, inputs=right.rotated, gradients=True, dtypes=ALL, ranges=SIZES)
def rotary(x, cos, sin):
    return fla("modules.rotary").rotary_embedding(x, cos, sin)


@kcontract.contract(reference=right.token_shift, inputs=right.sequence, gradients=True, dtypes=ALL, ranges=SIZES)
def token_shift(x):
    return fla("modules.token_shift").token_shift(x)


@kcontract.contract(reference=right.convolution, inputs=right.convolved, gradients=True, dtypes=ALL, ranges=FEW_TAPS)
def short_convolution(x, w, b):
    return fla("modules.convolution").causal_conv1d(x, w, b, activation="silu")[0]


@kcontract.contract(
    reference=right.mean_pooling, inputs=right.sequence_of_heads, gradients=True, dtypes=ALL, ranges=SIZES
)
def mean_pooling(x):
    return fla("ops.utils.pooling").mean_pooling(x, right.CHUNK)


@kcontract.contract(reference=right.cumsum, inputs=right.heads_of_scalars, dtypes=ALL, ranges=SIZES)
def chunk_global_cumsum(x):
    return fla("ops.utils.cumsum").chunk_global_cumsum(x, output_dtype=x.dtype)


@kcontract.contract(reference=right.cumsum_in_chunks, inputs=right.heads_of_scalars, dtypes=ALL, ranges=SIZES)
def chunk_local_cumsum(x):
    return fla("ops.utils.cumsum").chunk_local_cumsum(x, right.CHUNK, output_dtype=x.dtype)


@kcontract.contract(reference=right.cross_entropy, inputs=right.labelled, gradients=True, dtypes=ALL, ranges=SIZES)
def cross_entropy(x, target):
    loss = fla("modules.fused_cross_entropy").cross_entropy_loss
    return loss(x, target, ignore_index=right.IGNORED, label_smoothing=0.1)[0]


@kcontract.contract(
    reference=right.linear_cross_entropy, inputs=right.projected, gradients=True, dtypes=ALL, ranges=SIZES
)
def fused_linear_cross_entropy(x, target, w, b):
    loss = fla("modules.fused_linear_cross_entropy").fused_linear_cross_entropy_loss
    return loss(x, target, w, b, ignore_index=right.IGNORED)


@kcontract.contract(reference=right.hgrn, inputs=right.gates, gradients=True, dtypes=ALL, ranges=SIZES)
def fused_recurrent_hgrn(x, g):
    return fla("ops.hgrn").fused_recurrent_hgrn(x, F.logsigmoid(g))[0]


@kcontract.contract(
    reference=right.linear_attention_steps, inputs=right.short_qkv, gradients=True, dtypes=ALL, ranges=SIZES
)
def fused_recurrent_linear_attn(q, k, v):
    return fla("ops.linear_attn").fused_recurrent_linear_attn(q, k, v, normalize=False)[0]


@kcontract.contract(
    reference=right.linear_attention, inputs=right.qkv, gradients=True, dtypes=ALL, ranges=CHUNKED, divisible=MULTIPLES
)
def chunk_linear_attn(q, k, v):
    return fla("ops.linear_attn").chunk_linear_attn(q, k, v, normalize=False)[0]


@kcontract.contract(
    reference=right.retention, inputs=right.qkv, gradients=True, dtypes=ALL, ranges=CHUNKED, divisible=MULTIPLES
)
def chunk_retention(q, k, v):
    return fla("ops.retention").chunk_retention(q, k, v)[0]


@kcontract.contract(
    reference=right.simple_gla, inputs=right.short_qkv_and_gate, gradients=True, dtypes=ALL, ranges=SIZES
)
def fused_recurrent_simple_gla(q, k, v, g):
    return fla("ops.simple_gla").fused_recurrent_simple_gla(q, k, v, F.logsigmoid(g))[0]


@kcontract.contract(
    reference=right.simple_gla,
    inputs=right.qkv_and_gate,
    gradients=True,
    dtypes=ALL,
    ranges=CHUNKED,
    divisible=MULTIPLES,
)
def chunk_simple_gla(q, k, v, g):
    return fla("ops.simple_gla").chunk_simple_gla(q, k, v, F.logsigmoid(g))[0]


@kcontract.contract(reference=right.gla, inputs=right.short_qkv_and_gates, gradients=True, dtypes=ALL, ranges=SIZES)
def fused_recurrent_gla(q, k, v, g):
    return fla("ops.gla").fused_recurrent_gla(q, k, v, F.logsigmoid(g))[0]


@kcontract.contract(
    reference=right.gla, inputs=right.qkv_and_gates, gradients=True, dtypes=ALL, ranges=CHUNKED, divisible=MULTIPLES
)
def chunk_gla(q, k, v, g):
    return fla("ops.gla").chunk_gla(q, k, v, F.logsigmoid(g))[0]


@kcontract.contract(
    reference=right.delta_rule_steps, inputs=right.short_qkv_and_gate, gradients=True, dtypes=ALL, ranges=SIZES
)
def fused_recurrent_delta_rule(q, k, v, beta):
    return fla("ops.delta_rule").fused_recurrent_delta_rule(q, right.l2norm(k), v, beta.sigmoid())[0]


@kcontract.contract(
    reference=right.delta_rule, inputs=right.qkv_and_gate_in_half, gradients=True, dtypes=("bfloat16", "float16"),
    ranges=CHUNKED, divisible=MULTIPLES,
)  # fmt: skip
def chunk_delta_rule(q, k, v, beta):
    return fla("ops.delta_rule").chunk_delta_rule(q, right.l2norm(k), v, beta.sigmoid())[0]


@kcontract.contract(
    reference=right.gated_delta_rule_steps, inputs=right.short_qkv_and_two_gates, dtypes=ALL, ranges=SIZES
)
def fused_recurrent_gated_delta_rule(q, k, v, gates):
    g, beta = gates.unbind(-1)
    rule = fla("ops.gated_delta_rule").fused_recurrent_gated_delta_rule
    return rule(q, right.l2norm(k), v, F.logsigmoid(g), beta=beta.sigmoid())[0]


@kcontract.contract(
    reference=right.gated_delta_rule,
    inputs=right.qkv_and_two_gates,
    gradients=True,
    dtypes=ALL,
    ranges=CHUNKED,
    divisible=MULTIPLES,
)
def chunk_gated_delta_rule(q, k, v, gates):
    g, beta = gates.unbind(-1)
    return fla("ops.gated_delta_rule").chunk_gated_delta_rule(q, right.l2norm(k), v, F.logsigmoid(g), beta.sigmoid())[0]


@kcontract.contract(
    reference=right.attention, inputs=right.qkv, gradients=True, dtypes=ALL, ranges=CHUNKED, divisible=MULTIPLES
)
def parallel_attn(q, k, v):
    return fla("ops.attn").parallel_attn(q, k, v)
