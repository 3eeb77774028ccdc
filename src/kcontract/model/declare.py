"""``@kcontract.contract``: a plain function declares what it promises, and who judges it.

The decorator only attaches the declaration; the function is called as before. Standard library and ``model`` only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kcontract.errors import UsageError
from kcontract.model import Accumulator, Contract, Determinism, NanPolicy, Subnormals

Function = TypeVar("Function", bound=Callable[..., Any])

_POLICIES: Mapping[str, type[Any]] = {
    "accumulator": Accumulator,
    "nan": NanPolicy,
    "subnormals": Subnormals,
    "determinism": Determinism,
}
_OTHERS = ("targets", "ranges", "divisible", "tolerance", "waivers")


@dataclass(frozen=True, slots=True)
class Declaration:
    """What the decorator was given. ``reference`` takes the function's arguments, ``inputs()`` draws a set of them at
    the sizes in use. ``gradients`` asks for CMP-02; ``dtypes`` are those promised (default: all the reference takes).
    """

    reference: Callable[..., Any]
    inputs: Callable[[], Sequence[Any]]
    contract: Contract
    gradients: bool = False
    dtypes: tuple[str, ...] = ()


def declaration(
    *, reference: Any, inputs: Any, gradients: bool = False, dtypes: Sequence[str] = (), **declared: Any
) -> Declaration:
    """The declaration of these keywords. Raises ``UsageError`` for one that is unknown or has no such value."""
    fields: dict[str, Any] = {}
    for name, value in declared.items():
        if name in _POLICIES:
            try:
                fields[name] = _POLICIES[name](value)
            except ValueError:
                values = ", ".join(repr(v.value) for v in _POLICIES[name])
                raise UsageError(f"contract({name}={value!r}): write one of {values}") from None
        elif name in _OTHERS:
            fields[name] = tuple(value) if name == "targets" else value
        else:
            known = ("reference", "inputs", "gradients", "dtypes", *_POLICIES, *_OTHERS)
            raise UsageError(f"contract() has no argument {name!r}; it takes {', '.join(known)}")
    for name, value in (("reference", reference), ("inputs", inputs)):
        if not callable(value):
            raise UsageError(f"contract({name}={value!r}): give a function")
    where = getattr(reference, "__qualname__", "reference")
    return Declaration(reference, inputs, Contract(reference=where, **fields), bool(gradients), tuple(dtypes))


def contract(**declared: Any) -> Callable[[Function], Function]:
    """Declare a function's contract: ``@kcontract.contract(reference=torch.softmax, inputs=draw, nan="propagate")``.

    Takes ``reference`` (a function of the same arguments), ``inputs`` (a function that draws them), ``gradients``,
    ``dtypes``, and the fields of ``kcontract.model.Contract``. Raises ``UsageError`` for anything else.
    """
    made = declaration(**declared)

    def mark(function: Function) -> Function:
        function.__kcontract__ = made  # type: ignore[attr-defined]
        return function

    return mark
