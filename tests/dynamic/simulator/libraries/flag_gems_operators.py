"""Operators of flag-gems, each once with small tensors: their PTX feeds the coverage page, their results are compared.

    GEMS_VENDOR=nvidia kcontract run --target sm_90 --max-configs 1 --keep OUT -- python flag_gems_operators.py LOG
    GEMS_VENDOR=nvidia kcontract run --engine sim:sm_90 --max-configs 1 -- python flag_gems_operators.py LOG compare

The first compiles only. The second runs those that torch has under the same name, and compares.
LOG gets a line an operator: its name, and why it ended early or was wrong if so. Needs
``flag_gems`` 5.0.2 and ``sqlalchemy``. Triton 3.9 no longer has block pointers, which the pointwise operators use by
default; there they are generated with plain pointers, which the library offers as well.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import flag_gems
import torch
import triton
from flag_gems import fused, ops
from flag_gems.utils.codegen_config_utils import CODEGEN_COFIGS

F32, F16, BF16, I32, I64 = torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64
Call = Callable[..., Any]
Case = tuple[str, Call, "Call | None"]

UNARY = """abs acos angle arcsinh atan ceil celu cos cosh digamma_ elu erf exp exp2 expm1 floor_ gelu hardsigmoid
hardswish_ i0 isfinite isinf isnan isneginf log log10 log1p_ log_sigmoid logical_not logit nan_to_num neg reciprocal
relu relu6 round rsqrt selu sgn_ sigmoid signbit silu sin sinh_ softplus softshrink special_i0e special_i1 sqrt square
tan tanh arctanh_ all any amax argmax argmin aminmax count_nonzero max mean min nonzero prod std sum var vector_norm
var_mean sort cumsum contiguous triu tril trace exponential_ normal_ uniform_ bernoulli_ rand_like randn_like
ones_like zeros_like""".split()
BINARY = """add atan2 copysign div_mode eq equal floor_divide fmin ge gt hypot isclose le logaddexp logical_and
logical_or logical_xor lt maximum minimum mse_loss mul ne pow_tensor_tensor remainder sub true_divide allclose
gelu_backward sigmoid_backward silu_backward tanh_backward soft_margin_loss""".split()
DIMENSION = """all_dim any_dim argmax argmin cummax cummin cumsum max_dim mean_dim min_dim prod_dim sum_dim var_dim
softmax log_softmax glu normed_cumsum std var_mean quantile _safe_softmax""".split()
#: These take several dimensions at once.
_LISTS = ("mean_dim", "sum_dim", "var_dim", "var_mean")
INTEGER = """abs add bitwise_and_tensor bitwise_or_tensor eq floor_divide
maximum mul remainder sub isin sum max argmax cumsum sort _unique2 unique_consecutive bitwise_not prod""".split()
_OF_TWO = """add bitwise_and_tensor bitwise_or_tensor eq floor_divide maximum mul
remainder sub isin""".split()
PRODUCTS: dict[str, tuple[tuple[int, ...], ...]] = {
    "mm": ((128, 256), (256, 128)), "bmm": ((2, 128, 64), (2, 64, 128)), "mv": ((128, 256), (256,)),
    "addmm": ((128,), (128, 256), (256, 128)), "baddbmm": ((2, 128, 128), (2, 128, 64), (2, 64, 128)),
    "addmv": ((128,), (128, 256), (256,)), "addr": ((128, 64), (128,), (64,)), "dot": ((4096,), (4096,)),
    "vdot": ((4096,), (4096,)), "kron": ((16, 16), (8, 8)), "scaled_dot_product_attention": ((2, 4, 128, 64),) * 3,
    "conv1d": ((2, 16, 128), (32, 16, 3)), "conv2d": ((2, 16, 32, 32), (32, 16, 3, 3)),
    "conv3d": ((1, 8, 8, 16, 16), (16, 8, 3, 3, 3)),
    "hadamard_transform": ((16, 256),), "prelu": ((16, 64), (64,)), "margin_ranking_loss": ((64,),) * 3,
    "addcdiv": ((64, 64),) * 3, "addcmul": ((64, 64),) * 3, "lerp_tensor": ((64, 64),) * 3, "polar": ((64, 64),) * 2,
}  # fmt: skip


def t(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


def ids(*shape: int, high: int, dtype: torch.dtype = I64) -> torch.Tensor:
    return torch.randint(0, high, shape, device="cuda").to(dtype)


def reference(name: str) -> Call | None:
    """torch's function of the same name, if there is one of its own and it draws no random numbers."""
    if "rand" in name or name in ("exponential_", "normal_", "uniform_", "bernoulli_", "hypot", "div_mode"):
        return None
    plain = re.sub("(_tensor_tensor|_tensor|_dim|_)$", "", name).removeprefix("special_")
    places = (torch, torch.special, torch.nn.functional)
    return next((getattr(place, plain) for place in places if hasattr(place, plain)), None)


def operator(name: str, label: str, *arguments: Any) -> Case:
    """A call of an operator and of its reference on the same arguments."""
    given = [x.clone() if isinstance(x, torch.Tensor) else x for x in arguments]
    wanted = reference(name)
    return f"{name} {label}", lambda: getattr(ops, name)(*given), wanted and (lambda: wanted(*arguments))


def cases() -> Iterator[Case]:
    """Name, call, and what it should give where that is known."""
    for name, call in special():
        yield name, call, None
    for name in UNARY:
        yield operator(name, "", t(64, 300))
    for name in BINARY:
        yield operator(name, "", t(64, 300, dtype=F16), t(64, 300, dtype=F16))
    for name in DIMENSION:
        for dtype, dim in ((F32, 1), (BF16, 0)):
            arguments = [0.5, dim] if name == "quantile" else [[dim]] if name in _LISTS else [dim]
            yield operator(name, f"{dim} {dtype}", t(64, 300, dtype=dtype), *arguments)
    for dtype in (I32, I64):
        for name in INTEGER:
            count = 2 if name in _OF_TWO else 1
            yield operator(
                name,
                str(dtype),
                *(ids(2000, high=30, dtype=dtype) + 1 for _ in range(count)),
                *[0] * (name == "cumsum"),
            )
    for dtype in (F32, F16, BF16):
        for name, shapes in PRODUCTS.items():
            yield operator(name, str(dtype), *(t(*shape, dtype=dtype) for shape in shapes))


def special() -> Iterator[tuple[str, Call]]:
    """Operators with arguments of their own."""
    x, w = t(64, 256, dtype=F16), t(256, dtype=F16)
    picture = t(2, 16, 32, 32, dtype=F16)
    at = ids(32, high=64)
    mask = t(64, 256) > 0
    yield "layer_norm", lambda: ops.layer_norm(x, (256,), w, w)
    yield "layer_norm long", lambda: ops.layer_norm(t(4, 20000), (20000,), t(20000), t(20000))
    yield "rms_norm", lambda: ops.rms_norm_forward(x, (256,), w)
    yield "group_norm", lambda: ops.group_norm(picture, w[:16], w[:16], 2, 16, 1024, 4)
    yield "batch_norm", lambda: ops.batch_norm(picture, w[:16], w[:16], t(16), t(16).abs(), True)
    yield "instance_norm", lambda: fused.instance_norm(picture, w[:16], w[:16])
    yield "skip_layer_norm", lambda: fused.skip_layer_norm(x, x, (256,), w, w)
    yield "fused_add_rms_norm", lambda: fused.fused_add_rms_norm(x, x.clone(), (256,), w)
    yield "avg_pool2d", lambda: ops.avg_pool2d(picture, 2)
    yield "max_pool2d", lambda: ops.max_pool2d_with_indices(picture, 2)
    yield "upsample_nearest2d", lambda: ops.upsample_nearest2d(picture, (64, 64))
    yield "upsample_bicubic2d_aa", lambda: ops._upsample_bicubic2d_aa(t(1, 2, 16, 16), (32, 32))
    yield "upsample_bicubic2d", lambda: ops.upsample_bicubic2d(t(1, 2, 16, 16), (32, 32))
    yield "upsample_linear1d", lambda: ops.upsample_linear1d(t(2, 4, 64), (128,), False)
    yield "pad", lambda: ops.pad(picture, (1, 1, 1, 1))
    yield "reflection_pad2d", lambda: ops.reflection_pad2d(picture, (1, 1, 1, 1))
    yield "embedding", lambda: ops.embedding(x, at)
    yield "embedding_backward", lambda: ops.embedding_backward(t(32, 256, dtype=F16), at, 64)
    yield "gather", lambda: ops.gather(t(64, 256), 1, ids(64, 32, high=256))
    yield "scatter", lambda: ops.scatter(t(64, 256), 1, ids(64, 32, high=256), t(64, 32))
    yield "scatter add", lambda: ops.scatter(t(64, 256), 1, ids(64, 32, high=256), t(64, 32), reduce="add")
    yield "scatter_add_", lambda: ops.scatter_add_(t(64, 256), 1, ids(64, 32, high=256), t(64, 32))
    yield "index", lambda: ops.index(x, [at])
    yield "index_put", lambda: ops.index_put(t(64, 256), [at], t(32, 256), True)
    yield "index_add", lambda: ops.index_add(t(64, 256), 0, at, t(32, 256))
    yield "index_select", lambda: ops.index_select(x, 0, at)
    yield "masked_fill", lambda: ops.masked_fill(x, mask, 0.0)
    yield "masked_select", lambda: ops.masked_select(x, mask)
    yield "masked_scatter", lambda: ops.masked_scatter(t(64, 256), mask, t(64, 256))
    yield "where", lambda: ops.where_self(mask, x, x)
    yield "topk", lambda: ops.topk(t(64, 500), 8)
    yield "sort long", lambda: ops.sort(t(4, 5000))
    yield "multinomial", lambda: ops.multinomial(t(8, 256).abs(), 4, True)
    yield "dropout", lambda: ops.dropout(x, 0.5)
    yield "randn", lambda: ops.randn((64, 64), device="cuda")
    yield "randperm", lambda: ops.randperm(1000, device="cuda")
    yield "arange", lambda: ops.arange(1000, device="cuda")
    yield "linspace", lambda: ops.linspace(0.0, 1.0, 100, device="cuda")
    yield "logspace", lambda: ops.logspace(0.0, 1.0, 100, device="cuda")
    yield "eye", lambda: ops.eye(64, device="cuda")
    yield "cat", lambda: ops.cat([x, x])
    yield "repeat", lambda: ops.repeat(x, (2, 2))
    yield "repeat_interleave", lambda: ops.repeat_interleave_self_int(x, 2)
    yield "nll_loss", lambda: ops.nll_loss_forward(t(64, 100), ids(64, high=100))
    yield "cross_entropy_loss", lambda: fused.cross_entropy_loss(t(64, 100), ids(64, high=100))
    yield "cross_entropy smooth", lambda: fused.cross_entropy_loss(t(64, 99), ids(64, high=99), label_smoothing=0.1)
    yield "weight_norm", lambda: ops.weight_norm_interface(t(64, 100), t(64, 1))
    yield "scaled_softmax", lambda: ops.scaled_softmax_forward(t(1, 2, 64, 64, dtype=F16), 0.5)
    yield "quant fp8", lambda: ops.per_token_group_quant_fp8(t(64, 256, dtype=BF16), 128)
    yield "act_quant", lambda: ops.act_quant_triton(t(64, 256, dtype=BF16))
    fp8 = t(128, 256).to(torch.float8_e4m3fn)
    yield "w8a8", lambda: ops.w8a8_block_fp8_matmul(fp8, fp8, t(128, 2), t(1, 2), [128, 128])
    yield "fp8_matmul", lambda: ops.fp8_matmul(fp8, t(128, 2), fp8, t(1, 2))
    yield "group_mm", lambda: ops.group_mm(x, t(2, 256, 128, dtype=F16), torch.tensor([32, 64]).int().cuda())
    yield (
        "attention causal",
        lambda: ops.scaled_dot_product_attention(*(t(1, 4, 256, 64, dtype=F16),) * 3, is_causal=True),
    )
    q = t(1, 128, 4, 64, dtype=BF16)
    yield "flash", lambda: ops.flash_attention_forward(q, q, q, None, None, 128, 128, 0.0, True, False)
    yield "bincount", lambda: fused.bincount(ids(1000, high=50))
    yield "moe_sum", lambda: fused.moe_sum(t(64, 2, 128, dtype=F16), t(64, 128, dtype=F16))
    yield (
        "topk_softmax",
        lambda: fused.topk_softmax(t(64, 2), ids(64, 2, high=8, dtype=I32), ids(64, 2, high=8, dtype=I32), t(64, 8)),
    )
    yield "grouped_topk", lambda: fused.grouped_topk(t(64, 64), 8, 4, 4, True, 1.0, t(64))
    yield "rotary", lambda: fused.apply_rotary_pos_emb(t(2, 64, 4, 64), t(2, 64, 4, 64), t(64, 32), t(64, 32))
    for name in ("silu_and_mul", "gelu_and_mul"):
        yield name, lambda n=name: getattr(fused, n)(x, x)
    for name in ("geglu", "reglu", "swiglu"):
        yield name, lambda n=name: getattr(fused, n)(x)
    yield "outer", lambda: fused.outer(w, w)


def compare(found: Any, wanted: Any) -> None:
    """Raises where they differ by more than rounding."""
    if isinstance(found, (tuple, list)):
        for one, other in zip(found, wanted, strict=False):  # of a named tuple maybe the first only
            compare(one, other)
        return
    found, wanted = torch.as_tensor(found), torch.as_tensor(wanted)
    rough = wanted.dtype in (F16, BF16)
    torch.testing.assert_close(
        found.double(), wanted.double(), rtol=2e-2 if rough else 1e-4, atol=2e-2 if rough else 1e-4, equal_nan=True
    )


def main(log: str, *options: str) -> None:
    assert flag_gems.device == "cuda"
    torch.manual_seed(0)
    if tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 9):
        for config in filter(None, CODEGEN_COFIGS.values()):
            config.prefer_block_pointer = False
    with open(log, "a") as file:
        for name, call, wanted in cases():
            if "compare" in options and wanted is None:
                continue
            reason = ""
            try:
                found = call()
                if "compare" in options:
                    compare(found, wanted())
            except Exception as error:
                reason = f"{type(error).__name__}: {str(error).strip()[:200]}"
            print(json.dumps({"operator": name, "reason": reason}), file=file, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
