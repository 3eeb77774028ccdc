"""On a GPU: every output and gradient against float64, five runs with the same bits, and a CUDA graph."""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

import within_bound  # noqa: E402

from kcontract.kernels.gdn import chunk_gated_delta_rule, launch  # noqa: E402
from kcontract.kernels.gdn.chunked import backward, forward  # noqa: E402
from kcontract.kernels.gdn.problem import check  # noqa: E402

NAMES = ("o", "final state", "q", "k", "v", "g", "beta", "initial state")
# Half of flash-linear-attention's own test tolerances on the same relative RMS error.
HALF = (2.5e-3, 2.5e-3, 4e-3, 4e-3, 4e-3, 1e-2, 1e-2, 4e-3)
CASES = {
    "plain": {},
    "grouped, long": {"T": 1500, "HV": 4},
    "packed": {"B": 1, "T": 500, "cuts": [0, 1, 1, 130, 500]},
    "one token": {"T": 1},
    "gate -1 a step": {"T": 1000, "strength": 1.0},
    "gate -20 a step": {"strength": 20.0},
    "float16": {"dtype": torch.float16},
    "float32": {"dtype": torch.float32},
    "64 x 64": {"K": 64, "V": 64},
    "64 x 128": {"K": 64},
    "128 x 256": {"V": 256},
    "256 x 256": {"K": 256, "V": 256},
    "many heads": {"B": 8, "T": 200, "H": 32, "HV": 32},
    "channel-wise": {"HV": 4, "channelwise": True},
    "channel-wise, packed": {"B": 1, "T": 500, "cuts": [0, 130, 500], "channelwise": True, "strength": 1.0},
    "channel-wise, -20 a step": {"channelwise": True, "strength": 20.0},
}


def inputs(B=2, T=300, H=2, HV=2, K=128, V=128, dtype=torch.bfloat16, strength=0.1, cuts=None, channelwise=False):
    torch.manual_seed(0)
    draw = lambda *shape: torch.randn(B, T, *shape, device="cuda")  # noqa: E731
    q, k = draw(H, K).to(dtype), torch.nn.functional.normalize(draw(H, K), dim=-1).to(dtype)
    g = -strength * torch.rand(B, T, HV, *([K] if channelwise else []), device="cuda")
    start = torch.randn(B if cuts is None else len(cuts) - 1, HV, K, V, device="cuda")
    leaves = [q, k, draw(HV, V).to(dtype), g, draw(HV).sigmoid(), start]
    cu_seqlens = None if cuts is None else torch.tensor(cuts, device="cuda")
    return [x.requires_grad_() for x in leaves], draw(HV, V).to(dtype), torch.randn_like(start), cu_seqlens


def ours(leaves, do, dstate, cu_seqlens):
    q, k, v, g, beta, start = leaves
    o, state = chunk_gated_delta_rule(q, k, v, g, beta, None, start, True, cu_seqlens)
    return [o.detach(), state.detach(), *torch.autograd.grad([o, state], leaves, [do, dstate])]


def float64(leaves, do, dstate, cu_seqlens):
    """The chunked form, sequence by sequence: tests/kernels/gdn/test_references.py ties it to the recurrence."""
    q, k, v, g, beta, start = (x.detach().double() for x in leaves)
    H, HV, K = q.shape[2], v.shape[2], q.shape[3]
    q, k = (x.repeat_interleave(HV // H, 2) for x in (q, k))
    wide = g if g.dim() == 4 else g.unsqueeze(-1).expand(*g.shape, K)
    size = 16 if g.dim() == 4 else 64
    cuts = range(0, (len(q) + 1) * q.shape[1], q.shape[1]) if cu_seqlens is None else cu_seqlens.tolist()
    rows = [x.flatten(0, 1) for x in (q, k, v, wide, beta, do.double())]
    parts, states, dstarts = [], [], []
    for n, (a, b) in enumerate(itertools.pairwise(cuts)):
        if a == b:
            states.append(start[n]), dstarts.append(dstate[n].double())
            continue
        cq, ck, cv, cg, cb, cdo = (x[a:b].movedim(0, 1) for x in rows)
        o, state, kept = forward(cq, ck, cv, cg, cb, K**-0.5, start[n], size)
        d = backward(cdo, dstate[n].double(), kept, K**-0.5)
        parts.append([x.movedim(0, 1) for x in (o, d.q, d.k, d.v, d.g if g.dim() == 4 else d.g.sum(-1), d.beta)])
        states.append(state), dstarts.append(d.initial_state)
    o, dq, dk, dv, dg, db = (torch.cat(x).unflatten(0, leaves[2].shape[:2]) for x in zip(*parts, strict=True))
    dq, dk = (x.unflatten(2, (H, HV // H)).sum(3) for x in (dq, dk))
    return [o, torch.stack(states), dq, dk, dv, dg, db, torch.stack(dstarts)]


@pytest.mark.parametrize("name", CASES)
def test_within_half_of_the_usual_tolerance_and_the_same_bits_five_times(name):
    case = inputs(**CASES[name])
    want, first = float64(*case), ours(*case)
    for what, half, a, b in zip(NAMES, HALF, first, want, strict=True):
        error = float((a.double() - b).norm() / b.norm())
        assert error <= half, (what, error)
    for _ in range(4):
        poison = [torch.full((1 << 24,), float("nan"), device="cuda") for _ in range(2)]
        del poison
        assert all(torch.equal(a, b) for a, b in zip(first, ours(*case), strict=True))


def test_float32_stays_inside_the_bound_that_the_oracle_derives_from_the_recurrence():
    allowed, upstream = within_bound.promised(within_bound.inputs())
    found = ours(within_bound.inputs("cuda"), *(x.cuda() for x in upstream), None)
    assert all(x <= 1 for x in within_bound.shares(found, allowed).values())


@pytest.mark.slow
def test_a_sequence_of_64k_stays_finite():
    case = inputs(B=1, T=65536, H=1, HV=1, strength=20.0)
    assert all(x.isfinite().all() for x in ours(*case))


@pytest.mark.parametrize("HV", [2, 4], ids=["plain", "grouped"])
def test_forward_and_backward_can_be_captured_in_a_cuda_graph(HV):
    (q, k, v, g, beta, start), do, dstate, _ = inputs(HV=HV)
    q, k, v, g, beta, start = (x.detach() for x in (q, k, v, g, beta, start))
    p = check(q, k, v, g, beta, None, start)
    chunks = launch.locate(p, q, None)

    def call():
        o, state, x = launch.forward(p, chunks, q, k, v, g, beta, start, True)
        return o, state, *launch.backward(p, chunks, q, k, v, g, beta, x.kept, start, do, dstate)

    want = call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = call()
    graph.replay()
    assert all(torch.equal(a, b) for a, b in zip(want, got, strict=True))
