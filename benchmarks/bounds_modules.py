"""Seventy small modules in the manner of kernel benchmarks: layers, fusions of a few operations, and little networks.

Each builds its module and inputs at a scale (1 for honest runs, more to measure cost). Written for this benchmark.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Tensor = Any


class Call(nn.Module):
    """A module of parts and a function over them: forward(*x) = fn(parts, *x)."""

    def __init__(self, fn: Callable[..., Any], *parts: nn.Module, **parameters: Any) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.fn = fn
        for name, value in parameters.items():
            setattr(self, name, nn.Parameter(value))

    def forward(self, *x: Tensor) -> Any:
        return self.fn(self, *x)


@dataclass(frozen=True)
class Case:
    """One module: ``build(scale)`` returns it with the shapes of its inputs. ``held_out`` took no part in tuning."""

    name: str
    build: Callable[[int], tuple[nn.Module, list[tuple[int, ...]]]]
    held_out: bool = False
    train: bool = True


ALL: list[Case] = []


def case(name: str, held_out: bool = False, train: bool = True) -> Any:
    """Register the decorated builder."""

    def register(fn: Any) -> Any:
        ALL.append(Case(name, fn, held_out, train))
        return fn

    return register


def _simple(name: str, fn: Callable[..., Any], *shapes: tuple[int, ...], held_out: bool = False) -> None:
    """A function of tensors whose first and last axes grow with the scale."""

    def build(scale: int) -> tuple[nn.Module, list[tuple[int, ...]]]:
        return Call(lambda _, *x: fn(*x)), [(s[0] * scale, *s[1:-1], s[-1] * scale) for s in shapes]

    ALL.append(Case(name, build, held_out))


def _chain(
    name: str, make: Callable[[int], list[nn.Module]], shape: Callable[[int], tuple[int, ...]], held_out: bool = False
) -> None:
    ALL.append(Case(name, lambda s: (nn.Sequential(*make(s)), [shape(s)]), held_out))


# activations and elementwise
_simple("relu", torch.relu, (16, 128))
_simple("gelu", F.gelu, (16, 128))
_simple("gelu tanh", lambda x: F.gelu(x, approximate="tanh"), (16, 128), held_out=True)
_simple("silu", F.silu, (16, 128))
_simple("mish", F.mish, (16, 128))
_simple("softplus", F.softplus, (16, 128))
_simple("elu", F.elu, (16, 128))
_simple("selu", F.selu, (16, 128), held_out=True)
_simple("hardswish", F.hardswish, (16, 128))
_simple("hardsigmoid", F.hardsigmoid, (16, 128), held_out=True)
_simple("leaky relu", lambda x: F.leaky_relu(x, 0.1), (16, 128))
_simple("hardtanh", F.hardtanh, (16, 128))
_simple("softsign", F.softsign, (16, 128), held_out=True)
_simple("swish gate", lambda a, b: F.silu(a) * b, (16, 128), (16, 128))
_simple("log sigmoid", F.logsigmoid, (16, 128), held_out=True)
_simple("tanh shrink", lambda x: x - torch.tanh(x), (16, 128), held_out=True)

# reductions and losses
_simple("softmax", lambda x: torch.softmax(x, -1), (8, 256))
_simple("log softmax", lambda x: torch.log_softmax(x, -1), (8, 256))
_simple("sum and scale", lambda x: x.sum(-1) * 0.25, (8, 256))
_simple("mean over middle", lambda x: x.mean(1), (4, 16, 32))
_simple("max reduce", lambda x: x.max(-1).values, (8, 256))
_simple("min reduce", lambda x: x.amin(-1), (8, 256), held_out=True)
_simple("argmax", lambda x: x.argmax(-1), (8, 256))
_simple("variance", lambda x: x.var(-1), (8, 256))
_simple("frobenius normalise", lambda x: x / x.norm(), (8, 256))
_simple("l1 normalise", lambda x: x / x.abs().mean(-1, keepdim=True), (8, 256), held_out=True)
_simple("l2 normalise", lambda x: F.normalize(x, dim=-1), (8, 256))
_simple("cumsum", lambda x: x.cumsum(-1), (8, 256))
_simple("reverse cumsum", lambda x: x.flip(-1).cumsum(-1).flip(-1), (8, 256), held_out=True)
_simple("masked cumsum", lambda x: (x * (x > 0)).cumsum(-1), (8, 256), held_out=True)
_simple("mse loss", F.mse_loss, (8, 256), (8, 256))
_simple("huber loss", F.smooth_l1_loss, (8, 256), (8, 256), held_out=True)
_simple("hinge loss", lambda x, t: torch.clamp(1 - x * torch.sign(t), min=0).mean(), (8, 256), (8, 256))
_simple("cosine loss", lambda a, b: 1 - F.cosine_similarity(a, b, dim=-1).mean(), (8, 256), (8, 256))
_simple(
    "kl loss",
    lambda a, b: F.kl_div(F.log_softmax(a, -1), F.softmax(b, -1), reduction="batchmean"),
    (8, 128),
    (8, 128),
    held_out=True,
)
_simple("triplet loss", lambda a, p, n: F.triplet_margin_loss(a, p, n), (8, 64), (8, 64), (8, 64), held_out=True)
_simple(
    "bce with logits",
    lambda x, t: F.binary_cross_entropy_with_logits(x, torch.sigmoid(t)),
    (8, 64),
    (8, 64),
    held_out=True,
)


# products
def _mm(
    name: str, fn: Callable[..., Any], shapes: Callable[[int], list[tuple[int, ...]]], held_out: bool = False
) -> None:
    ALL.append(Case(name, lambda s: (Call(lambda _, *x: fn(*x)), shapes(s)), held_out))


_mm("square matmul", torch.matmul, lambda s: [(32 * s, 64 * s), (64 * s, 32 * s)])
_mm("batched matmul", torch.bmm, lambda s: [(4, 16 * s, 32 * s), (4, 32 * s, 16 * s)])
_mm("matrix vector", lambda a, b: a @ b, lambda s: [(32 * s, 128 * s), (128 * s, 1)])
_mm("tall skinny", lambda a, b: a @ b.transpose(0, 1), lambda s: [(64 * s, 8), (48 * s, 8)], held_out=True)
_mm(
    "lower triangular",
    lambda a, b: torch.tril(torch.tril(a) @ torch.tril(b)),
    lambda s: [(32 * s, 32 * s)] * 2,
    held_out=True,
)
_mm("diagonal product", lambda d, a: d.unsqueeze(1) * a, lambda s: [(64 * s,), (64 * s, 32 * s)])
_mm(
    "einsum 4d",
    lambda a, b: torch.einsum("bijl,lk->bijk", a, b),
    lambda s: [(2, 4, 8, 32 * s), (32 * s, 16 * s)],
    held_out=True,
)
_mm("gram matrix", lambda x: x @ x.t() / x.shape[1], lambda s: [(16 * s, 64 * s)], held_out=True)

# linear fusions
_chain("mlp", lambda s: [nn.Linear(64 * s, 128 * s), nn.ReLU(), nn.Linear(128 * s, 32)], lambda s: (16 * s, 64 * s))
_chain(
    "deep mlp",
    lambda s: [m for _ in range(4) for m in (nn.Linear(64 * s, 64 * s), nn.GELU())],
    lambda s: (8 * s, 64 * s),
    held_out=True,
)
_chain(
    "linear layernorm gelu",
    lambda s: [nn.Linear(64 * s, 64 * s), nn.LayerNorm(64 * s), nn.GELU()],
    lambda s: (16 * s, 64 * s),
)
_chain(
    "linear dropout-free groupnorm",
    lambda s: [nn.Linear(64 * s, 64 * s), nn.GroupNorm(8, 64 * s), nn.Hardtanh()],
    lambda s: (16 * s, 64 * s),
)
_chain(
    "linear batchnorm swish",
    lambda s: [nn.Linear(64 * s, 64 * s), nn.BatchNorm1d(64 * s), nn.SiLU()],
    lambda s: (16 * s, 64 * s),
    held_out=True,
)
_chain(
    "linear mish mish",
    lambda s: [nn.Linear(64 * s, 64 * s), nn.Mish(), nn.Mish()],
    lambda s: (16 * s, 64 * s),
    held_out=True,
)


@case("linear scale residual clamp lse mish")
def _(s: int) -> Any:
    def fn(m: Any, x: Tensor) -> Tensor:
        x = m.parts[0](x) * 2.0
        x = torch.clamp(x + x, -10.0, 10.0)
        x = torch.logsumexp(x, 1, keepdim=True)
        return x * F.mish(x)

    return Call(fn, nn.Linear(64 * s, 64 * s)), [(16 * s, 64 * s)]


@case("linear subtract mean pool lse gelu", held_out=True)
def _(s: int) -> Any:
    def fn(m: Any, x: Tensor) -> Tensor:
        y = m.parts[0](x) - m.shift
        y = F.gelu(torch.logsumexp(y.mean(1, keepdim=True), 1, keepdim=True))
        return y + x

    return Call(fn, nn.Linear(64 * s, 64 * s), shift=torch.randn(64 * s)), [(16 * s, 64 * s)]


@case("linear sigmoid sum lse")
def _(s: int) -> Any:
    return (
        Call(
            lambda m, x: torch.logsumexp(torch.sigmoid(m.parts[0](x)).sum(1, keepdim=True), 0),
            nn.Linear(64 * s, 64 * s),
        ),
        [(16 * s, 64 * s)],
    )


@case("linear maxpool sum scale")
def _(s: int) -> Any:
    def fn(m: Any, x: Tensor) -> Tensor:
        return F.max_pool1d(m.parts[0](x).unsqueeze(1), 2).squeeze(1).sum(1) * 0.5

    return Call(fn, nn.Linear(64 * s, 64 * s)), [(16 * s, 64 * s)]


# convolutions
_chain("conv2d", lambda s: [nn.Conv2d(3, 8 * s, 3, padding=1)], lambda s: (2, 3, 12 * s, 12 * s))
_chain("conv1d dilated", lambda s: [nn.Conv1d(4, 8 * s, 3, stride=2, dilation=2)], lambda s: (2, 4, 64 * s))
_chain("conv3d", lambda s: [nn.Conv3d(3, 4 * s, 3)], lambda s: (1, 3, 6 * s, 6 * s, 6 * s), held_out=True)
_chain(
    "depthwise separable",
    lambda s: [nn.Conv2d(8, 8, 3, groups=8, padding=1), nn.Conv2d(8, 8 * s, 1)],
    lambda s: (2, 8, 10 * s, 10 * s),
)
_chain(
    "transposed conv2d",
    lambda s: [nn.ConvTranspose2d(6, 4 * s, 3, stride=2, padding=1)],
    lambda s: (2, 6, 8 * s, 8 * s),
)
_chain(
    "conv relu pool", lambda s: [nn.Conv2d(3, 8 * s, 3), nn.ReLU(), nn.MaxPool2d(2)], lambda s: (2, 3, 14 * s, 14 * s)
)
_chain(
    "conv batchnorm relu",
    lambda s: [nn.Conv2d(3, 8 * s, 3), nn.BatchNorm2d(8 * s), nn.ReLU()],
    lambda s: (4, 3, 10 * s, 10 * s),
)
_chain(
    "conv groupnorm tanh hardswish",
    lambda s: [nn.Conv2d(3, 8 * s, 3), nn.GroupNorm(4, 8 * s), nn.Tanh(), nn.Hardswish()],
    lambda s: (2, 3, 12 * s, 12 * s),
)
_chain(
    "conv instancenorm avgpool",
    lambda s: [nn.Conv2d(3, 8 * s, 3), nn.InstanceNorm2d(8 * s), nn.AvgPool2d(2)],
    lambda s: (2, 3, 12 * s, 12 * s),
    held_out=True,
)
_chain(
    "transposed conv softmax sigmoid",
    lambda s: [nn.ConvTranspose2d(6, 8 * s, 3), nn.Softmax(1), nn.Sigmoid()],
    lambda s: (2, 6, 8 * s, 8 * s),
    held_out=True,
)
_chain(
    "conv global pool linear",
    lambda s: [nn.Conv2d(3, 16 * s, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16 * s, 10)],
    lambda s: (2, 3, 12 * s, 12 * s),
)


@case("conv min tanh bias", held_out=True)
def _(s: int) -> Any:
    def fn(m: Any, x: Tensor) -> Tensor:
        return torch.tanh(torch.tanh(m.parts[0](x).amin(1, keepdim=True))) + m.bias

    return Call(fn, nn.Conv2d(3, 8 * s, 3), bias=torch.randn(1, 1, 1)), [(2, 3, 12 * s, 12 * s)]


@case("conv divide lse", held_out=True)
def _(s: int) -> Any:
    return Call(lambda m, x: torch.logsumexp(m.parts[0](x) / 2.0, (2, 3)), nn.Conv2d(3, 8 * s, 3)), [
        (2, 3, 12 * s, 12 * s)
    ]


@case("residual block")
def _(s: int) -> Any:
    def fn(m: Any, x: Tensor) -> Tensor:
        y = torch.relu(m.parts[1](m.parts[0](x)))
        return torch.relu(m.parts[3](m.parts[2](y)) + x)

    c = 8 * s
    return Call(
        fn, nn.Conv2d(c, c, 3, padding=1), nn.BatchNorm2d(c), nn.Conv2d(c, c, 3, padding=1), nn.BatchNorm2d(c)
    ), [(2, c, 8 * s, 8 * s)]


@case("squeeze excite", held_out=True)
def _(s: int) -> Any:
    def fn(m: Any, x: Tensor) -> Tensor:
        w = torch.sigmoid(m.parts[1](torch.relu(m.parts[0](x.mean((2, 3))))))
        return x * w[:, :, None, None]

    return Call(fn, nn.Linear(16 * s, 4 * s), nn.Linear(4 * s, 16 * s)), [(2, 16 * s, 8 * s, 8 * s)]


@case("tiny lenet", held_out=True)
def _(s: int) -> Any:
    side = (((16 * s - 4) // 2) - 4) // 2
    layers = [
        nn.Conv2d(1, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
    ]
    return nn.Sequential(*layers, nn.Linear(16 * side * side, 32), nn.ReLU(), nn.Linear(32, 10)), [
        (2, 1, 16 * s, 16 * s)
    ]


# attention and sequence models
@case("scaled dot product attention")
def _(s: int) -> Any:
    return Call(lambda _, q, k, v: F.scaled_dot_product_attention(q, k, v)), [(2, 2, 16 * s, 32)] * 3


@case("causal attention")
def _(s: int) -> Any:
    return Call(lambda _, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)), [(2, 2, 16 * s, 32)] * 3


@case("multihead attention", held_out=True)
def _(s: int) -> Any:
    return Call(lambda m, x: m.parts[0](x, x, x)[0], nn.MultiheadAttention(32 * s, 4, batch_first=True)), [
        (2, 16, 32 * s)
    ]


@case("relu attention", held_out=True)
def _(s: int) -> Any:
    def fn(m: Any, x: Tensor) -> Tensor:
        q, k, v = m.parts[0](x).chunk(3, -1)
        mask = torch.ones(x.shape[1], x.shape[1], device=x.device).tril() > 0
        a = (q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])).masked_fill(~mask, float("-inf"))
        return torch.relu(a) @ v

    return Call(fn, nn.Linear(32 * s, 96 * s)), [(2, 16, 32 * s)]


@case("transformer block")
def _(s: int) -> Any:
    layer = nn.TransformerEncoderLayer(
        32 * s, 4, 64 * s, dropout=0.0, batch_first=True, activation="gelu", norm_first=True
    )
    return layer, [(2, 16, 32 * s)]


@case("rms norm swiglu block", held_out=True)
def _(s: int) -> Any:
    def fn(m: Any, x: Tensor) -> Tensor:
        h = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * m.scale
        return x + m.parts[2](F.silu(m.parts[0](h)) * m.parts[1](h))

    d = 32 * s
    layers = [nn.Linear(a, b, bias=False) for a, b in ((d, 2 * d), (d, 2 * d), (2 * d, d))]
    return Call(fn, *layers, scale=torch.ones(d)), [(4, 8, d)]


@case("lstm")
def _(s: int) -> Any:
    return Call(lambda m, x: m.parts[0](x)[0], nn.LSTM(16 * s, 16 * s, batch_first=True)), [(2, 8, 16 * s)]


@case("gru", held_out=True)
def _(s: int) -> Any:
    return Call(lambda m, x: m.parts[0](x)[0], nn.GRU(16 * s, 16 * s, 2, batch_first=True)), [(2, 8, 16 * s)]


@case("rnn with a loop and in-place writes")
def _(s: int) -> Any:
    def fn(m: Any, x: Tensor) -> Tensor:
        h = torch.zeros(x.shape[0], x.shape[2], device=x.device, dtype=x.dtype)
        out = torch.zeros_like(x)
        for t in range(x.shape[1]):
            h = torch.tanh(m.parts[0](torch.cat([x[:, t], h], -1)))
            out[:, t] = h
        return out

    return Call(fn, nn.Linear(32 * s, 16 * s)), [(2, 8, 16 * s)]


@case("linear recurrence", held_out=True)
def _(s: int) -> Any:
    def fn(m: Any, x: Tensor, a: Tensor) -> Tensor:
        state, decay, out = torch.zeros_like(x[:, 0]), torch.sigmoid(a), []
        for t in range(x.shape[1]):
            state = state * decay[:, t] + x[:, t]
            out.append(state)
        return torch.stack(out, 1)

    return Call(fn), [(2, 16, 16 * s)] * 2


@case("chunked decay scan", held_out=True)
def _(s: int) -> Any:
    def fn(m: Any, x: Tensor, a: Tensor) -> Tensor:
        g = F.logsigmoid(a).cumsum(1)
        decay = (
            (g.unsqueeze(2) - g.unsqueeze(1))
            .masked_fill(
                torch.ones(x.shape[1], x.shape[1], device=x.device).triu(1)[None, :, :, None] > 0, float("-inf")
            )
            .exp()
        )
        return torch.einsum("btsd,bsd->btd", decay, x)

    return Call(fn), [(2, 12, 16 * s)] * 2


@case("embedding and position")
def _(s: int) -> Any:
    def fn(m: Any, x: Tensor) -> Tensor:
        token = (x.abs() * 7).long() % 32
        return m.parts[1](m.table[token] + m.parts[0].weight[: x.shape[1]])

    return Call(fn, nn.Embedding(64 * s, 32), nn.LayerNorm(32), table=torch.randn(32, 32)), [(2, 16 * s)]


@case("top-k gate", held_out=True)
def _(s: int) -> Any:
    def fn(m: Any, x: Tensor) -> Tensor:
        gate = torch.softmax(m.parts[0](x), -1)
        top = gate.topk(2, -1)
        return torch.zeros_like(gate).scatter(-1, top.indices, top.values / top.values.sum(-1, keepdim=True))

    return Call(fn, nn.Linear(32 * s, 8)), [(8, 32 * s)]


@case("rotary", held_out=True)
def _(s: int) -> Any:
    def fn(m: Any, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        angle = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)[:, None] * torch.exp(
            -torch.arange(half, device=x.device, dtype=torch.float32) / half * 4.0
        )
        a, b = x[..., :half], x[..., half:]
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    return Call(fn), [(2, 8, 32 * s)]


@case("pixel shuffle upsample", held_out=True)
def _(s: int) -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 12, 3, padding=1), nn.PixelShuffle(2), nn.Upsample(scale_factor=2, mode="bilinear")
    ), [(1, 3, 6 * s, 6 * s)]


@case("padding and pooling", held_out=True)
def _(s: int) -> Any:
    return nn.Sequential(nn.ReflectionPad2d(1), nn.MaxPool2d(3, 2), nn.ReplicationPad2d(1), nn.AvgPool2d(3, 1)), [
        (2, 4, 12 * s, 12 * s)
    ]
