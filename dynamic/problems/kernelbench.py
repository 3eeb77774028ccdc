"""KernelBench problems: ``Model``, ``ModelNew``, ``get_inputs`` and ``get_init_inputs`` in one file or in two.

The format is KernelBench's own (arXiv 2502.10517, section 3). Nothing but those names is asked of the files.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from kcontract.dynamic.problems import guard, source
from kcontract.dynamic.problems.problem import Entry, Problem
from kcontract.errors import InputError
from kcontract.model import Contract

_REFERENCE = ("Model", "get_inputs", "get_init_inputs")


def matches(path: str) -> bool:
    """Whether a file holds a KernelBench reference."""
    return "Model" in source.defined(source.parse(path)) and "get_inputs" in source.defined(source.parse(path))


def load(candidate: str, reference: str | None = None, name: str | None = None) -> Problem:
    """The problem of a candidate file; ``name`` is the candidate's class (default: ``ModelNew``).

    Raises ``InputError`` where a name is missing or the reference cannot be imported.
    """
    reference = reference or candidate
    wanted = name or "ModelNew"
    definitions = source.defined(source.parse(candidate))
    if wanted not in definitions:
        classes = [n for n, s in definitions.items() if isinstance(s, ast.ClassDef) and n != "Model"]
        others = f"its classes: {', '.join(classes)}" if classes else "it defines no class"
        raise InputError(f"defines no {wanted}; name the class with --candidate ({others})", path=candidate)
    names = source.defined(source.parse(reference))
    for needed in _REFERENCE[:2]:
        if needed not in names:
            raise InputError(f"defines no {needed}, which a KernelBench reference needs", path=reference)
    module = source.module_of(reference, [n for n in _REFERENCE if n in names])
    init = drawn(module.get_init_inputs, reference) if "get_init_inputs" in names else ()
    keywords: dict[str, Any] = {}
    if len(init) == 2 and isinstance(init[0], list) and isinstance(init[1], dict):
        init, keywords = tuple(init[0]), init[1]
    if keywords:
        raise InputError("get_init_inputs gives keyword arguments; give them in order", path=reference)
    return Problem(
        name=wanted,
        candidate=Entry(candidate, wanted, "module"),
        reference=guard.reference(lambda: module.Model(*init)),
        inputs=lambda: drawn(module.get_inputs, reference),
        init=init,
        contract=Contract(reference=f"{reference}:Model"),
        origin={"format": "kernelbench", "candidate": candidate, "reference": reference, "name": wanted},
    )


def drawn(draw: Callable[[], Any], path: str) -> tuple[Any, ...]:
    """What ``get_inputs`` gives, as a tuple. Raises ``InputError`` where it fails or gives no list."""
    try:
        with guard.limited(draw.__name__):
            values = draw()
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{draw.__name__} fails: {type(error).__name__}: {error}", path=path) from None
    if not isinstance(values, (list, tuple)):
        raise InputError(f"{draw.__name__} gives a {type(values).__name__}; it has to give a list", path=path)
    return tuple(values)
