"""The pinned list of 20 honest problems that ``verify_speed.py`` times, written as KernelBench files.

Sizes are those of KernelBench's level 1 in kind: inputs of 16 to 128 MB. All kernels are our own.
"""

from __future__ import annotations

from pathlib import Path

_HEAD = """import torch
import triton
import triton.language as tl
"""

_TAIL = """

class Model(torch.nn.Module):
    def forward(self, {arguments}):
        return {reference}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""

_POINTWISE = """

@triton.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n).to(tl.float32)
    tl.store(out + at, {formula}, at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        if x.numel():
            kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
"""

_ROWS = """

@triton.jit
def larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n, {other}).to(tl.float32)
{body}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, n = x.shape
        out = torch.empty({out}, dtype=x.dtype, device=x.device)
        if x.numel():
            kernel[(rows,)](x, out, n, BLOCK=triton.next_power_of_2(n), num_warps=8)
        return out
"""

_PRODUCT = """

@triton.jit
def kernel(a, b, out, M, N, K, sam, sak, sbk, sbn, som, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = (tl.program_id(0) * BM + tl.arange(0, BM)).to(tl.int64)
    n = (tl.program_id(1) * BN + tl.arange(0, BN)).to(tl.int64)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = (start + tl.arange(0, BK)).to(tl.int64)
        left = tl.load(a + m[:, None] * sam + k[None, :] * sak, (m[:, None] < M) & (k[None, :] < K), 0.0)
        right = tl.load(b + k[:, None] * sbk + n[None, :] * sbn, (k[:, None] < K) & (n[None, :] < N), 0.0)
        total = tl.dot(left, right, total, input_precision="ieee")
    tl.store(out + m[:, None] * som + n[None, :], total, (m[:, None] < M) & (n[None, :] < N))


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        {orient}
        (M, K), N = a.shape, b.shape[1]
        out = torch.empty((M, N), dtype=a.dtype, device=a.device)
        if out.numel():
            grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
            kernel[grid](a, b, out, M, N, K, *a.stride(), *b.stride(), out.stride(0), BM=64, BN=64, BK=32)
        return out
"""

_STORE_ROW = "    tl.store(out + row * n + at, {value}, at < n)"
_STORE_ONE = "    tl.store(out + row, {value})"
_SUM = "tl.sum(tl.where(at < n, {}, 0.0), 0)"
_MAX = "tl.reduce(v, 0, larger)"

_WIDE = "torch.rand(4096, 8192)"
_POINT = {
    "relu": ("tl.where(v < 0, 0.0, v)", "torch.relu(x)"),
    "leaky_relu": ("tl.where(v > 0, v, v * 0.01)", "torch.nn.functional.leaky_relu(x, 0.01)"),
    "sigmoid": ("tl.sigmoid(v)", "torch.sigmoid(x)"),
    "silu": ("v * tl.sigmoid(v)", "torch.nn.functional.silu(x)"),
    "gelu": ("0.5 * v * (1 + tl.erf(v * 0.7071067811865476))", "torch.nn.functional.gelu(x)"),
    "square": ("v * v", "x * x"),
    "exp": ("tl.exp(v)", "torch.exp(x)"),
    "abs": ("tl.abs(v)", "torch.abs(x)"),
}
_ROW = {
    "sum": ("0.0", _STORE_ONE.format(value="tl.sum(v, 0)"), "x.sum(1)", "(rows,)"),
    "mean": ("0.0", _STORE_ONE.format(value="tl.sum(v, 0) / n"), "x.mean(1)", "(rows,)"),
    "max": ("-float('inf')", _STORE_ONE.format(value=_MAX), "x.max(1).values", "(rows,)"),
    "softmax": (
        "-float('inf')",
        f"    e = tl.exp(v - {_MAX})\n" + _STORE_ROW.format(value="e / tl.sum(e, 0)"),
        "torch.softmax(x, 1)", "x.shape",
    ),
    "log_softmax": (
        "-float('inf')",
        f"    v = v - {_MAX}\n" + _STORE_ROW.format(value="v - tl.log(tl.sum(tl.exp(v), 0))"),
        "torch.log_softmax(x, 1)", "x.shape",
    ),
    "rms_norm": (
        "0.0", _STORE_ROW.format(value="v * tl.rsqrt(tl.sum(v * v, 0) / n + 1e-5)"),
        "x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-5)", "x.shape",
    ),
    "layer_norm": (
        "0.0",
        f"    d = v - tl.sum(v, 0) / n\n    var = {_SUM.format('d * d')} / n\n"
        + _STORE_ROW.format(value="d * tl.rsqrt(var + 1e-5)"),
        "torch.nn.functional.layer_norm(x, (x.shape[1],))", "x.shape",
    ),
    "l2_norm": (
        "0.0", _STORE_ROW.format(value="v / tl.sqrt_rn(tl.sum(v * v, 0))"),
        "x / torch.norm(x, p=2, dim=1, keepdim=True)", "x.shape",
    ),
}  # fmt: skip
_DOT = {
    "matmul": ("", "a @ b", "torch.rand(2048, 2048), torch.rand(2048, 2048)"),
    "matmul_a_transposed": ("a = a.T", "a.T @ b", "torch.rand(2048, 2048), torch.rand(2048, 2048)"),
    "matmul_b_transposed": ("b = b.T", "a @ b.T", "torch.rand(2048, 2048), torch.rand(2048, 2048)"),
    "matmul_tall": ("", "a @ b", "torch.rand(16384, 1024), torch.rand(1024, 256)"),
}


def write(folder: Path) -> list[Path]:
    """Write all files; their paths, in a fixed order."""
    texts = {}
    for name, (formula, reference) in _POINT.items():
        texts[name] = _HEAD + _POINTWISE.format(formula=formula), "x", reference, _WIDE
    for name, (other, body, reference, out) in _ROW.items():
        texts[name] = _HEAD + _ROWS.format(other=other, body=body, out=out), "x", reference, _WIDE
    for name, (orient, reference, inputs) in _DOT.items():
        texts[name] = _HEAD + _PRODUCT.format(orient=orient or "pass"), "a, b", reference, inputs
    paths = []
    for name, (text, arguments, reference, inputs) in texts.items():
        paths.append(folder / f"{name}.py")
        paths[-1].write_text(text + _TAIL.format(arguments=arguments, reference=reference, inputs=inputs))
    return paths
