"""Keeps kcontract and the user's own listener on ``triton.knobs.compilation.listener`` side by side.

A data descriptor takes the attribute's place on the class, so that it survives ``scope()``, ``reset()``,
``copy()`` and assignments before or after. Reading gives a ``Chain``; what the user assigned stays in the
instance's ``__dict__``, where Triton's own code expects it, and a ``Chain`` that is assigned back (to restore what
was read before) is replaced by the user's object in it. Class-level assignment is not covered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Observer = Callable[..., BaseException | None]


class Chain:
    """Calls kcontract's observer, then the user's listener, then raises what the observer wants raised.

    The user's exceptions pass through unchanged. Attributes are those of the user's listener.
    """

    def __init__(self, observer: Observer, user: Any) -> None:
        self.observer, self.user = observer, user

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        refusal = self.observer(*args, **kwargs)
        if self.user:
            self.user(*args, **kwargs)
        if refusal is not None:
            raise refusal

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__.get("user"), name)


class Slot:
    """The data descriptor. ``default`` is what the class held before."""

    def __init__(self, name: str, observer: Observer, default: Any) -> None:
        self.name, self.observer, self.default = name, observer, default
        self.last = Chain(observer, default)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self.default
        user = vars(instance).get(self.name, self.default)
        chain = self.last
        if chain.user is not user:
            chain = self.last = Chain(self.observer, user)
        return chain

    def __set__(self, instance: Any, value: Any) -> None:
        vars(instance)[self.name] = value.user if isinstance(value, Chain) else value

    def __delete__(self, instance: Any) -> None:
        vars(instance).pop(self.name, None)


def attach(knobs: Any, name: str, observer: Observer) -> None:
    """Put the observer on ``type(knobs).name``, once."""
    owner = type(knobs)
    if not isinstance(vars(owner).get(name), Slot):
        setattr(owner, name, Slot(name, observer, getattr(owner, name, None)))
