"""Arguments for fla-core's operations, made from the names its signatures use."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from cases import BF16, t

B, T, H, K, V = 2, 256, 4, 64, 64
F32 = torch.float32


def seq(*tail: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    """Random ``[B, T, H, *tail]``."""
    return t(B, T, H, *tail, dtype=dtype)


def unit(*tail: int) -> torch.Tensor:
    """Rows of length one, ``[B, T, H, *tail]``, with a gradient."""
    return F.normalize(seq(*tail, dtype=F32).detach(), dim=-1).to(BF16).requires_grad_()


def gate(*tail: int) -> torch.Tensor:
    """Log decay, at most zero, ``[B, T, H, *tail]`` in float32."""
    return F.logsigmoid(seq(*tail, dtype=F32).detach()).requires_grad_()


def rate(*tail: int) -> torch.Tensor:
    """Between zero and one, ``[B, T, H, *tail]``."""
    return torch.sigmoid(seq(*tail).detach()).requires_grad_()


#: What most operations mean by a name; a case overrides what it means differently.
BY_NAME: dict[str, Callable[[], Any]] = {
    **{name: lambda: seq(K) for name in ("q", "r")},
    "k": lambda: unit(K),
    "v": lambda: seq(V),
    "p": lambda: unit(K),
    "w": lambda: unit(K),
    "s": lambda: seq(32),
    "g": gate,
    "beta": rate,
    "a": lambda: unit(K),
    "b": lambda: unit(K),
    "u": lambda: t(H, K),
    "gk": lambda: gate(K),
    "gv": lambda: gate(V),
    "g_atk": gate,
    "beta_atk": rate,
    "lamb": lambda: torch.rand(H, K, device="cuda").add(0.25).requires_grad_(),
    **dict.fromkeys(("log_alpha", "log_mu"), gate),
    "eta": rate,
    "theta": rate,
    "alpha": rate,
    "layer_idx": lambda: 1,
    "num_layers": lambda: 12,
    "num_householder": lambda: 2,
}


def call(function: Callable[..., Any], **given: Any) -> Any:
    """``function`` with every parameter that has no default taken from ``given`` or from ``BY_NAME``."""
    arguments = dict(given)
    for name, parameter in inspect.signature(function).parameters.items():
        named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if named and name not in arguments and parameter.default is parameter.empty:
            arguments[name] = BY_NAME[name]()
    return function(**arguments)
