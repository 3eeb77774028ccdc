"""Generators are seeded and quantised; sets hold what a gate asks for; layouts keep their values."""

from __future__ import annotations

import pytest
import torch

from kcontract.dynamic import inputs
from kcontract.dynamic.inputs import Argument, Role, Spec
from kcontract.errors import InputError

SPEC = Spec(
    (
        Argument("x", ("rows", "n"), "float16", requires_grad=True),
        Argument("y", ("rows", "n"), "float16"),
        Argument("scale", ("n",), "float16", Role.PARAMETER, center=1.0),
        Argument("at", ("rows",), "int64", Role.INDEX, high="n"),
        Argument("eps", role=Role.FIXED, value=1e-5),
    ),
    {"rows": 4, "n": 64},
)


@pytest.mark.parametrize("kind", inputs.kinds())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_kind_is_drawn_again_by_its_seed(kind: str, dtype: torch.dtype) -> None:
    first, again, other = (inputs.draw(kind, (3, 50), dtype, seed) for seed in (1, 1, 2))
    assert first.dtype is dtype and first.shape == (3, 50)
    assert torch.equal(first, again) and bool(torch.isfinite(first).all())
    assert kind == "zeros" or not torch.equal(first, other)


def test_kinds_have_the_property_they_are_named_for() -> None:
    def rows(kind: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return inputs.draw(kind, (8, 600), dtype, 3).double()

    x = rows("cancelling")
    assert float((x.sum(-1).abs() / x.abs().sum(-1)).max()) < 0.01
    x = rows("large_mean")
    assert float((x.mean(-1) / x.std(-1)).min()) > 900
    x = rows("subnormal")
    assert 0 < float(x.abs().max()) < 2.0**-126
    assert float((rows("sparse") != 0).double().mean()) < 0.06
    x = rows("ascending")
    assert bool((x.diff(dim=-1) >= 0).all())
    assert float(inputs.draw("spike_first", (8, 600), torch.float32, 3, axis=0)[0, 0]) == 512.0


def test_an_unknown_kind_or_gate_is_refused() -> None:
    with pytest.raises(InputError, match="no kind of input"):
        inputs.draw("nonsense", (2,), torch.float32, 0)
    with pytest.raises(InputError, match="no inputs are made for gate"):
        list(inputs.sample("RES-02", SPEC))
    with pytest.raises(InputError, match="has no size"):
        SPEC.size("k")


@pytest.mark.parametrize(
    "gate", ["CMP-01", "CMP-02", "CMP-03", "ORD-01", "ORD-03", "EXC-01", "EXC-02", "PRC-01", "PRC-02"]
)
def test_sets_are_seeded_and_thorough_is_larger(gate: str) -> None:
    few, again, many = (
        list(inputs.sample(gate, SPEC, 5)),
        list(inputs.sample(gate, SPEC, 5)),
        list(inputs.thorough(gate, SPEC, 5)),
    )
    assert 0 < len(few) < len(many)
    assert len({s.label for s in few}) == len(few)
    for a, b in zip(few, again, strict=True):
        for p, q in zip(a.inputs, b.inputs, strict=True):
            assert (
                p is q or p == q
                if not isinstance(p, torch.Tensor)
                else torch.equal(p.nan_to_num(0.5), q.nan_to_num(0.5))
            )


def test_values_change_every_argument_alone() -> None:
    base = inputs.build(SPEC, 0)
    labels = {s.label: s for s in inputs.sample("CMP-01", SPEC, 0)}
    assert {"zeros", "huge", "small", "subnormal", "long n"} <= set(labels)
    for at, argument in enumerate(SPEC.arguments[:4]):
        moved = labels[f"only {argument.name} changes"].inputs
        same = [torch.equal(a, b) for a, b in zip(base[:4], moved[:4], strict=True)]
        assert same == [k != at for k in range(4)]
    assert len([k for k in labels if k.startswith("normal")]) >= 8


def test_parameters_stay_off_their_identity_and_gradients_are_wanted() -> None:
    x, _, scale, at, eps = inputs.build(SPEC, 7)
    assert x.requires_grad and eps == 1e-5 and int(at.max()) < 64
    assert float((scale.double() - 1).abs().min()) > 0.2


def test_nonfinite_places() -> None:
    x = torch.zeros(4, 200)
    found = dict(inputs.placements(x, 0))
    assert bool(torch.isnan(found["nan at 127"][0, 127])) and bool(torch.isnan(found["nan at 128"][3, 128]))
    assert int(torch.isinf(found["-inf row"]).sum()) == 200
    late = found["only a late element"]
    assert float(late[0, 150]) == 1.0 and int(torch.isinf(late[0]).sum()) == 199
    assert float(x.abs().max()) == 0.0


def test_boundary_sizes() -> None:
    assert inputs.boundary_sizes(129, 128) == (1, 7, 127)
    assert {0, 1, 7, 127, 128, 129, 1023, 1025} <= set(inputs.boundary_sizes(64, 128, thorough=True))
    shapes = dict(inputs.boundary_shapes({"m": 64, "n": 32}))
    assert shapes["m = 1"] == {"m": 1, "n": 32} and shapes["all 1"] == {"m": 1, "n": 1}


def test_views_hold_the_same_values_in_other_layouts() -> None:
    x = torch.randn(6, 10)
    views = dict(inputs.strided_views(x))
    for name in ("transposed", "sliced", "every second", "offset by one"):
        assert torch.equal(views[name], x), name
    assert not views["sliced"].is_contiguous() and views["offset by one"].storage_offset() == 1
    assert views["expanded"].stride(0) == 0
