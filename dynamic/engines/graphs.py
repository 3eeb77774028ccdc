"""CUDA graphs without a GPU: what a program calls while a graph is captured is kept, and done at each replay.

As on a GPU a launch or an operation of torch does nothing while it is captured: a kernel is not run, an operation that
writes into its arguments leaves them as they were, and what a new tensor holds is given only by the replay, which
writes into the same tensors each time. Views are taken at once. Not covered: capture of several streams at a time,
host code that asks for a value within a capture (it is an error on a GPU, here it meets a stale value).

The drivers ask ``captures`` whether a launch is to be kept; torch is imported only when a graph is captured.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

_active: list[CUDAGraph] = []


def captures(launch: Callable[[], None]) -> bool:
    """Whether a graph is being captured; it has then kept ``launch``."""
    if _active:
        _active[-1].steps.append(launch)
    return bool(_active)


def capturing() -> bool:
    """Whether a graph is being captured."""
    return bool(_active)


class CUDAGraph:
    """Stands for ``torch.cuda.CUDAGraph``."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.steps: list[Callable[[], None]] = []
        self._operations = contextlib.ExitStack()

    def capture_begin(self, *args: object, **kwargs: object) -> None:
        """From here on calls are kept instead of done."""
        self.reset()
        self._operations.enter_context(_operations(self.steps))
        _active.append(self)

    def capture_end(self) -> None:
        """Calls are done again."""
        _active.remove(self)
        self._operations.close()

    def replay(self) -> None:
        """Do what was captured, in its order."""
        import torch

        with torch.no_grad():
            for step in self.steps:
                step()

    def reset(self) -> None:
        """Forget what was captured."""
        self.steps.clear()

    def instantiate(self, *args: object) -> None:
        """Nothing to prepare."""

    enable_debug_mode = debug_dump = instantiate

    def pool(self) -> tuple[int, int]:
        """A handle for ``torch.cuda.graph(pool=...)``."""
        return (0, 0)


@contextlib.contextmanager
def capture(cuda_graph: CUDAGraph, *args: object, **kwargs: object) -> Iterator[None]:
    """Stands for ``torch.cuda.graph``."""
    cuda_graph.capture_begin()
    try:
        yield
    finally:
        cuda_graph.capture_end()


def _operations(steps: list[Callable[[], None]]) -> Any:
    """A mode that appends each operation of torch to ``steps``."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    def tensors(tree: object) -> list[torch.Tensor]:
        return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]

    class Operations(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            schema = func._schema
            if schema.is_mutable:
                pairs = [*zip(schema.arguments, args, strict=False)]
                pairs += [(a, kwargs[a.name]) for a in schema.arguments if a.name in kwargs]
                written = tensors([value for a, value in pairs if a.alias_info and a.alias_info.is_write])
                before = [tensor.clone() for tensor in written]
                out = func(*args, **kwargs)
                steps.append(lambda: func(*args, **kwargs))
                for tensor, old in zip(written, before, strict=True):
                    tensor.copy_(old)
                return out
            out = func(*args, **kwargs)
            views = any(r.alias_info for r in schema.returns)
            if tensors(out) and not views and not schema.name.startswith("aten::empty"):

                def step() -> None:
                    for kept, new in zip(tensors(out), tensors(func(*args, **kwargs)), strict=True):
                        kept.copy_(new)

                steps.append(step)
            return out

    return Operations()
