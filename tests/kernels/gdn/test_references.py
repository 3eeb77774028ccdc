"""The float64 forms agree with each other, and the family's members with formulas of their own."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from kcontract.kernels.gdn import reference  # noqa: E402
from kcontract.kernels.gdn.chunked import backward, forward, gate_gradient_identity  # noqa: E402

MEMBERS = {
    "gdn": ("scalar", True),
    "kda": ("channel", True),
    "deltanet": ("none", True),
    "gla": ("channel", False),
    "ssd": ("scalar", False),
    "linear attention": ("none", False),
}
TIGHT = 1e-11


def inputs(gate: str, T: int = 37, H: int = 2, K: int = 8, V: int = 6, strength: float = 1.0):
    """Leading dimensions [H], no batch: q, k [H, T, K], v [H, T, V], g [H, T, K], beta [H, T], S [H, K, V]."""
    torch.manual_seed(T + K)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64)  # noqa: E731
    q, k, v = draw(H, T, K), torch.nn.functional.normalize(draw(H, T, K), dim=-1), draw(H, T, V)
    g = -strength * torch.rand(H, T, K if gate == "channel" else 1, dtype=torch.float64)
    g = torch.zeros_like(g) if gate == "none" else g
    return q, k, v, g, torch.rand(H, T, dtype=torch.float64), draw(H, K, V)


def token_form(q, k, v, g, beta, S, scale, delta):
    """The recurrence on [H, T, ...] inputs, through the public function's [B, T, H, ...]."""
    q, k, v, g, beta = (x.movedim(0, 1).unsqueeze(0) for x in (q, k, v, g, beta))
    o, final = reference(
        q, k, v, g.squeeze(-1) if g.shape[-1] == 1 else g, beta, scale, S.unsqueeze(0), True, delta=delta
    )
    return o.squeeze(0).movedim(0, 1), final.squeeze(0)


def close(a, b) -> float:
    return float((a - b).detach().norm() / b.norm().clamp_min(1e-30))


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("form", ["solve-adjoint", "wy"])
def test_both_backward_forms_equal_autograd_of_the_recurrence(member, form):
    gate, delta = MEMBERS[member]
    leaves = [x.requires_grad_() for x in inputs(gate)]
    q, k, v, g, beta, S = leaves
    o, final = token_form(*leaves, 0.3, delta)
    do, dS = torch.randn_like(o), torch.randn_like(final)
    want = torch.autograd.grad([o, final], leaves, [do, dS])
    q, k, v, g, beta, S = (x.detach() for x in leaves)
    wide = g.expand(*g.shape[:-1], q.shape[-1])
    o2, final2, kept = forward(q, k, v, wide, beta, 0.3, S, 16, delta)
    assert close(o2, o) < TIGHT and close(final2, final) < TIGHT
    got = backward(do, dS, kept, 0.3, form, delta)
    dg = got.g if gate == "channel" else got.g.sum(-1, keepdim=True)
    for name, a, b in zip(
        "q k v g beta state".split(), (got.q, got.k, got.v, dg, got.beta, got.initial_state), want, strict=True
    ):
        assert close(a, b) < TIGHT, name


def test_a_gate_of_minus_twenty_a_step_stays_finite_and_right():
    q, k, v, g, beta, S = inputs("channel", T=64, strength=20.0)
    o, final = token_form(q, k, v, g, beta, S, 0.3, True)
    o2, final2, kept = forward(q, k, v, g, beta, 0.3, S, 64)
    assert close(o2, o) < TIGHT and close(final2, final) < TIGHT
    got = backward(torch.randn_like(o), torch.randn_like(S), kept, 0.3)
    assert all(x.isfinite().all() for x in vars(got).values())


@pytest.mark.parametrize("member", ["gdn", "ssd", "deltanet"])
def test_checker_identities(member):
    gate, delta = MEMBERS[member]
    q, k, v, g, beta, S = inputs(gate)
    beta = beta + 0.1
    wide = g.expand(*g.shape[:-1], q.shape[-1])
    o, final, kept = forward(q, k, v, wide, beta, 0.3, S, 16, delta)
    do, dS = torch.randn_like(o), torch.randn_like(S)
    got = backward(do, dS, kept, 0.3, delta=delta)
    dg = got.g.sum(-1)
    assert close(gate_gradient_identity(q, got.q, v, got.v, final, dS), dg) < TIGHT
    assert close(gate_gradient_identity(q, got.q, v, 1.01 * got.v, final, dS), dg) > 1e-4, "a wrong dv must show"
    # dbeta_i = Y_i . Vn_i / beta_i, with Y = dv / beta
    rows = torch.cat([c.Vn for c in kept], -2)[..., : q.shape[-2], :]
    assert close((got.v / beta.unsqueeze(-1) * rows).sum(-1) / beta, got.beta) < TIGHT


def test_dbeta_is_right_where_beta_is_zero():
    q, k, v, g, beta, S = inputs("scalar", T=8)
    beta[:, 3] = 0.0
    leaf = beta.requires_grad_()
    o, _ = token_form(q, k, v, g, leaf, S, 0.3, True)
    do = torch.randn_like(o)
    (want,) = torch.autograd.grad(o, leaf, do)
    wide = g.expand(*g.shape[:-1], q.shape[-1])
    _, _, kept = forward(q, k, v, wide, beta.detach(), 0.3, S, 8)
    assert close(backward(do, torch.zeros_like(S), kept, 0.3).beta, want) < TIGHT


def test_no_gate_and_no_delta_is_causal_attention_without_softmax():
    q, k, v, g, beta, S = inputs("none")
    o, final = token_form(q, k, v, g, torch.ones_like(beta), torch.zeros_like(S), 0.3, False)
    assert close(o, 0.3 * (q @ k.mT).tril() @ v) < TIGHT and close(final, k.mT @ v) < TIGHT


def test_scalar_gate_without_delta_is_the_semiseparable_matrix():
    q, k, v, g, beta, S = inputs("scalar")
    o, _ = token_form(q, k, v, g, beta, torch.zeros_like(S), 0.3, False)
    total = g.squeeze(-1).cumsum(-1)
    mask = (total.unsqueeze(-1) - total.unsqueeze(-2)).exp().tril()
    assert close(o, 0.3 * ((q @ k.mT) * mask) @ (beta.unsqueeze(-1) * v)) < TIGHT


def test_channelwise_gate_without_delta_is_gated_linear_attention():
    q, k, v, g, beta, S = inputs("channel")
    o, _ = token_form(q, k, v, g, torch.ones_like(beta), torch.zeros_like(S), 0.3, False)
    total = g.cumsum(-2)
    assert close(o, 0.3 * ((q * total.exp()) @ (k * (-total).exp()).mT).tril() @ v) < 1e-9


def test_delta_rule_with_unit_beta_stores_what_it_is_told():
    """DeltaNet's defining property: after a step with beta = 1 and a unit key, the key reads back its value."""
    _, k, v, g, beta, S = inputs("none", T=5)
    o, _ = token_form(k, k, v, g, torch.ones_like(beta), S, 1.0, True)
    assert close(o, v) < TIGHT


def test_a_channelwise_gate_equal_in_all_channels_is_the_scalar_gate():
    q, k, v, g, beta, S = inputs("scalar")
    a = token_form(q, k, v, g, beta, S, 0.3, True)
    b = token_form(q, k, v, g.expand(*g.shape[:-1], 8).contiguous(), beta, S, 0.3, True)
    assert close(a[0], b[0]) < TIGHT and close(a[1], b[1]) < TIGHT


def test_packed_sequences_equal_separate_ones_and_heads_share_keys():
    torch.manual_seed(0)
    T, H, HV, K, V = 20, 2, 6, 4, 3
    draw = lambda *shape: torch.randn(1, T, *shape, dtype=torch.float64)  # noqa: E731
    q, k, v, g, beta = draw(H, K), draw(H, K), draw(HV, V), -draw(HV).abs(), draw(HV).sigmoid()
    start = torch.randn(3, HV, K, V, dtype=torch.float64)
    o, final = reference(q, k, v, g, beta, None, start, True, torch.tensor([0, 7, 7, 20]))
    for n, (a, b) in enumerate([(0, 7), (7, 7), (7, 20)]):
        alone = reference(*(x[:, a:b] for x in (q, k, v, g, beta)), None, start[n : n + 1], True)
        assert torch.equal(o[:, a:b], alone[0]) and torch.equal(final[n], alone[1][0])
    one = reference(q[:, :, 1:], k[:, :, 1:], v[:, :, 4:5], g[:, :, 4:5], beta[:, :, 4:5])[0]
    assert close(one, reference(q, k, v, g, beta)[0][:, :, 4:5]) < TIGHT


def test_the_default_scale_and_no_tokens():
    q, k, v, g, beta = (
        torch.rand(1, 0, 2, 4),
        torch.rand(1, 0, 2, 4),
        torch.rand(1, 0, 2, 3),
        torch.rand(1, 0, 2),
        torch.rand(1, 0, 2),
    )
    o, final = reference(q, k, v, g, beta, output_final_state=True)
    assert o.shape == (1, 0, 2, 3) and final.shape == (1, 2, 4, 3) and not final.any()
    one = torch.ones(1, 1, 1, 4)
    assert reference(one, one, one, None, None)[0][0, 0, 0, 0] == pytest.approx(4**-0.5 * 4)
