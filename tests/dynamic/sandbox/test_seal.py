"""Replacements are told, and undone; what torch does to itself is not."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from kcontract.dynamic.sandbox import seal


@pytest.fixture
def module() -> Iterator[types.ModuleType]:
    made = types.ModuleType("kcontract_test_module")
    exec("class Kept:\n    def say(self): return 1\ndef say(): return 1\n", made.__dict__)
    sys.modules[made.__name__] = made
    yield made
    sys.modules.pop(made.__name__, None)


def test_nothing_is_told_where_nothing_was_done(module: types.ModuleType) -> None:
    look = seal.seal([module], module.Kept)
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))  # wraps functions of torch
    module.__dict__["new"] = 1
    assert look() == []


@pytest.mark.parametrize(
    ("do", "told"),
    [
        (lambda m: setattr(m, "say", lambda: 2), ["the checker's kcontract_test_module.say"]),
        (lambda m: setattr(m.say, "__code__", (lambda: 2).__code__), ["the checker's kcontract_test_module.say"]),
        (lambda m: delattr(m, "say"), ["the checker's kcontract_test_module.say"]),
        (lambda m: sys.modules.pop(m.__name__), ["the module kcontract_test_module"]),
        (lambda m: setattr(torch.Tensor, "contiguous", lambda t: t), ["torch.Tensor.contiguous"]),
        (lambda m: setattr(torch, "equal", lambda a, b: True), ["torch.equal"]),
    ],
)
def test_what_was_replaced_is_told_once_and_put_back(module: types.ModuleType, do: Any, told: list[str]) -> None:
    look = seal.seal([module], module.Kept)
    do(module)
    assert look() == told
    assert look() == []
    assert module.say() == 1 and sys.modules[module.__name__] is module
    assert "contiguous" not in vars(torch.Tensor) and not torch.equal(torch.zeros(1), torch.ones(1))
