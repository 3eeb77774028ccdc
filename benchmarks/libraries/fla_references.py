"""What fla's operators compute, in plain torch, from the mathematics of each; and inputs of modest size.

Recurrent operators are judged by their recurrence. Chunked ones, and those that get a gate's gradient as a difference
of sums, are judged by the sum over earlier positions that equals it, whose bound holds what cancels there. Read by the
grader, which must not run the library: nothing here imports it.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

EPS = 1e-5
#: Class that the losses leave out: one that drawn targets hit, since no draw gives -100.
IGNORED = 3
#: Positions of a chunk of the cumulative sums and of the pooling.
CHUNK = 32
BATCH, LENGTH, HEADS, KEY, VALUE = 2, 72, 3, 32, 16
#: Positions of the operators that are recurrent, and so are their references.
SHORT = 20
ROWS, WIDTH, CLASSES = 12, 160, 130


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=True)


def rows() -> list[torch.Tensor]:
    return [drawn(ROWS, WIDTH)]


def pairs() -> list[torch.Tensor]:
    return [drawn(ROWS, WIDTH), drawn(ROWS, WIDTH)]


def scaled() -> list[torch.Tensor]:
    return [drawn(ROWS, WIDTH), drawn(WIDTH)]


def affine() -> list[torch.Tensor]:
    return [drawn(ROWS, WIDTH), drawn(WIDTH), drawn(WIDTH)]


def gated() -> list[torch.Tensor]:
    return [*pairs(), drawn(WIDTH)]


def gated_affine() -> list[torch.Tensor]:
    return [*pairs(), drawn(WIDTH), drawn(WIDTH)]


def heads_of_scalars() -> list[torch.Tensor]:
    return [torch.randn(BATCH, LENGTH, 4)]


def labelled() -> list[torch.Tensor]:
    return [drawn(ROWS, CLASSES), torch.randint(0, 100, (ROWS,))]


def projected() -> list[torch.Tensor]:
    return [drawn(ROWS, WIDTH), torch.randint(0, 100, (ROWS,)), drawn(CLASSES, WIDTH), drawn(CLASSES)]


def rotated() -> list[torch.Tensor]:
    angle = torch.rand(LENGTH, 8)
    return [drawn(BATCH, LENGTH, HEADS, 16), angle.cos(), angle.sin()]


def sequence() -> list[torch.Tensor]:
    return [drawn(BATCH, LENGTH, WIDTH)]


def sequence_of_heads() -> list[torch.Tensor]:
    return [drawn(BATCH, LENGTH, HEADS, VALUE)]


def convolved() -> list[torch.Tensor]:
    return [*sequence(), drawn(WIDTH, 4), drawn(WIDTH)]


def gates() -> list[torch.Tensor]:
    return [drawn(BATCH, SHORT, VALUE), drawn(BATCH, SHORT, VALUE)]


def _qkv(length: int) -> list[torch.Tensor]:
    return [drawn(BATCH, length, HEADS, size) for size in (KEY, KEY, VALUE)]


def qkv() -> list[torch.Tensor]:
    return _qkv(LENGTH)


def short_qkv() -> list[torch.Tensor]:
    return _qkv(SHORT)


def qkv_and_gate() -> list[torch.Tensor]:
    return [*_qkv(LENGTH), drawn(BATCH, LENGTH, HEADS)]


def short_qkv_and_gate() -> list[torch.Tensor]:
    return [*_qkv(SHORT), drawn(BATCH, SHORT, HEADS)]


def qkv_and_gates() -> list[torch.Tensor]:
    return [*_qkv(LENGTH), drawn(BATCH, LENGTH, HEADS, KEY)]


def short_qkv_and_gates() -> list[torch.Tensor]:
    return [*_qkv(SHORT), drawn(BATCH, SHORT, HEADS, KEY)]


def qkv_and_two_gates() -> list[torch.Tensor]:
    """Gate and beta in one tensor: of more than four tensors that share a size, none is found to move."""
    return [*_qkv(LENGTH), drawn(BATCH, LENGTH, HEADS, 2)]


def short_qkv_and_two_gates() -> list[torch.Tensor]:
    """Of an operator without a backward: no gradient is asked for."""
    return [x.detach() for x in (*_qkv(SHORT), drawn(BATCH, SHORT, HEADS, 2))]


def qkv_and_gate_in_half() -> list[torch.Tensor]:
    return [x.detach().bfloat16().requires_grad_() for x in qkv_and_gate()]


# -- modules ----------------------------------------------------------------------------------------------------------


def _scaled(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS)


def rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return _scaled(x) * w


def layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], w, b, EPS)


def group_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Four groups of each row, each normalised by itself."""
    groups = x.unflatten(-1, (4, -1))
    return F.layer_norm(groups, groups.shape[-1:], None, None, EPS).flatten(-2) * w + b


def rms_norm_gated(x: torch.Tensor, g: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return rms_norm(x, w) * F.silu(g)


def layer_norm_gated(x: torch.Tensor, g: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return layer_norm(x, w, b) * F.silu(g)


def l2norm(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + EPS)


def swiglu(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.silu(x) * y


def logsigmoid(x: torch.Tensor) -> torch.Tensor:
    return F.logsigmoid(x)


def sigmoid(x: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x)


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    c, s = cos[:, None], sin[:, None]
    return torch.cat([a * c - b * s, b * c + a * s], -1)


def token_shift(x: torch.Tensor) -> torch.Tensor:
    """The position before, zeros for the first, minus the position itself."""
    return torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1) - x


def convolution(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Depthwise and causal, x (batch, length, channels), then SiLU."""
    taps = w.shape[-1]
    padded = torch.cat([x.new_zeros(x.shape[0], taps - 1, x.shape[2]), x], 1)
    return F.silu(sum((padded[:, k : k + x.shape[1]] * w[:, k] for k in range(taps)), b))


def mean_pooling(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([part.mean(1) for part in x.split(CHUNK, 1)], 1)


def cumsum(x: torch.Tensor) -> torch.Tensor:
    return x.cumsum(1)


def cumsum_in_chunks(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([part.cumsum(1) for part in x.split(CHUNK, 1)], 1)


def _within(target: torch.Tensor, classes: int) -> None:
    """Refuses targets out of range before a GPU's own assertion ends the grader's context."""
    if target.device.type != "meta" and target.numel() and int(target.max()) >= classes:
        raise ValueError(f"a target is {int(target.max())}, of {classes} classes")


def _kept(loss: torch.Tensor) -> torch.Tensor:
    """A loss that the library keeps in float32, whatever it is of."""
    return loss.float() if loss.dtype in (torch.float16, torch.bfloat16) else loss


def cross_entropy(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    _within(target, x.shape[-1])
    return _kept(F.cross_entropy(x, target, ignore_index=IGNORED, label_smoothing=0.1, reduction="none"))


def linear_cross_entropy(x: torch.Tensor, target: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    _within(target, w.shape[0])
    return _kept(F.cross_entropy(x @ w.t() + b, target, ignore_index=IGNORED))


# -- recurrences: q, k (batch, length, heads, key), v (batch, length, heads, value) -----------------------------------


def _steps(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gate: torch.Tensor | None = None,
    beta: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """A state (batch, heads, key, value) that a position multiplies by exp(gate), then adds k v^T to, or beta k (v -
    what it holds for k)^T, and answers q with, 1/sqrt(key) of it."""
    if q.shape != k.shape or any(x is not None and x.shape[:3] != q.shape[:3] for x in (v, gate, beta)):
        raise ValueError("all arguments are of one batch, length and number of heads")
    state = torch.zeros((), dtype=q.dtype, device=q.device)
    found = []
    for t in range(q.shape[1]):
        if gate is not None:
            state = state * gate[:, t].exp()
        added = v[:, t]
        if beta is not None:
            added = beta[:, t, :, None] * (added - (k[:, t, :, :, None] * state).sum(-2))
        state = state + k[:, t, :, :, None] * added[:, :, None, :]
        found.append((q[:, t, :, :, None] * state).sum(-2) * q.shape[-1] ** -0.5)
    return torch.stack(found, 1)


def linear_attention_steps(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return _steps(q, k, v)


def delta_rule_steps(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    return _steps(q, l2norm(k), v, beta=beta.sigmoid())


def gated_delta_rule_steps(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
    g, beta = gates.unbind(-1)
    return _steps(q, l2norm(k), v, F.logsigmoid(g)[..., None, None], beta.sigmoid())


def hgrn(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """h_t = sigmoid(g_t) h_(t-1) + x_t, x and g (batch, length, width)."""
    if x.shape != g.shape:
        raise ValueError("x and its gates are of one shape")
    state, found = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        state = state * F.logsigmoid(g[:, t]).exp() + x[:, t]
        found.append(state)
    return torch.stack(found, 1)


# -- the same as sums over earlier positions --------------------------------------------------------------------------


def _finite(*given: torch.Tensor) -> None:
    """Refuses what is not finite: a sum over positions and the recurrence put NaN and Inf in different places."""
    if given[0].device.type != "meta" and not all(bool(torch.isfinite(x).all()) for x in given):
        raise ValueError("the order of the sums is open, so what is not finite has no defined place")


def _earlier(total: torch.Tensor, strictly: bool = False) -> torch.Tensor:
    """exp(total_t - total_s) for s before t, or at it; 0 after. total (batch, heads, length) are summed log gates."""
    length = total.shape[-1]
    seen = torch.ones(length, length, dtype=torch.bool, device=total.device).tril(-1 if strictly else 0)
    return (total[..., :, None] - total[..., None, :]).masked_fill(~seen, -math.inf).exp()


def _summed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    """What the state of a decaying sum of k v^T gives for q, 1/sqrt(key) of it."""
    _finite(q, k, v, total)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    weights = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5 * _earlier(total)
    return (weights @ v).transpose(1, 2)


def linear_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return _summed(q, k, v, torch.zeros_like(q[..., 0]).transpose(1, 2))


def retention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Head h decays by 1 - 2^(-5-h) a position."""
    _, length, heads, _ = q.shape
    decay = torch.log1p(-torch.exp2(-5.0 - torch.arange(heads, device=q.device, dtype=q.dtype)))
    position = torch.arange(length, device=q.device, dtype=q.dtype)
    return _summed(q, k, v, (decay[:, None] * position).expand(q.shape[0], heads, length))


def simple_gla(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return _summed(q, k, v, F.logsigmoid(g).cumsum(1).transpose(1, 2))


def gla(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """A gate a key channel: g (batch, length, heads, key)."""
    _finite(q, k, v, g)
    total = F.logsigmoid(g).cumsum(1).permute(0, 2, 3, 1)
    weights = torch.einsum("bthc,bshc,bhcts->bhts", q, k, _earlier(total)) * q.shape[-1] ** -0.5
    return (weights @ v.transpose(1, 2)).transpose(1, 2)


def _inverse(lower: torch.Tensor) -> torch.Tensor:
    """(I + L)^-1 of a strictly lower triangular L: the product of I + (-L)^(2^k), which ends since L is nilpotent."""
    one = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device)
    power, found = -lower, one - lower
    for _ in range(max(0, (lower.shape[-1] - 1).bit_length() - 1)):
        power = power @ power
        found = found @ (one + power)
    return found


def _corrected(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor, total: torch.Tensor
) -> torch.Tensor:
    """The delta rule: each position writes beta (v - what the decayed state holds for k) for k of length 1."""
    _finite(q, k, v, beta, total)
    q, k, v = (x.transpose(1, 2) for x in (q, l2norm(k), v))
    beta = beta.sigmoid().transpose(1, 2)[..., None]
    held = beta * (k @ k.transpose(-1, -2)) * _earlier(total, strictly=True)
    weights = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5 * _earlier(total)
    return (weights @ (_inverse(held) @ (beta * v))).transpose(1, 2)


def delta_rule(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    return _corrected(q, k, v, beta, torch.zeros_like(beta).transpose(1, 2))


def gated_delta_rule(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
    g, beta = gates.unbind(-1)
    return _corrected(q, k, v, beta, F.logsigmoid(g).cumsum(1).transpose(1, 2))


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    _finite(q, k, v)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    length = q.shape[-2]
    seen = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
    scores = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).masked_fill(~seen, -math.inf)
    return (torch.softmax(scores, -1) @ v).transpose(1, 2)
