"""Kernels that torch restores without ``triton.compile``: FX-graph-cache hits, and results of compile workers.

Both come as pickled compile results, and each is turned into a launcher by its ``make_launcher`` before it can run:
there they are looked at. A result carries the compiled kernel itself or, for torch's static launcher, the place of
its cubin in Triton's cache folder, beside which the other files lie. Seen in torch 2.11 and 2.13. Kernels launched from
C++ (``cpp_wrapper``, AOTInductor packages) make no launcher: on their first compile Triton's listener sees them,
later nobody does.
"""

from __future__ import annotations

import functools
import glob
import json
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kcontract.hook import active

if TYPE_CHECKING:
    from kcontract.hook.observer import Observer


def install(heuristics: ModuleType) -> None:
    """Wrap ``make_launcher`` of both kinds of compile results of ``triton_heuristics``."""
    if watcher := active():
        for name in ("TritonCompileResult", "StaticTritonCompileResult"):
            kind = getattr(heuristics, name, None)
            if kind is not None and "make_launcher" in vars(kind):
                kind.make_launcher = _watched(kind.make_launcher, watcher)


def _watched(make_launcher: Any, watcher: Observer) -> Any:
    @functools.wraps(make_launcher)
    def wrapper(result: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            refusal = _restored(result, watcher)
        except Exception as error:
            refusal = None
            watcher.console.notice(f"cannot look at kernels of this torch version: {type(error).__name__}: {error}")
        if refusal is not None:
            raise refusal
        return make_launcher(result, *args, **kwargs)

    return wrapper


def _restored(result: Any, watcher: Observer) -> Exception | None:
    kernel = result.kernel
    texts = getattr(kernel, "asm", None)
    if texts is not None:  # a whole kernel of Triton's
        return watcher.examine({**kernel.metadata._asdict(), "hash": kernel.hash}, texts)
    files: dict[str, str] = {}
    metadata = {
        "hash": kernel.hash,
        "name": kernel.name,
        "target": (result.compile_meta.get("device_type"), result.compile_meta.get("cc")),
        "shared": kernel.shared,
        "num_warps": kernel.num_warps,
    }
    with suppress(Exception):  # torch says itself what is wrong with its cache, right after
        files = _files(result)
        metadata |= json.loads(Path(files[f"{kernel.name}.json"]).read_bytes())
    return watcher.examine(metadata, files)


def _files(result: Any) -> dict[str, str]:
    """Triton's files beside the cubin. Torch bundles only what it needs, so any of them may be missing."""
    if not result.kernel.cubin_path:
        result.reload_cubin_path()
    cubin = Path(result.kernel.cubin_path)
    return {path.name: str(path) for path in cubin.parent.glob(f"{glob.escape(cubin.stem)}.*")}
