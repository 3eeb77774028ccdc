"""TritonBench-T problems (thunlp/TritonBench): a torch function and, below a line of ``#``, its ``test_NAME``.

The candidate is a file with a function of the same name. The inputs are those that ``test_NAME`` calls the function
with: the first call that has a tensor. TritonBench-G, whose references are Triton kernels themselves, has no reference
that float64 could run.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kcontract.dynamic.problems import guard, source
from kcontract.dynamic.problems.problem import Entry, Problem
from kcontract.errors import InputError
from kcontract.model import Contract


def subject(path: str) -> str | None:
    """The function that a TritonBench file is about: the one that has a ``test_`` of its name."""
    names = source.defined(source.parse(path))
    return next(
        (n.removeprefix("test_") for n in names if n.startswith("test_") and n.removeprefix("test_") in names), None
    )


def load(candidate: str, reference: str, name: str | None = None) -> Problem:
    """The problem of a reference file. Raises ``InputError`` where the candidate has no such function."""
    function = subject(reference)
    if function is None:
        raise InputError("has no test_NAME for a function NAME, which a TritonBench file has", path=reference)
    wanted = name or function
    names = source.defined(source.parse(candidate))
    if wanted not in names:
        raise InputError(f"defines no {wanted}; it defines {', '.join(names) or 'nothing'}", path=candidate)
    module = source.module_of(reference, [function, f"test_{function}"])
    original = getattr(module, function)
    return Problem(
        name=wanted,
        candidate=Entry(candidate, wanted, "function"),
        reference=guard.reference(lambda: original),
        inputs=guard.inputs(lambda: _called_with(module, function, original, reference)),
        contract=Contract(reference=f"{reference}:{function}"),
        origin={"format": "tritonbench", "candidate": candidate, "reference": reference, "name": wanted},
    )


def _called_with(module: Any, name: str, original: Callable[..., Any], path: str) -> Sequence[Any]:
    """Arguments of the test's first call with a tensor, defaults filled in, in the order of the signature."""
    import torch

    signature = inspect.signature(original)
    calls: list[list[Any]] = []

    def record(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = list(bound.arguments.values())
        if any(isinstance(v, torch.Tensor) for v in values):
            calls.append(values)
        return original(*args, **kwargs)

    setattr(module, name, record)
    try:
        with _on_cpu():
            getattr(module, f"test_{name}")()
    except Exception as error:
        if not calls:
            raise InputError(f"test_{name} fails: {type(error).__name__}: {error}", path=path) from None
    finally:
        setattr(module, name, original)
    if not calls:
        raise InputError(f"test_{name} never calls {name} with a tensor", path=path)
    return calls[0]


@contextlib.contextmanager
def _on_cpu() -> Iterator[None]:
    """Tensors asked for on ``cuda`` are made on the CPU: the bench moves them where they are needed."""
    import torch
    from torch.overrides import TorchFunctionMode

    class OnCpu(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = dict(kwargs or {})
            if str(kwargs.get("device", "")).startswith("cuda"):
                kwargs["device"] = "cpu"
            if function is torch.Tensor.cuda:
                return args[0]
            args = tuple("cpu" if isinstance(a, str) and a.startswith("cuda") else a for a in args)
            return function(*args, **kwargs)

    with OnCpu():
        yield
