"""What Liger-Kernel's operators compute, in plain torch, from the mathematics of each; and inputs of modest size.

Read by the grader, which must not run the library: nothing here imports it. Reductions and constants are those that
``liger_operators`` passes to the operators.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

EPS = 1e-6
#: Class that the losses leave out: one that drawn targets hit, since no draw gives -100.
IGNORED = 3
ROWS, WIDTH, CLASSES = 12, 160, 130


def rows(count: int = 1) -> list[torch.Tensor]:
    return [torch.randn(ROWS, WIDTH, requires_grad=True) for _ in range(count)]


def vector(size: int = WIDTH) -> torch.Tensor:
    return torch.randn(size, requires_grad=True)


def one_norm() -> list[torch.Tensor]:
    return [*rows(), vector()]


def added_norm() -> list[torch.Tensor]:
    return [*rows(2), vector()]


def modulated() -> list[torch.Tensor]:
    return [*rows(), vector(), *rows(2)]


def affine() -> list[torch.Tensor]:
    return [*rows(), vector(), vector()]


def pairs() -> list[torch.Tensor]:
    return rows(2)


def channels() -> list[torch.Tensor]:
    return [torch.randn(3, 8, 48, requires_grad=True), vector(8), vector(8)]


def polynomial() -> list[torch.Tensor]:
    return [*rows(), vector(3), vector(1)]


def labelled() -> list[torch.Tensor]:
    return [torch.randn(ROWS, CLASSES, requires_grad=True), torch.randint(0, 100, (ROWS,))]


def projected() -> list[torch.Tensor]:
    return [*rows(), torch.randn(CLASSES, WIDTH, requires_grad=True), torch.randint(0, 100, (ROWS,))]


def projected_from_frozen() -> list[torch.Tensor]:
    """As where the last layer alone is trained."""
    x, w, target = projected()
    return [x.detach(), w, target]


def log_and_probabilities() -> list[torch.Tensor]:
    x = torch.log_softmax(torch.randn(ROWS, CLASSES), -1).requires_grad_()
    return [x, torch.softmax(torch.randn(ROWS, CLASSES), -1)]


def two_logs() -> list[torch.Tensor]:
    x = torch.log_softmax(torch.randn(ROWS, CLASSES), -1).requires_grad_()
    return [x, torch.log_softmax(torch.randn(ROWS, CLASSES), -1)]


def two_probabilities() -> list[torch.Tensor]:
    x = torch.softmax(torch.randn(ROWS, CLASSES), -1).requires_grad_()
    return [x, torch.softmax(torch.randn(ROWS, CLASSES), -1)]


def heads() -> list[torch.Tensor]:
    """q (batch, heads, length, 32), k with half the heads; cosine and sine are the same in both halves of a head."""
    angle = torch.rand(2, 24, 16).repeat(1, 1, 2)
    return [
        torch.randn(2, 4, 24, 32, requires_grad=True), torch.randn(2, 2, 24, 32, requires_grad=True),
        angle.cos(), angle.sin(),
    ]  # fmt: skip


def table() -> list[torch.Tensor]:
    return [torch.randn(CLASSES, WIDTH, requires_grad=True), torch.randint(0, 100, (ROWS, 5))]


def dynamic_tanh() -> list[torch.Tensor]:
    return [*rows(), vector(1), vector(), vector()]


def blocks() -> list[torch.Tensor]:
    return [torch.randn(4, 2, 6, WIDTH, requires_grad=True), vector(), vector()]


def fused_halves() -> list[torch.Tensor]:
    return [torch.randn(ROWS, 2 * WIDTH, requires_grad=True)]


def streams() -> list[torch.Tensor]:
    return [torch.randn(ROWS, 4, WIDTH, requires_grad=True), torch.randn(ROWS, 4, requires_grad=True)]


def residual_streams() -> list[torch.Tensor]:
    return [
        torch.randn(ROWS, 4, WIDTH, requires_grad=True), *rows(), torch.randn(ROWS, 4, requires_grad=True),
        torch.randn(ROWS, 4, 4, requires_grad=True),
    ]  # fmt: skip


def distilled() -> list[torch.Tensor]:
    return [
        *rows(), torch.randn(CLASSES, WIDTH, requires_grad=True), torch.randn(ROWS, 2 * WIDTH),
        torch.randn(CLASSES, 2 * WIDTH),
    ]  # fmt: skip


# -- norms ------------------------------------------------------------------------------------------------------------


def _scaled(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS)


def rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return _scaled(x) * w


def rms_norm_from_one(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return _scaled(x) * (1 + w)


def added_rms_norm(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return rms_norm(x + r, w), x + r


def modulated_rms_norm(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    return _scaled(x) * w * (1 + scale) + shift


def layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], w, b, EPS)


def group_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.group_norm(x, 4, w, b, EPS)


def poly_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return w[0] * _scaled(x * x * x) + w[1] * _scaled(x * x) + w[2] * _scaled(x) + b


def tanh_norm(x: torch.Tensor, alpha: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    return gamma * torch.tanh(alpha * x) + beta


# -- pointwise and rows -----------------------------------------------------------------------------------------------


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def sparsemax(x: torch.Tensor) -> torch.Tensor:
    """Martins and Astudillo 2016: the projection of a row onto the simplex, x - tau cut at 0; of no infinite row."""
    if x.device.type != "meta" and bool(torch.isinf(x).any()):
        raise ValueError("an infinite row has no projection")
    z = torch.sort(x, -1, descending=True).values
    k = torch.arange(1, x.shape[-1] + 1, device=x.device, dtype=x.dtype)
    total = z.cumsum(-1)
    support = (1 + k * z > total).sum(-1, keepdim=True).clamp_min(1)
    tau = (total.gather(-1, support - 1) - 1) / support
    return torch.clamp_min(x - tau, 0)


def silu_mul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.silu(a) * b


def gelu_mul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.gelu(a, approximate="tanh") * b


def gate_up(y: torch.Tensor) -> torch.Tensor:
    gate, up = y.chunk(2, -1)
    return F.silu(gate) * up


def relu_squared(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x).square()


def embedding(w: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    _within(index, w.shape[0])
    return F.embedding(index, w)


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """The half-split rotation; only the first half of cosine and sine counts, as in the library."""
    half = x.shape[-1] // 2
    a, b, c, s = x[..., :half], x[..., half:], cos[:, None, :, :half], sin[:, None, :, :half]
    return torch.cat([a * c - b * s, b * c + a * s], -1)


def rope(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if not q.shape[-1] == k.shape[-1] == cos.shape[-1] == sin.shape[-1]:
        raise ValueError("heads, cosine and sine are of one width")
    return _rotated(q, cos, sin), _rotated(k, cos, sin)


def attention_residual(v: torch.Tensor, query: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """v (blocks, batch, length, width): a softmax over blocks of query·rms_norm(v)."""
    weights = torch.softmax((_scaled(v) * w * query).sum(-1), 0)
    return (weights[..., None] * v).sum(0)


def stream_pre(x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    return (x * h[..., None]).sum(-2)


def stream_post(x: torch.Tensor, f: torch.Tensor, h: torch.Tensor, mix: torch.Tensor) -> torch.Tensor:
    if mix.shape[-1] != mix.shape[-2]:
        raise ValueError("as many streams come out as go in")
    return mix @ x + h[..., None] * f[..., None, :]


# -- losses -----------------------------------------------------------------------------------------------------------


def _within(target: torch.Tensor, classes: int) -> None:
    """Refuses targets out of range before a GPU's own assertion ends the grader's context."""
    if target.device.type != "meta" and target.numel() and int(target.max()) >= classes:
        raise ValueError(f"a target is {int(target.max())}, of {classes} classes")


def _kept(loss: torch.Tensor) -> torch.Tensor:
    """A loss that the library keeps in float32, whatever it is of."""
    return loss.float() if loss.dtype in (torch.float16, torch.bfloat16) else loss


def cross_entropy(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    _within(target, x.shape[-1])
    return F.cross_entropy(x, target, ignore_index=IGNORED)


def cross_entropy_smoothed(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Label smoothing 0.1 and 1e-2 logsumexp² a row, summed."""
    _within(target, x.shape[-1])
    z = torch.where(target == IGNORED, 0, torch.logsumexp(x, -1).square()).sum()
    return F.cross_entropy(x, target, ignore_index=IGNORED, label_smoothing=0.1, reduction="sum") + 1e-2 * z


def cross_entropy_capped(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    _within(target, x.shape[-1])
    return F.cross_entropy(30 * torch.tanh(x / 30), target, ignore_index=IGNORED, reduction="none")


def linear_cross_entropy(x: torch.Tensor, w: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return _kept(cross_entropy(x @ w.t(), target))


def kl_div(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The library's default eps, 1e-10, is the least that a logarithm is taken of."""
    return _kept((target * (torch.log(target.clamp_min(1e-10)) - x)).sum() / x.shape[0])


def kl_div_of_logs(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return _kept((target.exp() * (target - x)).mean())


def jsd(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """(P·(log P - log M) + Q·(log Q - log M)) / 2 over the rows, M the mean of P = exp y and Q = exp x."""
    m = torch.logaddexp(x, y) - 0.6931471805599453
    return 0.5 * (y.exp() * (y - m) + x.exp() * (x - m)).sum() / x.shape[0]


def tvd(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    return _kept(0.5 * (p - q).abs().sum() / p.shape[0])


def linear_jsd(x: torch.Tensor, w: torch.Tensor, teacher: torch.Tensor, teacher_w: torch.Tensor) -> torch.Tensor:
    return _kept(jsd(torch.log_softmax(x @ w.t(), -1), torch.log_softmax(teacher @ teacher_w.t(), -1)))
