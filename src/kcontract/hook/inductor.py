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
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kcontract.hook import active

if TYPE_CHECKING:
    from kcontract.hook.observer import Observer
    from kcontract.ir.artifact import Artifact


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
        if refusal := _restored(result, watcher):
            raise refusal
        return make_launcher(result, *args, **kwargs)

    return wrapper


def _restored(result: Any, watcher: Observer) -> Exception | None:
    kernel = result.kernel
    texts = getattr(kernel, "asm", None)
    if texts is not None:  # a whole kernel of Triton's
        metadata = {**kernel.metadata._asdict(), "hash": kernel.hash}
        return watcher.examine(metadata, lambda: _from_texts(metadata, texts))
    target = (result.compile_meta.get("device_type"), result.compile_meta.get("cc"))
    metadata = {"hash": kernel.hash, "name": kernel.name, "target": target, "shared": kernel.shared}
    return watcher.examine(metadata, lambda: _from_folder(result, metadata))


def _from_texts(metadata: Mapping[str, Any], texts: Mapping[str, Any]) -> Artifact:
    from kcontract.ir.artifact import Artifact
    from kcontract.ir.target import Target

    return Artifact(
        kernel=str(metadata["name"]),
        target=Target.parse(metadata["target"]),
        ttgir=texts.get("ttgir"),
        ptx=texts.get("ptx"),
        cubin=texts.get("cubin"),
        metadata=metadata,
        origin="a torch.compile cache",
    )


def _from_folder(result: Any, metadata: Mapping[str, Any]) -> Artifact:
    """The files beside the cubin. Torch bundles only what it needs, so any of them may be missing."""
    from kcontract.hook.observer import read_artifact

    if not result.kernel.cubin_path:
        result.reload_cubin_path()
    cubin = Path(result.kernel.cubin_path)
    files = {path.name: str(path) for path in cubin.parent.glob(f"{glob.escape(cubin.stem)}.*")}
    text = files.get(f"{cubin.stem}.json")
    known = json.loads(Path(text).read_bytes()) if text else {}
    return read_artifact({**metadata, **known}, files)
