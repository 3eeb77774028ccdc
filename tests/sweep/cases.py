"""What the sweep's programs share: a table of named calls, each run forward and backward, failures kept with a reason.

A sweep program is an ordinary GPU program. It is started through ``kcontract run --engine compile`` (see
``__main__.py``), knows nothing of it, and writes one JSON line a call to the file it is given.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch

Case = Callable[[], Any]
BF16 = torch.bfloat16


def t(*shape: int, dtype: torch.dtype = BF16, grad: bool = True) -> torch.Tensor:
    """A random tensor on the GPU."""
    return torch.randn(*shape, device="cuda").to(dtype).requires_grad_(grad)


def ids(*shape: int, high: int) -> torch.Tensor:
    """Random integers below ``high`` on the GPU."""
    return torch.randint(0, high, shape, device="cuda")


def backward(result: Any) -> None:
    """Backward from every output that has a gradient, as one sum."""
    outputs = result if isinstance(result, (tuple, list)) else [result]
    total = None
    for output in outputs:
        if isinstance(output, torch.Tensor) and output.requires_grad and output.is_floating_point():
            part = output.float().sum()
            total = part if total is None else total + part
    if total is not None:
        total.backward()


def run(
    cases: dict[str, Case], names: Iterable[str], log: str, public: Iterable[str], forward_only: Collection[str] = ()
) -> None:
    """Run the named cases (all when there are none) in order; a line in ``log`` before each starts and after it ended.

    The first line lists what the library offers (``public``) and what there is a case for.
    """
    _line(log, public=sorted(public), cases=list(cases))
    for name in names or cases:
        start = time.perf_counter()
        _line(log, case=name, state="started")
        try:
            with torch.set_grad_enabled(name not in forward_only):
                backward(cases[name]())
            _line(log, case=name, state="ended", seconds=time.perf_counter() - start)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            text = next((line for line in str(error).splitlines() if line.strip()), "")
            reason = (
                f"{type(error).__name__}: {text[:300]} ({frame.filename.rsplit('site-packages/')[-1]}:{frame.lineno})"
            )
            _line(log, case=name, state="failed", seconds=time.perf_counter() - start, reason=reason)


def _line(log: str, **fields: object) -> None:
    with open(log, "a") as file:
        file.write(json.dumps(fields) + "\n")
