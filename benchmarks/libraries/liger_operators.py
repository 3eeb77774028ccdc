"""Liger-Kernel 0.8.5: its public operators under contracts, one function each (``verify_libraries.py`` runs them).

``determinism="bounded"`` where the library adds gradients with atomics or says so. ``in_place=False`` where the library
offers the choice: with it on, a backward overwrites the gradient it is given, which its documentation says. SwiGLU,
GEGLU and the cross entropies keep their gradients in the memory of their inputs, so they are given copies.
``poly_norm`` takes the bias as a scalar: its backward gives no other shape. docs/verified_findings.md tells what was
found.
"""

from __future__ import annotations

import liger_references as right
import torch

import kcontract

HALVES = ("float32", "float16", "bfloat16")
#: A size that may be 0 is no use of these operators.
SIZES = {"batch": (1, 1 << 16), "width": (1, 65536)}
#: Blocks are unrolled in the kernels: few are meant. Streams are four, as in the paper; only powers of two compile.
BLOCKS = {**SIZES, "batch": (1, 16)}
STREAMS = {**SIZES, "length": (4, 4)}


@kcontract.contract(reference=right.rms_norm, inputs=right.one_norm, gradients=True, dtypes=HALVES, ranges=SIZES)
def rms_norm_llama(x, w):
    from liger_kernel.transformers.functional import liger_rms_norm

    return liger_rms_norm(x, w, right.EPS, 0.0, "llama", False)


@kcontract.contract(
    reference=right.rms_norm_from_one, inputs=right.one_norm, gradients=True, dtypes=HALVES, ranges=SIZES
)
def rms_norm_gemma(x, w):
    from liger_kernel.transformers.functional import liger_rms_norm

    return liger_rms_norm(x, w, right.EPS, 1.0, "gemma", False)


@kcontract.contract(
    reference=right.added_rms_norm, inputs=right.added_norm, gradients=True, dtypes=HALVES, ranges=SIZES
)
def fused_add_rms_norm(x, r, w):
    from liger_kernel.transformers.functional import liger_fused_add_rms_norm

    return liger_fused_add_rms_norm(x, r, w, right.EPS, 0.0, "llama", False)


@kcontract.contract(
    reference=right.modulated_rms_norm, inputs=right.modulated, gradients=True, dtypes=HALVES, ranges=SIZES
)
def modulated_rms_norm(x, w, scale, shift):
    from liger_kernel.transformers.functional import liger_modulated_rms_norm

    return liger_modulated_rms_norm(x, w, scale, shift, right.EPS, 0.0, "llama", False)


@kcontract.contract(reference=right.layer_norm, inputs=right.affine, gradients=True, dtypes=HALVES, ranges=SIZES)
def layer_norm(x, w, b):
    from liger_kernel.transformers.functional import liger_layer_norm

    return liger_layer_norm(x, w, b, right.EPS)


@kcontract.contract(
    reference=right.group_norm, inputs=right.channels, gradients=True, dtypes=HALVES, ranges=SIZES,
    determinism="bounded",
)  # fmt: skip
def group_norm(x, w, b):
    from liger_kernel.transformers.functional import liger_group_norm

    return liger_group_norm(x, w, b, 8, 4, right.EPS)


@kcontract.contract(
    reference=right.poly_norm,
    inputs=right.polynomial,
    gradients=True,
    dtypes=HALVES,
    ranges={**SIZES, "length": (3, 3)},
)
def poly_norm(x, w, b):
    from liger_kernel.transformers.functional import liger_poly_norm

    return liger_poly_norm(x, w, b.squeeze(0), right.EPS, False)


@kcontract.contract(reference=right.tanh_norm, inputs=right.dynamic_tanh, gradients=True, dtypes=HALVES, ranges=SIZES)
def dyt(x, alpha, gamma, beta):
    from liger_kernel.transformers.functional import liger_dyt

    return liger_dyt(x, alpha, gamma, beta)


@kcontract.contract(reference=right.softmax, inputs=right.rows, gradients=True, dtypes=HALVES, ranges=SIZES)
def softmax(x):
    from liger_kernel.transformers.functional import liger_softmax

    return liger_softmax(x)


@kcontract.contract(reference=right.sparsemax, inputs=right.rows, gradients=True, dtypes=HALVES, ranges=SIZES)
def sparsemax(x):
    from liger_kernel.transformers.functional import liger_sparsemax

    return liger_sparsemax(x, -1)


@kcontract.contract(reference=right.silu_mul, inputs=right.pairs, gradients=True, dtypes=HALVES, ranges=SIZES)
def swiglu(a, b):
    from liger_kernel.transformers.functional import liger_swiglu

    return liger_swiglu(a.clone(), b.clone())


@kcontract.contract(reference=right.gelu_mul, inputs=right.pairs, gradients=True, dtypes=HALVES, ranges=SIZES)
def geglu(a, b):
    from liger_kernel.transformers.functional import liger_geglu

    return liger_geglu(a.clone(), b.clone())


@kcontract.contract(
    reference=right.gate_up, inputs=right.fused_halves, gradients=True, dtypes=HALVES, ranges=SIZES,
    divisible={"width": 2},
)  # fmt: skip
def fused_gate_up_swiglu(y):
    from liger_kernel.ops import LigerFusedGateUpSiLUMulFunction

    return LigerFusedGateUpSiLUMulFunction.apply(y, False)


@kcontract.contract(reference=right.relu_squared, inputs=right.rows, gradients=True, dtypes=HALVES, ranges=SIZES)
def relu_squared(x):
    from liger_kernel.transformers.functional import liger_relu_squared

    return liger_relu_squared(x)


@kcontract.contract(reference=right.rope, inputs=right.heads, gradients=True, dtypes=HALVES, ranges=SIZES)
def rope(q, k, cos, sin):
    from liger_kernel.transformers.functional import liger_rope

    return liger_rope(q, k, cos, sin)


@kcontract.contract(
    reference=right.embedding, inputs=right.table, gradients=True, dtypes=HALVES, ranges=SIZES, determinism="bounded"
)
def embedding(w, index):
    from liger_kernel.ops import LigerEmbeddingFunction

    return LigerEmbeddingFunction.apply(w, index)


@kcontract.contract(
    reference=right.attention_residual, inputs=right.blocks, gradients=True, dtypes=HALVES, ranges=BLOCKS,
    determinism="bounded",
)  # fmt: skip
def attn_res(v, query, w):
    from liger_kernel.transformers.functional import liger_attn_res

    return liger_attn_res(v, query, w, right.EPS)


@kcontract.contract(
    reference=right.stream_pre, inputs=right.streams, gradients=True, dtypes=HALVES, ranges=STREAMS,
    determinism="bounded",
)  # fmt: skip
def mhc_pre(x, h):
    from liger_kernel.transformers.functional import liger_mhc_pre

    return liger_mhc_pre(x, h)


@kcontract.contract(
    reference=right.stream_post, inputs=right.residual_streams, gradients=True, dtypes=HALVES, ranges=STREAMS,
    determinism="bounded",
)  # fmt: skip
def mhc_post_res(x, f, h, mix):
    from liger_kernel.transformers.functional import liger_mhc_post_res

    return liger_mhc_post_res(x, f, h, mix)


@kcontract.contract(reference=right.cross_entropy, inputs=right.labelled, gradients=True, dtypes=HALVES, ranges=SIZES)
def cross_entropy(x, target):
    from liger_kernel.transformers.functional import liger_cross_entropy

    return liger_cross_entropy(x.clone(), target, ignore_index=right.IGNORED)


@kcontract.contract(
    reference=right.cross_entropy_smoothed, inputs=right.labelled, gradients=True, dtypes=HALVES, ranges=SIZES
)
def cross_entropy_smoothed(x, target):
    from liger_kernel.transformers.functional import liger_cross_entropy

    return liger_cross_entropy(
        x.clone(), target, ignore_index=right.IGNORED, reduction="sum", label_smoothing=0.1, lse_square_scale=1e-2
    )


@kcontract.contract(
    reference=right.cross_entropy_capped, inputs=right.labelled, gradients=True, dtypes=HALVES, ranges=SIZES
)
def cross_entropy_capped(x, target):
    from liger_kernel.transformers.functional import liger_cross_entropy

    return liger_cross_entropy(x.clone(), target, ignore_index=right.IGNORED, reduction="none", softcap=30.0)


@kcontract.contract(
    reference=right.linear_cross_entropy, inputs=right.projected, gradients=True, dtypes=HALVES, ranges=SIZES
)
def fused_linear_cross_entropy(x, w, target):
    from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

    return liger_fused_linear_cross_entropy(x, w, target, ignore_index=right.IGNORED, accum_dtype=torch.float32)


@kcontract.contract(
    reference=right.linear_cross_entropy,
    inputs=right.projected_from_frozen,
    gradients=True,
    dtypes=HALVES,
    ranges=SIZES,
)
def fused_linear_cross_entropy_of_frozen(x, w, target):
    from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

    return liger_fused_linear_cross_entropy(x, w, target, ignore_index=right.IGNORED, accum_dtype=torch.float32)


@kcontract.contract(
    reference=right.kl_div, inputs=right.log_and_probabilities, gradients=True, dtypes=HALVES, ranges=SIZES
)
def kl_div(x, target):
    from liger_kernel.transformers.functional import liger_kl_div

    return liger_kl_div(x, target, reduction="batchmean")


@kcontract.contract(reference=right.kl_div_of_logs, inputs=right.two_logs, gradients=True, dtypes=HALVES, ranges=SIZES)
def kl_div_of_logs(x, target):
    from liger_kernel.transformers.functional import liger_kl_div

    return liger_kl_div(x, target, reduction="mean", log_target=True)


@kcontract.contract(reference=right.jsd, inputs=right.two_logs, gradients=True, dtypes=HALVES, ranges=SIZES)
def jsd(x, y):
    from liger_kernel.transformers.functional import liger_jsd

    return liger_jsd(x, y)


@kcontract.contract(reference=right.tvd, inputs=right.two_probabilities, gradients=True, dtypes=HALVES, ranges=SIZES)
def tvd(p, q):
    from liger_kernel.transformers.functional import liger_tvd

    return liger_tvd(p, q, reduction="batchmean")


@kcontract.contract(reference=right.linear_jsd, inputs=right.distilled, gradients=True, dtypes=HALVES, ranges=SIZES)
def fused_linear_jsd(x, w, teacher, teacher_w):
    from liger_kernel.transformers.functional import liger_fused_linear_jsd

    return liger_fused_linear_jsd(x, w, teacher, teacher_w, accum_dtype=torch.float32)
