"""Tells what a candidate has put in the place of functions that its process relies on, and puts them back.

The candidate shares the process with what loads it, calls it and sends its results, and any of that could be replaced:
a function of the checker, of torch, of the standard library, a whole entry of ``sys.modules``. So all of it is noted
before the candidate's file is read, and looked at whenever the candidate has run, before anything of it is used.
What looks is a closure that calls nothing by name.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import dataclasses
import json
import os
import socket
import struct
import sys
import time
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

#: Modules whose functions and classes are noted, with the name that an accusation gives them.
_MODULES: tuple[tuple[str, types.ModuleType], ...] = (
    ("torch", torch), ("torch.testing", torch.testing), ("torch.cuda", torch.cuda), ("torch.autograd", torch.autograd),
    ("time", time), ("os", os), ("json", json), ("struct", struct), ("copy", copy), ("contextlib", contextlib),
    ("dataclasses", dataclasses), ("builtins", builtins),
)  # fmt: skip
_CLASSES: tuple[tuple[str, type], ...] = (
    ("torch.Tensor", torch.Tensor), ("torch.cuda.Event", torch.cuda.Event), ("torch.nn.Module", torch.nn.Module),
    ("socket.socket", socket.socket), ("json.JSONEncoder", json.JSONEncoder), ("json.JSONDecoder", json.JSONDecoder),
    ("the checker's record", TorchDispatchMode),
)  # fmt: skip
_NOTED = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
          types.GetSetDescriptorType, types.MemberDescriptorType, types.ModuleType, type, property, classmethod,
          staticmethod, struct.Struct)  # fmt: skip


#: Modules of which only those functions are noted that the checker, or any checker, calls by name.
_LARGE = (torch, torch.cuda, os)
_ALSO = frozenset(("allclose", "isclose", "equal", "Event", "synchronize", "current_stream"))


def seal(own: Sequence[types.ModuleType], launcher: Any) -> Callable[[], list[str]]:
    """Note everything as it is now; ``own`` are modules of the checker, ``launcher`` is the class or object that its
    hook into launches is on. What comes back names what has been replaced since, and puts it back."""
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    classes = [*_CLASSES, ("triton.JITFunction", JITFunction), ("triton.Autotuner", Autotuner)]
    modules = [*_MODULES, *((f"the checker's {m.__name__.rpartition('.')[2]}", m) for m in own)]
    for label, module in modules[len(_MODULES) :]:
        classes += [(f"{label}.{n}", v) for n, v in vars(module).items() if _made_in(v, module)]
    used = _ALSO | {name for module in own for name in _names(module)}
    held = [
        (f"{label}.{name}", where, vars(where), name, value, getattr(value, "__code__", None))
        for label, where in (*modules, *classes, ("triton's launcher", launcher))
        for name, value in vars(where).items()
        if isinstance(value, _NOTED) and (where in own or not isinstance(value, types.ModuleType))
        if where not in _LARGE or name in used
    ]
    # a name that a class has of a base is as good as replaced when the class gets one of its own
    inherited = [
        (
            label,
            where,
            vars(where),
            frozenset(vars(where)),
            frozenset(n for base in where.__mro__[1:] for n in vars(base)),
        )
        for label, where in classes
    ]
    loaded, known = sys.modules, [(m.__name__, m) for _, m in modules]
    home = os.path.dirname(torch.__file__) + os.sep
    put, take, fetch, put_item = setattr, delattr, getattr, dict.__setitem__

    def look() -> list[str]:
        found = []
        for label, where, names, name, value, code in held:
            now = names.get(name)
            if now is not value and fetch(fetch(now, "__code__", None), "co_filename", "").startswith(home):
                continue  # torch.compile wraps a few itself
            if now is not value:
                found.append(label)
                put(where, name, value)
            elif code is not None and value.__code__ is not code:
                found.append(label)
                value.__code__ = code
        for label, where, names, before, below in inherited:
            if names.keys() != before:
                for name in [*((names.keys() - before) & below)]:
                    found.append(f"{label}.{name}")
                    take(where, name)
        for name, module in known:
            if loaded.get(name) is not module:
                found.append(f"the module {name}")
                put_item(loaded, name, module)
        return found

    return look


def _names(module: types.ModuleType) -> Iterator[str]:
    """Names that the functions of a module use."""
    classes = [v for v in vars(module).values() if _made_in(v, module)]
    waiting = [getattr(v, "__code__", None) for where in (module, *classes) for v in vars(where).values()]
    while waiting:
        code = waiting.pop()
        if isinstance(code, types.CodeType):
            yield from code.co_names
            waiting += code.co_consts


def _made_in(value: Any, module: types.ModuleType) -> bool:
    return isinstance(value, type) and value.__module__ == module.__name__
