"""Rules by aten name: one function an operation, found by importing the files of ``rules/``."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, TypeVar

Rule = Callable[..., Any]
F = TypeVar("F", bound=Callable[..., Any])
"""rule(ctx, y, *args, **kwargs) -> Err, or a tuple of Err a result. ``y`` is what the native operation returned
on float64; the arguments hold the values before any in-place write."""

_RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[F], F]:
    """Register a rule for the operations of these aten base names (all overloads)."""

    def register(fn: F) -> F:
        for name in names:
            if name in _RULES:
                raise ValueError(f"two rules for {name}")
            _RULES[name] = fn
        return fn

    return register


@functools.cache
def rules() -> dict[str, Rule]:
    """All rules, by base name."""
    from kcontract.dynamic.oracle import rules as folder

    for module in pkgutil.iter_modules(folder.__path__):
        importlib.import_module(f"{folder.__name__}.{module.name}")
    return _RULES
