"""More operators of fla-core beside fla's own naive functions (see ``references.py``): small sizes, both directions.

Operators without a backward in Triton are compared in the forward direction alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

B, S, H, D = 1, 64, 2, 32
Case = tuple[Callable[..., Any], Callable[..., Any], Callable[[], list[torch.Tensor]], float]
log = F.logsigmoid


def t(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").requires_grad_()


def unit(x: torch.Tensor) -> torch.Tensor:
    return F.normalize(x.float(), dim=-1)


def half(f: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """``f`` on bfloat16 inputs."""
    return lambda *xs: first(f(*(x.to(torch.bfloat16) for x in xs))).float()


def heads(*xs: torch.Tensor) -> list[torch.Tensor]:
    """(batch, time, head, ...) to (batch, head, time, ...)."""
    return [x.transpose(1, 2) for x in xs]


def first(x: Any) -> torch.Tensor:
    return x[0] if isinstance(x, tuple) else x  # type: ignore[no-any-return]


def wide(n: int, *more: tuple[int, ...], d: int = D, s: int = S) -> Callable[[], list[torch.Tensor]]:
    """``n`` tensors (batch, time, head, d) and others of given shapes."""
    return lambda: [*(t(B, s, H, d) for _ in range(n)), *(t(*shape) for shape in more)]


GATE = (B, S, H)


def attentions() -> dict[str, Case]:
    from fla.ops import attn, based, forgetting_attn, parallax, path_attn, rebased, stickbreaking_attn, wall_attn
    from fla.ops.attn.naive import naive_parallel_attn
    from fla.ops.based.naive import naive_parallel_based
    from fla.ops.forgetting_attn.naive import naive_forgetting_attn
    from fla.ops.parallax.naive import naive_parallax
    from fla.ops.path_attn.naive import naive_path_attn
    from fla.ops.rebased.naive import naive_parallel_rebased
    from fla.ops.stickbreaking_attn.naive import naive_stickbreaking_attn
    from fla.ops.wall_attn.naive import naive_wall_attn

    def of_heads(f: Callable[..., Any]) -> Callable[..., torch.Tensor]:
        return lambda *xs: first(f(*heads(*xs))).transpose(1, 2)

    scale = D**-0.5
    return {
        "attn_parallel": (lambda q, k, v: first(attn.parallel_attn(q, k, v)),
                          lambda q, k, v: first(naive_parallel_attn(q, k, v)), wide(3), 5e-3),
        "attn_parallel_gated": (lambda q, k, v, g: first(attn.parallel_attn(q, k, v, g=log(g))),
                                lambda q, k, v, g: first(naive_parallel_attn(q, k, v, g=log(g))), wide(3, GATE), 5e-3),
        "attn_parallel_window": (lambda q, k, v: first(attn.parallel_attn(q, k, v, window_size=16)),
                                 lambda q, k, v: first(naive_parallel_attn(q, k, v, window_size=16)), wide(3), 5e-3),
        "forgetting_attn": (lambda q, k, v, g: first(forgetting_attn.parallel_forgetting_attn(q, k, v, log(g))),
                            lambda q, k, v, g: naive_forgetting_attn(q, k, v, log(g)), wide(3, GATE), 5e-3),
        "based_parallel": (lambda q, k, v: first(based.parallel_based(q, k, v)), of_heads(naive_parallel_based),
                           wide(3, d=16), 1e-2),
        "rebased_parallel": (lambda q, k, v: first(rebased.parallel_rebased(q, k, v)), of_heads(naive_parallel_rebased),
                             wide(3, d=16), 1e-2),
        "stickbreaking_attn": (
            lambda q, k, v: first(stickbreaking_attn.parallel_stickbreaking_attn(q, k, v, scale)),
            lambda q, k, v: first(naive_stickbreaking_attn(q, k, v, scale)), wide(3), 5e-3),
        "parallax": (half(parallax.parallel_parallax), naive_parallax, wide(4), 3e-2),
        "path_attn": (
            lambda q, k, v, w, beta, g: first(
                path_attn.parallel_path_attn(q, k, v, unit(w), beta.sigmoid(), log(g), scale=scale)),
            lambda q, k, v, w, beta, g: first(naive_path_attn(q, k, v, unit(w), beta.sigmoid(), log(g), scale)),
            wide(4, GATE, GATE), 2e-2),
        "wall_attn": (lambda q, k, v, g: first(wall_attn.parallel_wall_attn(q, k, v, log(g) / 16, scale=scale)),
                      lambda q, k, v, g: naive_wall_attn(q, k, v, log(g) / 16, scale=scale), wide(4), 1e-2),
    }  # fmt: skip


def recurrences() -> dict[str, Case]:
    from fla.ops import (
        comba,
        delta_rule,
        gated_delta_product,
        gated_delta_rule,
        gdn2,
        gsa,
        hgrn,
        kda,
        linear_attn,
        log_linear_attn,
        precond_gated_delta_rule,
        retention,
        rwkv6,
        simple_gla,
    )  # fmt: skip
    from fla.ops.comba.naive import naive_chunk_comba
    from fla.ops.delta_rule.naive import delta_rule_recurrence
    from fla.ops.gated_delta_product.naive import naive_recurrent_gated_delta_product
    from fla.ops.gated_delta_rule.naive import naive_recurrent_gated_delta_rule
    from fla.ops.gdn2.naive import naive_recurrent_gdn2
    from fla.ops.generalized_delta_rule import chunk_dplr_delta_rule, chunk_iplr_delta_rule
    from fla.ops.generalized_delta_rule.dplr.naive import dplr_recurrence
    from fla.ops.generalized_delta_rule.iplr.naive import iplr_recurrence
    from fla.ops.gsa.naive import naive_recurrent_gsa
    from fla.ops.hgrn.naive import naive_recurrent_hgrn
    from fla.ops.kda.naive import naive_recurrent_kda
    from fla.ops.linear_attn.naive import naive_recurrent_linear_attn
    from fla.ops.log_linear_attn.naive import naive_log_linear_attn
    from fla.ops.precond_gated_delta_rule.naive import naive_recurrent_precond_gated_delta_rule
    from fla.ops.retention.naive import naive_retention
    from fla.ops.rwkv6.recurrent_naive import naive_recurrent_rwkv6
    from fla.ops.simple_gla.naive import naive_recurrent_simple_gla

    def retained(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return naive_retention(*heads(q, k, v)).transpose(1, 2)  # type: ignore[no-any-return]

    def simple(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        return first(naive_recurrent_simple_gla(q, k, v, log(g)))

    def linear(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return first(naive_recurrent_linear_attn(q, k, v, normalize=False))

    def product(f: Callable[..., Any], **more: Any) -> Callable[..., torch.Tensor]:
        return lambda q, g, k, v, beta: first(
            f(q, unit(k).to(q.dtype), v, log(g), beta.sigmoid(), num_householder=2, scale=D**-0.5, **more))  # fmt: skip

    def low_rank(f: Callable[..., Any], turned: bool, gated: bool) -> Callable[..., torch.Tensor]:
        """The rank-one update is -a(a · S) with a of length below one."""

        def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, a: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
            a = unit(a)
            xs = [q, unit(k), v, -a, a * 0.5, *([log(g)] if gated else [])]
            xs = xs if gated or turned else [x.detach() for x in xs]  # the kernel has no backward
            return first(f(*heads(*xs))).transpose(1, 2) if turned else first(f(*xs))

        return call

    cases: dict[str, Case] = {
        "comba_chunk": (
            lambda q, k, v, p, g, beta: first(comba.chunk_comba(q, unit(k), v, unit(p), log(g), beta.sigmoid())),
            lambda q, k, v, p, g, beta: first(naive_chunk_comba(q, unit(k), v, unit(p), log(g), beta.sigmoid())),
            wide(4, GATE, GATE), 1e-2),
        "delta_rule_recurrent": (
            lambda q, k, v, beta: first(delta_rule.fused_recurrent_delta_rule(q, unit(k), v, beta.sigmoid())),
            lambda q, k, v, beta: first(delta_rule_recurrence(*heads(q, unit(k), v, beta.sigmoid()))).transpose(1, 2),
            wide(3, GATE), 5e-3),
        "gated_delta_rule_recurrent": (
            lambda q, k, v, g, beta: first(gated_delta_rule.fused_recurrent_gated_delta_rule(
                *(x.detach() for x in (q, unit(k), v)), g=log(g).detach(), beta=beta.sigmoid().detach())),
            lambda q, k, v, g, beta: first(naive_recurrent_gated_delta_rule(q, unit(k), v, beta.sigmoid(), log(g))),
            wide(3, GATE, GATE), 5e-3),
        "gated_delta_product_chunk": (
            half(product(gated_delta_product.chunk_gated_delta_product)), product(naive_recurrent_gated_delta_product),
            lambda: [t(B, S, H, D), t(*GATE), t(B, 2 * S, H, D), t(B, 2 * S, H, D), t(B, 2 * S, H)], 3e-2),
        "gdn2_chunk": (
            lambda q, k, v, g, b, w: first(gdn2.chunk_gdn2(q, unit(k), v, log(g), b.sigmoid(), w.sigmoid())),
            lambda q, k, v, g, b, w: first(naive_recurrent_gdn2(q, unit(k), v, log(g), b.sigmoid(), w.sigmoid())),
            wide(6), 1e-2),
        "gsa_chunk": (lambda q, k, v, s, g: first(gsa.chunk_gsa(q, k, v, s, log(g))),
                      lambda q, k, v, s, g: _time_first(naive_recurrent_gsa(q, k, v, s, log(g))), wide(5), 1e-2),
        "gsa_recurrent": (lambda q, k, v, s, g: first(gsa.fused_recurrent_gsa(q, k, v, s, log(g))),
                          lambda q, k, v, s, g: _time_first(naive_recurrent_gsa(q, k, v, s, log(g))), wide(5), 5e-3),
        "hgrn_chunk": (lambda x, g: first(hgrn.chunk_hgrn(x, log(g))),
                       lambda x, g: first(naive_recurrent_hgrn(x, log(g))), lambda: [t(B, S, D), t(B, S, D)], 1e-4),
        "hgrn_recurrent": (lambda x, g: first(hgrn.fused_recurrent_hgrn(x, log(g))),
                           lambda x, g: first(naive_recurrent_hgrn(x, log(g))), lambda: [t(B, S, D), t(B, S, D)], 1e-4),
        "kda_recurrent": (
            lambda q, k, v, g, beta: first(kda.fused_recurrent_kda(
                *(x.detach() for x in (q, unit(k), v, log(g), beta.sigmoid())))),
            lambda q, k, v, g, beta: first(naive_recurrent_kda(q, unit(k), v, log(g), beta.sigmoid())),
            wide(4, GATE), 5e-3),
        "linear_attn_recurrent": (
            lambda q, k, v: first(linear_attn.fused_recurrent_linear_attn(q, k, v, normalize=False)), linear,
            wide(3), 5e-3),
        "linear_attn_fused_chunk": (
            lambda q, k, v: first(linear_attn.fused_chunk_linear_attn(q, k, v, normalize=False)), linear,
            wide(3), 5e-3),
        "log_linear_attn_chunk": (
            lambda q, k, v, g, s: first(log_linear_attn.chunk_log_linear_attn(q, k, v, log(g) / 32, F.softplus(s))),
            lambda q, k, v, g, s: first(naive_log_linear_attn(q, k, v, log(g) / 32, F.softplus(s), scale=1.0)),
            wide(3, GATE, (B, S, H, 7), d=64), 1e-2),
        "precond_gated_delta_rule_chunk": (
            lambda q, k, v, ga, g, ba, b: first(precond_gated_delta_rule.chunk_precond_gated_delta_rule(
                q, unit(k), v, log(ga), log(g), ba.sigmoid(), b.sigmoid())),
            lambda q, k, v, ga, g, ba, b: first(naive_recurrent_precond_gated_delta_rule(
                q, unit(k), v, log(ga), log(g), ba.sigmoid(), b.sigmoid())), wide(3, GATE, GATE, GATE, GATE), 2e-2),
        "rwkv6_chunk": (
            lambda r, k, v, w, u: first(rwkv6.chunk_rwkv6(r, k, v, log(w), u)),
            lambda r, k, v, w, u: first(naive_recurrent_rwkv6(*heads(r, k, v, log(w)), u)).transpose(1, 2),
            wide(4, (H, D)), 1e-2),
        "rwkv6_recurrent": (
            lambda r, k, v, w, u: first(rwkv6.fused_recurrent_rwkv6(r, k, v, log(w), u)),
            lambda r, k, v, w, u: first(naive_recurrent_rwkv6(*heads(r, k, v, log(w)), u)).transpose(1, 2),
            wide(4, (H, D)), 5e-3),
        "dplr_chunk": (low_rank(chunk_dplr_delta_rule, False, True), low_rank(dplr_recurrence, True, True),
                       wide(5), 2e-2),
        "iplr_chunk": (low_rank(chunk_iplr_delta_rule, False, False), low_rank(iplr_recurrence, True, False),
                       wide(5), 2e-2),
    }  # fmt: skip
    for name in ("fused_recurrent", "fused_chunk", "parallel"):
        f = getattr(retention, f"{name}_retention")
        cases[f"retention_{name}"] = (lambda q, k, v, f=f: first(f(q, k, v)), retained, wide(3), 5e-3)
        s = getattr(simple_gla, f"{name}_simple_gla")
        cases[f"simple_gla_{name}"] = (lambda q, k, v, g, s=s: first(s(q, k, v, log(g))), simple, wide(3, GATE), 5e-3)
    return cases


def _time_first(x: Any) -> torch.Tensor:
    found = first(x)
    return found if found.shape[1] == S else found.transpose(1, 2)


def parts() -> dict[str, Case]:
    """Building blocks and modules."""
    from fla.modules.activations import swiglu
    from fla.modules.causal_conv1d import causal_conv1d
    from fla.modules.fused_cross_entropy import FusedCrossEntropyLoss
    from fla.modules.norm.l2norm import l2norm
    from fla.modules.norm.layernorm import layer_norm, rms_norm
    from fla.modules.token_shift import token_shift
    from fla.ops.utils import (
        addmm,
        chunk_global_cumsum,
        chunk_local_cumsum,
        logsumexp_fwd,
        matmul,
        mean_pooling,
        softmax_fwd,
    )  # fmt: skip
    from fla.ops.utils.sinkhorn import naive_sinkhorn, sinkhorn

    labels = torch.randint(0, 300, (24,), device="cuda")
    n = 96

    def plain(f: Callable[..., Any]) -> Callable[..., Any]:
        """A forward operator without a backward."""
        return lambda *xs: f(*(x.detach() for x in xs))

    def convolved(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = F.conv1d(x.transpose(1, 2), w[:, None], padding=w.shape[1] - 1, groups=x.shape[2])
        return y[..., : x.shape[1]].transpose(1, 2)

    return {
        "matmul": (plain(matmul), lambda a, b: a @ b, lambda: [t(40, 48), t(48, 56)], 5e-3),
        "addmm": (plain(addmm), lambda x, a, b: x + a @ b, lambda: [t(40, 56), t(40, 48), t(48, 56)], 5e-3),
        "softmax_fwd": (plain(softmax_fwd), lambda x: torch.softmax(x, -1), lambda: [t(2, 5, n)], 1e-5),
        "logsumexp_fwd": (plain(logsumexp_fwd), lambda x: torch.logsumexp(x, -1), lambda: [t(2, 5, n)], 1e-5),
        "chunk_local_cumsum": (
            plain(lambda g: chunk_local_cumsum(g, 16)),
            lambda g: g.view(B, S // 16, 16, H).cumsum(2).view(B, S, H), lambda: [t(*GATE)], 1e-5),
        "chunk_global_cumsum": (plain(chunk_global_cumsum), lambda g: g.cumsum(1), lambda: [t(*GATE)], 1e-5),
        "mean_pooling": (lambda x: mean_pooling(x, 16), lambda x: x.view(B, S // 16, 16, H, D).mean(2), wide(1), 1e-4),
        "sinkhorn": (lambda x: sinkhorn(x, 5), lambda x: naive_sinkhorn(x, 5), lambda: [t(6, 4, 4)], 1e-4),
        "l2norm": (l2norm, lambda x: F.normalize(x, dim=-1), lambda: [t(24, 64)], 1e-4),
        "rms_norm": (lambda x, w: rms_norm(x, w, None, eps=1e-5), lambda x, w: F.rms_norm(x, (n,), w, 1e-5),
                     lambda: [t(24, n), t(n)], 1e-4),
        "layer_norm": (lambda x, w, b: layer_norm(x, w, b, eps=1e-5), lambda x, w, b: F.layer_norm(x, (n,), w, b, 1e-5),
                       lambda: [t(24, n), t(n), t(n)], 1e-4),
        "swiglu": (swiglu, lambda x, y: F.silu(x) * y, lambda: [t(24, n), t(24, n)], 1e-4),
        "cross_entropy": (lambda x: FusedCrossEntropyLoss()(x, labels), lambda x: F.cross_entropy(x, labels),
                          lambda: [t(24, 300)], 1e-4),
        "causal_conv1d": (lambda x, w: first(causal_conv1d(x, w)), convolved, lambda: [t(B, S, 40), t(40, 4)], 1e-4),
        "token_shift": (token_shift, lambda x: F.pad(x, (0, 0, 1, -1)) - x, lambda: [t(B, S, 40)], 1e-5),
    }  # fmt: skip


def operators() -> dict[str, Case]:
    return {**attentions(), **recurrences(), **parts()}
