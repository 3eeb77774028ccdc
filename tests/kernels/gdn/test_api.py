"""The public function refuses what it cannot do, in a sentence, and imports nothing until it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from kcontract.kernels.gdn import chunk_gated_delta_rule  # noqa: E402


def arguments(T=4, **changes):
    made = {
        "q": torch.zeros(1, T, 2, 64),
        "k": torch.zeros(1, T, 2, 64),
        "v": torch.zeros(1, T, 4, 128),
        "g": torch.zeros(1, T, 4),
        "beta": torch.zeros(1, T, 4),
    }
    return made | changes


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"q": torch.zeros(4, 2, 64)}, r"q and k must both have shape \[B, T, H, K\]; found \[4, 2, 64\]"),
        ({"k": torch.zeros(1, 4, 2, 128)}, r"q and k must both have shape"),
        ({"v": torch.zeros(1, 5, 4, 128)}, r"v must have shape \[B, T, HV, V\] with \[B, T\] = \[1, 4\]"),
        ({"v": torch.zeros(1, 4, 3, 128)}, r"multiple of the query heads; found HV = 3 in v and H = 2"),
        ({"g": torch.zeros(1, 4, 2)}, r"g must have shape \[1, 4, 4\] or \[1, 4, 4, 64\]; found \[1, 4, 2\]"),
        ({"beta": torch.zeros(1, 4)}, r"beta must have shape \[1, 4, 4\]; found \[1, 4\]"),
        ({"initial_state": torch.zeros(2, 4, 64, 128)}, r"initial_state must have shape \[1, 4, 64, 128\]"),
        ({"cu_seqlens": torch.zeros(3)}, r"cu_seqlens must hold N \+ 1 integers"),
        ({"cu_seqlens": torch.tensor([0])}, r"cu_seqlens must hold N \+ 1 integers"),
        ({"v": torch.zeros(1, 4, 4, 96)}, r"K and V must be among \(64, 128, 256\); found K = 64 in q and V = 96 in v"),
        (
            {"v": torch.zeros(1, 4, 4, 128).half()},
            r"q, k and v must share bfloat16, float16 or float32; found torch.float32",
        ),
        (
            {"beta": torch.zeros(1, 4, 4, dtype=torch.int32)},
            r"beta must hold floating-point numbers; found torch.int32",
        ),
        ({"g": torch.zeros(1, 4, 4, device="meta")}, r"on one device; q is on cpu and g on meta"),
        ({}, r"the kernels run on CUDA tensors; found cpu. On a CPU use `reference`"),
    ],
)
def test_each_misuse_gets_a_sentence(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        chunk_gated_delta_rule(**arguments(**changes))


def test_packed_sequences_need_a_batch_of_one():
    twice = {name: x.expand(2, *x.shape[1:]) for name, x in arguments().items()}
    with pytest.raises(ValueError, match=r"the batch must be 1.*found B = 2"):
        chunk_gated_delta_rule(**twice, cu_seqlens=torch.tensor([0, 4]))


def test_no_tokens_returns_the_initial_state_and_its_gradient():
    start = torch.randn(1, 4, 64, 128, requires_grad=True)
    o, state = chunk_gated_delta_rule(**arguments(T=0), initial_state=start, output_final_state=True)
    assert o.shape == (1, 0, 4, 128) and torch.equal(state, start) and state.dtype == torch.float32
    (gradient,) = torch.autograd.grad(state.sum(), start)
    assert torch.equal(gradient, torch.ones_like(start))
    o, state = chunk_gated_delta_rule(**arguments(T=0), output_final_state=True)
    assert not state.any()
    assert chunk_gated_delta_rule(**arguments(T=0))[1] is None


def test_importing_the_kernels_pulls_in_neither_torch_nor_triton():
    code = (
        "import kcontract.kernels, kcontract.kernels.gdn, sys;"
        "sys.exit(sum(name in sys.modules for name in ('torch', 'triton', 'numpy', 'z3')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [("g", None, "NoneType"), ("beta", None, "NoneType"), ("cu_seqlens", [0, 4], "list"), ("q", 1.0, "float")],
)
def test_what_is_no_tensor_is_named(name, value, found):
    with pytest.raises(ValueError, match=f"{name} must be a tensor; found {found}"):
        chunk_gated_delta_rule(**{**arguments(), name: value})
