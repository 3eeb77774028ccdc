"""Accumulation models: worst-case factors, and who chooses the model."""

from __future__ import annotations

import math

import pytest

from kcontract.dynamic.oracle import Accumulation, Order, choose, form_of
from kcontract.errors import InputError
from kcontract.model import Accumulator, Contract


def test_the_worst_case_factor_is_gamma_n() -> None:
    u = 2.0**-24
    assert Accumulation.fp32().factor(1000) == pytest.approx(1000 * u / (1 - 1000 * u))
    assert math.isinf(Accumulation.of(form_of("bfloat16")).factor(256))


def test_blocks_and_parts_add_a_level_each() -> None:
    half = form_of("float16")
    blocked = Accumulation.fp32().blocked(16, half).factor(64)
    assert blocked == pytest.approx(16 * 2**-11 / (1 - 16 * 2**-11) + 4 * 2**-24, rel=1e-6)
    parts = Accumulation.fp32().split(4, half).factor(64)
    assert parts == pytest.approx(16 * 2**-24 + 5 * 2**-11 / (1 - 5 * 2**-11), rel=1e-6)


@pytest.mark.parametrize(
    ("contract", "inputs", "ir", "name", "provenance"),
    [
        (None, "bfloat16", (), "float32", "default"),
        (None, "bfloat16", ("f32",), "float32", "ir"),
        (None, "float16", ("f16",), "float32", "ir"),
        (None, "float32", ("f32", "tf32"), "tf32", "ir"),
        (Contract(accumulator=Accumulator.INPUT), "float16", ("f16",), "float16", "contract"),
        (Contract(accumulator=Accumulator.FLOAT32), "float16", ("f16",), "float32", "contract"),
        (None, "float64", (), "float64", "default"),
    ],
)
def test_who_chooses(contract: Contract | None, inputs: str, ir: tuple[str, ...], name: str, provenance: str) -> None:
    model = choose(contract, inputs, ir)
    assert (model.name, model.provenance) == (name, provenance)


def test_a_wrong_name_is_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match="unknown accumulator type 'f8'"):
        choose(None, "float32", ("f8",))
    with pytest.raises(InputError, match="no error bound is known"):
        form_of("int32")


def test_lambda_goes_with_the_order() -> None:
    assert Accumulation.fp32().lam == 8.0
    assert Accumulation.fp32(worst=True).lam == 1.0
    assert Accumulation.fp32(worst=True).order is Order.WORST
