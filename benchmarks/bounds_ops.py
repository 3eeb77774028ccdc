"""Operations written by hand in numpy, with the summation order and one fault as parameters.

They compute in float32, or in float64 for float64 inputs.

Honest candidates for the error bound, and the precision faults it must find. They share no code with the oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from kcontract.dynamic import inputs as gen

Array = Any
ORDERS = (
    "sequential",
    "reversed",
    "permuted",
    "pairwise",
    "blocks 16",
    "blocks 32",
    "blocks 64",
    "blocks 128",
    "library",
)
SUM_FAULTS = ("16-bit sequential", "16-bit tree", "16-bit blocks of 16")


def narrow(x: Array, dtype: Any) -> Array:
    """x rounded to ``dtype``, in float32."""
    return torch.from_numpy(np.ascontiguousarray(x)).to(dtype).float().numpy()


def _fold(terms: Array, order: str, seed: int) -> Array:
    """Sum over axis 0 in the named order, in the type of the terms."""
    n = terms.shape[0]
    if order == "reversed":
        terms = terms[::-1]
    elif order == "permuted":
        terms = terms[np.random.default_rng(seed).permutation(n)]
    elif order == "pairwise":
        while terms.shape[0] > 1:
            half = terms.shape[0] // 2
            rest = terms[2 * half :]
            terms = np.concatenate([terms[:half] + terms[half : 2 * half], rest])
        return terms[0]
    elif order.startswith("blocks"):
        size = int(order.split()[1])
        whole = n // size * size
        parts = terms[:whole].reshape(-1, size, *terms.shape[1:])
        blocks = np.zeros(parts.shape[:1] + parts.shape[2:], terms.dtype)
        for k in range(size):
            blocks = blocks + parts[:, k]
        terms = np.concatenate([blocks, terms[whole:]])
    total = np.zeros(terms.shape[1:], terms.dtype)
    if terms.ndim > 1 and terms[0].size > 1:
        return np.add.reduce(terms, axis=0, dtype=terms.dtype)
    for term in terms:
        total = total + term
    return total


def _fold16(terms: Array, fault: str, dtype: Any) -> Array:
    """The same in a 16-bit accumulator."""
    t = torch.from_numpy(np.ascontiguousarray(terms))
    if fault == "16-bit tree":
        t = t.to(dtype).float()
        while t.shape[0] > 1:
            half = t.shape[0] // 2
            t = torch.cat([(t[:half] + t[half : 2 * half]).to(dtype).float(), t[2 * half :]])
        return t[0].numpy()
    if fault == "16-bit blocks of 16":
        whole = t.shape[0] // 16 * 16
        t = torch.cat([t[:whole].reshape(-1, 16, *t.shape[1:]).sum(1), t[whole:]])
    total = torch.zeros(t.shape[1:])
    for term in t:
        total = (total + term).to(dtype).float()
    return total.numpy()


@dataclass(frozen=True)
class Arithmetic:
    """How a candidate computes: summation order, accumulator type of a faulty one, other faults by name, and the type
    of honest arithmetic."""

    order: str = "sequential"
    fault: str = ""
    half: Any = torch.bfloat16
    seed: int = 0
    real: Any = np.float32

    def sum(self, x: Array) -> Array:
        """Sum over the last axis, kept as size 1."""
        terms = np.moveaxis(x, -1, 0)
        if self.fault == "dropped last":
            terms = terms[:-1]
        if self.fault in SUM_FAULTS:
            return _fold16(terms, self.fault, self.half)[..., None]
        if self.order == "library":
            return x.sum(-1, keepdims=True, dtype=x.dtype)
        return _fold(terms, self.order, self.seed)[..., None]

    def matmul(self, a: Array, b: Array) -> Array:
        """a (…, M, K) @ b (…, K, N)."""
        if self.fault == "tf32":
            a, b = _tf32(a), _tf32(b)
        if self.fault == "dropped last":
            a, b = a[..., :-1], b[..., :-1, :]
        if self.fault in SUM_FAULTS or (self.order != "library" and self.fault != "tf32"):
            terms = np.moveaxis(a, -1, 0)[..., None] * np.moveaxis(b, -2, 0)[..., None, :]
            return (
                _fold16(terms, self.fault, self.half)
                if self.fault in SUM_FAULTS
                else _fold(terms, self.order, self.seed)
            )
        return np.matmul(a, b)

    def step(self, x: Array) -> Array:
        """An intermediate result, stored in bfloat16 by the faulty candidate."""
        return narrow(x, torch.bfloat16) if self.fault == "bf16 intermediates" else x

    def exp(self, x: Array) -> Array:
        """exp, or one with a relative error of 2^-11."""
        y = np.exp(x)
        if self.fault == "2^-11 exponential":
            y = y * (1 + np.float32(2.0**-11) * np.sin(x * 1000).astype(np.float32))
        return y.astype(x.dtype)

    def eps(self, value: float) -> Any:
        """The stabiliser of a denominator, or 0 where it is dropped."""
        return self.real(0.0 if self.fault == "dropped eps" else value)

    def moments(self, x: Array) -> tuple[Array, Array]:
        """Mean and biased variance: two passes, or one for the faulty candidate."""
        n = self.real(x.shape[-1])
        mean = self.step(self.sum(x) / n)
        if self.fault == "one-pass variance":
            return mean, self.sum(x * x) / n - mean * mean
        centred = self.step(x - mean)
        return mean, self.step(self.sum(centred * centred) / n)


def _tf32(x: Array) -> Array:
    bits = np.ascontiguousarray(x).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


@dataclass(frozen=True)
class Op:
    """One operation: the torch reference, the float32 candidate, input roles, and the faults that make sense for it.

    ``grads`` candidates return gradients of the inputs for an upstream gradient passed last.
    """

    name: str
    reference: Callable[..., Any]
    candidate: Callable[..., Any]
    roles: str
    faults: tuple[str, ...] = ()
    grads: bool = False
    held_out: bool = False


ALL: list[Op] = []
_NORM = ("one-pass variance", "dropped eps", "dropped last", "bf16 intermediates", *SUM_FAULTS)
_SUM = ("dropped last", *SUM_FAULTS)
_EXP = ("2^-11 exponential", "bf16 intermediates", "dropped last", *SUM_FAULTS)
_MM = ("tf32", "dropped last", *SUM_FAULTS)


def op(name: str, reference: Callable[..., Any], roles: str, faults: tuple[str, ...], **flags: bool) -> Any:
    """Register the decorated candidate. Roles: x rows (R, N); y another; w, b vectors (N); c (N, 8); t class index."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        ALL.append(Op(name, reference, fn, roles, faults, **flags))
        return fn

    return register


@op("sum", lambda x: x.sum(-1), "x", _SUM)
def _sum(k: Arithmetic, x: Array) -> Array:
    return k.sum(x)[..., 0]


@op("mean", lambda x: x.mean(-1), "x", _SUM)
def _mean(k: Arithmetic, x: Array) -> Array:
    return k.sum(x)[..., 0] / k.real(x.shape[-1])


@op("var", lambda x: x.var(-1), "x", ("one-pass variance", "dropped last", *SUM_FAULTS))
def _var(k: Arithmetic, x: Array) -> Array:
    n = x.shape[-1]
    return (k.moments(x)[1] * k.real(n / (n - 1)))[..., 0]


@op("std", lambda x: x.std(-1), "x", ("one-pass variance", "dropped last", *SUM_FAULTS), held_out=True)
def _std(k: Arithmetic, x: Array) -> Array:
    return np.sqrt(np.maximum(_var(k, x), 0))


@op("layer_norm", lambda x, w, b: F.layer_norm(x, w.shape, w, b, 1e-5), "xwb", _NORM)
def _layer_norm(k: Arithmetic, x: Array, w: Array, b: Array) -> Array:
    mean, var = k.moments(x)
    return k.step((x - mean) / np.sqrt(var + k.eps(1e-5))) * w + b


@op("layer_norm scale-bias", lambda x, w, b: F.layer_norm(x, w.shape, w, b, 1e-5), "xwb", ())
def _layer_norm_affine(k: Arithmetic, x: Array, w: Array, b: Array) -> Array:
    mean, var = k.moments(x)
    scale = w / np.sqrt(var + k.real(1e-5))
    return x * scale + (b - mean * scale)


@op("layer_norm welford", lambda x, w, b: F.layer_norm(x, w.shape, w, b, 1e-5), "xwb", ())
def _layer_norm_welford(k: Arithmetic, x: Array, w: Array, b: Array) -> Array:
    mean = np.zeros_like(x[..., :1])
    m2 = np.zeros_like(mean)
    order = np.random.default_rng(k.seed).permutation(x.shape[-1]) if k.order == "permuted" else range(x.shape[-1])
    for count, at in enumerate(order, 1):
        delta = x[..., at : at + 1] - mean
        mean = mean + delta / k.real(count)
        m2 = m2 + delta * (x[..., at : at + 1] - mean)
    return (x - mean) / np.sqrt(m2 / k.real(x.shape[-1]) + k.real(1e-5)) * w + b


@op("rms_norm", lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w, "xw", _NORM[1:])
def _rms_norm(k: Arithmetic, x: Array, w: Array) -> Array:
    mean = k.step(k.sum(x * x) / k.real(x.shape[-1]))
    return k.step(x / np.sqrt(mean + k.eps(1e-5))) * w


@op("softmax", lambda x: torch.softmax(x, -1), "x", _EXP)
def _softmax(k: Arithmetic, x: Array) -> Array:
    e = k.step(k.exp(x - x.max(-1, keepdims=True)))
    return e / k.sum(e)


@op("log_softmax", lambda x: torch.log_softmax(x, -1), "x", _EXP)
def _log_softmax(k: Arithmetic, x: Array) -> Array:
    top = x.max(-1, keepdims=True)
    return k.step(x - top) - np.log(k.sum(k.exp(x - top)))


@op("logsumexp", lambda x: torch.logsumexp(x, -1), "x", _EXP)
def _logsumexp(k: Arithmetic, x: Array) -> Array:
    top = x.max(-1, keepdims=True)
    return (top + np.log(k.sum(k.step(k.exp(x - top)))))[..., 0]


@op("l2 normalise", lambda x: x / (x.pow(2).sum(-1, keepdim=True) + 1e-6).sqrt(), "x", ("dropped eps", *_SUM))
def _l2(k: Arithmetic, x: Array) -> Array:
    return x / np.sqrt(k.sum(x * x) + k.eps(1e-6))


@op("vector norm", lambda x: torch.linalg.vector_norm(x, dim=-1), "x", _SUM, held_out=True)
def _norm(k: Arithmetic, x: Array) -> Array:
    return np.sqrt(k.sum(x * x))[..., 0]


@op("matmul", lambda x, c: x @ c, "xc", _MM)
def _matmul(k: Arithmetic, x: Array, c: Array) -> Array:
    return k.matmul(x, c)


@op("linear gelu", lambda x, c: F.gelu(x @ c), "xc", ("bf16 intermediates", *_MM), held_out=True)
def _linear_gelu(k: Arithmetic, x: Array, c: Array) -> Array:
    h = torch.from_numpy(np.ascontiguousarray(k.step(k.matmul(x, c))))
    return (0.5 * h * (1 + torch.erf(h * 0.5**0.5))).numpy()


@op("mse", lambda x, y: ((x - y) ** 2).mean(-1), "xy", ("bf16 intermediates", *_SUM))
def _mse(k: Arithmetic, x: Array, y: Array) -> Array:
    d = k.step(x - y)
    return (k.sum(d * d) / k.real(x.shape[-1]))[..., 0]


@op("dot", lambda x, y: (x * y).sum(-1), "xy", _SUM)
def _dot(k: Arithmetic, x: Array, y: Array) -> Array:
    return k.sum(x * y)[..., 0]


@op("cosine", lambda x, y: (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1) + 1e-6), "xy", _SUM, held_out=True)
def _cosine(k: Arithmetic, x: Array, y: Array) -> Array:
    lengths = np.sqrt(k.sum(x * x)) * np.sqrt(k.sum(y * y))
    return (k.sum(x * y) / (lengths + k.real(1e-6)))[..., 0]


@op("cross_entropy", lambda x, t: F.cross_entropy(x, t, reduction="none"), "xt", _EXP, held_out=True)
def _cross_entropy(k: Arithmetic, x: Array, t: Array) -> Array:
    top = x.max(-1, keepdims=True)
    picked = np.take_along_axis(x, t[:, None], 1)
    return (np.log(k.sum(k.step(k.exp(x - top)))) + top - picked)[:, 0]


@op(
    "kl_div",
    lambda x, y: F.kl_div(torch.log_softmax(x, -1), torch.softmax(y, -1), reduction="none").sum(-1),
    "xy",
    ("2^-11 exponential", *SUM_FAULTS),
    held_out=True,
)
def _kl(k: Arithmetic, x: Array, y: Array) -> Array:
    p = _softmax(k, y)
    logs = _log_softmax(k, x)
    return k.sum(
        np.where(p > 0, p * (np.log(np.maximum(p, np.finfo(p.dtype).smallest_subnormal)) - logs), 0).astype(p.dtype)
    )[..., 0]


@op(
    "attention row",
    lambda x, c, y: torch.softmax(x @ c / 8.0, -1) @ y[:8],
    "xcy",
    ("2^-11 exponential", "bf16 intermediates", *_MM),
    held_out=True,
)
def _attention(k: Arithmetic, x: Array, c: Array, y: Array) -> Array:
    s = k.step(k.matmul(x, c) / k.real(8))
    e = k.exp(s - s.max(-1, keepdims=True))
    return np.matmul(k.step(e), y[:8]) / e.sum(-1, keepdims=True, dtype=e.dtype)


@op("swiglu", lambda x, c, w: F.silu((x * w) @ c) * (x @ c), "xcw", ("bf16 intermediates", *_MM), held_out=True)
def _swiglu(k: Arithmetic, x: Array, c: Array, w: Array) -> Array:
    gate = k.step(k.matmul(x * w, c))
    with np.errstate(over="ignore"):
        return gate / (1 + np.exp(-gate)) * k.step(k.matmul(x, c))


@op("cumsum", lambda x: x.cumsum(-1), "x", ("16-bit sequential",))
def _cumsum(k: Arithmetic, x: Array) -> Array:
    if k.fault == "16-bit sequential":
        total, out = torch.zeros(x.shape[:-1]), []
        for term in torch.from_numpy(x).unbind(-1):
            total = (total + term).to(k.half).float()
            out.append(total)
        return torch.stack(out, -1).numpy()
    if not k.order.startswith("blocks"):
        return np.add.accumulate(x, -1, dtype=x.dtype)
    size = int(k.order.split()[1])
    if x.shape[-1] % size:
        return np.add.accumulate(x, -1, dtype=x.dtype)
    parts = np.add.accumulate(x.reshape(*x.shape[:-1], -1, size), -1, dtype=x.dtype)
    before = np.add.accumulate(parts[..., -1], -1, dtype=x.dtype) - parts[..., -1] * 0
    carry = np.concatenate([np.zeros_like(before[..., :1]), before[..., :-1]], -1)
    return (parts + carry[..., None]).reshape(x.shape)


@op(
    "batch statistics",
    lambda x: F.batch_norm(x.t(), None, None, None, None, True).t(),
    "x",
    _NORM[:3] + SUM_FAULTS,
    held_out=True,
)
def _batch_norm(k: Arithmetic, x: Array) -> Array:
    mean, var = k.moments(x)
    return (x - mean) / np.sqrt(var + k.eps(1e-5))


@op("layer_norm grad", lambda x, w: F.layer_norm(x, w.shape, w, None, 1e-5), "xw", SUM_FAULTS, grads=True)
def _layer_norm_grad(k: Arithmetic, x: Array, w: Array, g: Array) -> tuple[Array, ...]:
    n = k.real(x.shape[-1])
    mean, var = k.moments(x)
    r = 1 / np.sqrt(var + k.real(1e-5))
    z, gw = (x - mean) * r, g * w
    dx = (gw - k.sum(gw) / n - z * (k.sum(gw * z) / n)) * r
    return dx, k.sum(np.ascontiguousarray((g * z).T))[:, 0]


@op("softmax grad", lambda x: torch.softmax(x, -1), "x", SUM_FAULTS, grads=True)
def _softmax_grad(k: Arithmetic, x: Array, g: Array) -> tuple[Array, ...]:
    p = _softmax(k, x)
    return (p * (g - k.sum(g * p)),)


@op(
    "rms_norm grad",
    lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5),
    "x",
    SUM_FAULTS,
    grads=True,
    held_out=True,
)
def _rms_norm_grad(k: Arithmetic, x: Array, g: Array) -> tuple[Array, ...]:
    n = k.real(x.shape[-1])
    r = 1 / np.sqrt(k.sum(x * x) / n + k.real(1e-5))
    return (g * r - x * (k.sum(g * x) / n) * r * r * r,)


@op("matmul grad", lambda x, c: x @ c, "xc", SUM_FAULTS, grads=True, held_out=True)
def _matmul_grad(k: Arithmetic, x: Array, c: Array, g: Array) -> tuple[Array, ...]:
    return k.matmul(g, np.ascontiguousarray(c.T)), k.matmul(np.ascontiguousarray(x.T), g)


@op("logsumexp grad", lambda x: torch.logsumexp(x, -1), "x", (), grads=True)
def _logsumexp_grad(k: Arithmetic, x: Array, g: Array) -> tuple[Array, ...]:
    return (_softmax(k, x) * g[..., None],)


def make(what: Op, n: int, dtype: Any, kind: str, seed: int, rows: int = 4) -> list[Any]:
    """Inputs of an operation in ``dtype``: the kind of values in x, normal in the others (steep or peaked in y too
    where x is), indices for t."""
    found: list[Any] = []
    for at, role in enumerate(what.roles):
        own = seed * 31 + at
        if role == "x":
            t = gen.draw(kind, (rows, n), dtype, own)
        elif role == "y":
            t = gen.draw(
                kind if kind in ("steep", "peaked") else "normal",
                (8 if "attention" in what.name else rows, n),
                dtype,
                own,
            )
        elif role == "c":
            t = gen.draw("normal", (n, 8), dtype, own, axis=0)
        elif role == "t":
            t = torch.randint(0, n, (rows,), generator=torch.Generator().manual_seed(own))
            if kind == "steep":
                t[::2] = found[0].float().argmax(-1)[::2]
        else:
            t = (gen.draw("normal", (n,), torch.float64, own) / 4 + (1.0 if role == "w" else 0.0)).to(dtype)
        if role != "t" and what.grads:
            t.requires_grad_()
        found.append(t)
    return found


def run(what: Op, arithmetic: Arithmetic, tensors: list[Any], upstream: Any = None, out: Any = None) -> list[Any]:
    """The candidate's outputs (or gradients) in ``out``, by default the dtype of the inputs."""
    dtype = tensors[0].dtype
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    if dtype is torch.float64:
        arithmetic = replace(arithmetic, real=np.float64)
    arrays = [t.detach().to(wide).numpy() if t.is_floating_point() else t.numpy() for t in tensors]
    if upstream is not None:
        arrays.append(upstream.to(wide).numpy())
    with np.errstate(all="ignore"):
        found = what.candidate(arithmetic, *arrays)
    results = found if isinstance(found, tuple) else (found,)
    return [torch.from_numpy(np.ascontiguousarray(r, dtype=arithmetic.real)).to(out or dtype) for r in results]


def faults(what: Op, dtype: Any) -> Iterator[Arithmetic]:
    """The faulty candidates of an operation whose result can differ in this dtype."""
    for fault in what.faults:
        if fault == "tf32" and dtype is not torch.float32:
            continue  # 16-bit factors are exact in tf32
        half = torch.bfloat16 if dtype is torch.float32 else dtype
        yield Arithmetic("sequential", fault, half)


def honest(seed: int) -> Iterator[Arithmetic]:
    """One candidate an order."""
    for order in ORDERS:
        yield replace(Arithmetic(order), seed=seed)
