"""What a call leaves behind in memory and on the device: changed tensors, outputs that meet, kernels that ran."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Sequence
from typing import Any

import torch

from kcontract.dynamic.sandbox import watch

_PACKAGES = os.path.dirname(os.path.dirname(os.path.realpath(torch.__file__)))
_KNOWN = ("/usr/", "/lib/", "/lib64/", sys.base_prefix, sysconfig.get_path("stdlib"),
          *(os.path.join(_PACKAGES, name, "") for name in ("torch", "triton", "nvidia", "numpy")))  # fmt: skip
#: What Triton compiles to launch kernels with.
_STUBS = re.compile(r"__triton_launcher|cuda_utils")


def native_code() -> frozenset[str]:
    """Shared objects that this process has mapped, but for Python's, torch's, Triton's and the system's: a candidate
    that brings kernels of its own (a compiled extension, cupy, cuda-python) has to load one."""
    found = set()
    with open("/proc/self/maps") as file:
        for line in file:
            path = line.split(maxsplit=5)[-1].strip()
            if ".so" in path and not path.startswith(_KNOWN) and not _STUBS.search(path):
                found.add(path)
    return frozenset(found)


def kernels(profiler: Any) -> list[str]:
    """Names of the device kernels that ran, each once; one of torch's own at least, unless the device tells nothing."""
    if profiler is None:
        return []
    torch.ones(1, device="cuda")
    torch.cuda.synchronize()
    profiler.stop()
    return sorted({e.name[:200] for e in profiler.events() if e.device_type is torch.profiler.DeviceType.CUDA})[:256]


def meeting(outputs: Sequence[Any]) -> list[tuple[int, int]]:
    """Pairs of outputs that have an element in common; two views of one buffer need not."""
    places = [watch.storage_of(t) if t.numel() else 0 for t in outputs]
    return [
        (k, j)
        for j, place in enumerate(places)
        for k in range(j)
        if place and place == places[k] and _meet(outputs[k], outputs[j])
    ]


def _meet(a: Any, b: Any) -> bool:
    if a.dtype is not b.dtype or a.layout is not torch.strided:
        return True
    marks = torch.zeros(a.untyped_storage().nbytes() // a.itemsize, dtype=torch.bool)
    one, two = (
        marks.as_strided([s if step else 1 for s, step in zip(t.shape, t.stride(), strict=True)], t.stride(),
                         t.storage_offset()) for t in (a, b)
    )  # fmt: skip
    one.fill_(True)
    return bool(two.any())


def differs(now: Any, before: Any) -> bool:
    """Whether a tensor no longer holds the bytes that it did."""
    if now.device.type == "meta" or now.numel() == 0:
        return False
    return not torch.equal(_bits(now.detach()), _bits(before))


def _bits(tensor: Any) -> Any:
    return tensor.contiguous().unsqueeze(-1).view(torch.uint8).reshape(-1)  # a lone element may have any stride
