"""Sizes, their ties, what is reduced and which values are admitted, found by probing references."""

import pytest
import torch

from kcontract.dynamic.inputs import Role, build
from kcontract.dynamic.problems.infer import infer, is_random
from kcontract.errors import InputError

NN = torch.nn
BUDGET = 1 << 14


def spec(reference, *inputs):
    found = infer(lambda: reference, inputs, budget=BUDGET)
    return found.spec, found.native


@pytest.mark.parametrize(
    "reference, inputs, shapes, axes",
    [
        (torch.nn.Softmax(dim=1), [(64, 300)], [("batch", "width")], [1]),
        (torch.matmul, [(48, 48), (48, 48)], [("batch", "width"), ("width", "length")], [1, 0]),
        (torch.add, [(32, 32), (32, 32)], [("batch", "width")] * 2, [-1, -1]),
        (lambda x: x.sum(1), [(4, 40, 12)], [("batch", "length", "width")], [1]),
        (NN.LayerNorm((24,)), [(4, 6, 24)], [("batch", "length", 24)], [2]),
        (NN.Conv1d(3, 5, 3), [(2, 3, 17)], [("batch", 3, "width")], [2]),
    ],
)
def test_which_sizes_move_together_and_which_axis_is_reduced(reference, inputs, shapes, axes):
    found, native = spec(reference, *(torch.rand(s) for s in inputs))
    assert [a.shape for a in found.arguments] == shapes
    assert [a.axis for a in found.arguments] == axes
    assert all(native[name] == size for shape, real in zip(shapes, inputs, strict=True)
               for name, size in zip(shape, real, strict=True) if isinstance(name, str))  # fmt: skip


def test_attention_ties_keys_to_values_and_leaves_queries_free():
    found, _ = spec(torch.nn.functional.scaled_dot_product_attention, *(torch.rand(2, 3, 7, 8) for _ in range(3)))
    q, k, v = (a.shape for a in found.arguments)
    assert k[2] == v[2] != q[2]
    assert q[3] == k[3] != v[3]
    assert q[:2] == k[:2] == v[:2]


def test_class_indices_stay_below_the_number_of_classes():
    found, _ = spec(NN.CrossEntropyLoss(), torch.rand(8, 10), torch.randint(0, 10, (8,)))
    assert found.arguments[1].role is Role.INDEX
    assert found.arguments[1].high == "width"
    assert found.arguments[0].shape[0] == found.arguments[1].shape[0]


def test_an_index_into_a_fixed_table_keeps_its_own_bound():
    found, _ = spec(NN.Embedding(12, 4), torch.tensor([[3, 11, 0]]))
    assert found.arguments[0].high == 12
    found, _ = spec(lambda x, i: x.gather(1, i), torch.rand(4, 9), torch.tensor([[2, 8]] * 4))
    assert found.arguments[1].high == "width"


def test_a_logarithm_is_given_positive_values_and_a_square_is_not():
    assert spec(torch.log, torch.rand(4, 8))[0].arguments[0].positive
    assert not spec(torch.square, torch.rand(4, 8))[0].arguments[0].positive


def test_sizes_are_cut_to_the_budget_and_keep_a_long_reduction():
    found, native = spec(torch.nn.Softmax(dim=1), torch.rand(512, 4096))
    assert native == {"batch": 512, "width": 4096}
    assert 2 * found.dims["batch"] * found.dims["width"] <= BUDGET
    assert found.dims["width"] >= 1024


def test_numbers_are_passed_as_they_are():
    found, _ = spec(lambda x, k: x * k, torch.rand(4, 4), 3)
    assert found.arguments[1].role is Role.FIXED
    assert found.arguments[1].value == 3


def test_a_reference_that_fails_on_its_own_inputs_is_said_so():
    with pytest.raises(InputError, match="fails on its own inputs: RuntimeError"):
        spec(torch.matmul, torch.rand(3, 4), torch.rand(5, 6))


def test_a_reference_is_random_where_its_runs_differ():
    x = torch.rand(4, 8)
    drop = torch.nn.functional.dropout
    assert is_random(NN.Dropout(0.5), (x,)) and is_random(torch.bernoulli, (x,))
    assert not is_random(NN.Dropout(0.5).eval(), (x,)) and not is_random(NN.Dropout(0.0), (x,))
    assert not is_random(lambda x: drop(x, 0.5, training=False), (x,))

    def seeded(x):
        torch.manual_seed(3)
        return x + torch.rand(x.shape)

    assert not is_random(seeded, (x,))
    state = torch.get_rng_state()
    assert is_random(lambda x: x * float(torch.rand(())), (x,))  # cannot be run without data
    assert torch.equal(state, torch.get_rng_state())


def test_axes_of_size_1_move_with_those_in_their_place():
    add, _ = spec(torch.add, torch.rand(1, 8), torch.rand(1, 8))
    assert add.dims["batch"] == 1 and add.arguments[0].shape[0] == add.arguments[1].shape[0] == "batch"
    bias, _ = spec(torch.add, torch.rand(1, 4, 8), torch.rand(1, 4, 1))
    assert bias.arguments[0].shape[0] == "batch" and bias.arguments[1].shape == (1, "length", 1)


def test_a_mask_moves_with_its_input():
    found, _ = spec(lambda x, m: x.masked_fill(m, 0.0), torch.rand(4, 8), torch.ones(4, 8, dtype=torch.bool).tril())
    assert found.arguments[1].role is Role.GIVEN and found.arguments[1].shape == ("batch", "width")
    moved = build(found.with_dims({"batch": 6, "width": 3}), 0)[1]
    assert moved.shape == (6, 3) and bool(moved[:, 0].all())
