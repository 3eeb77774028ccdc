"""Runs CuTe DSL programs in the simulator: their host code finds a CUDA runtime whose launches run simulated.

CuTe DSL compiles without a GPU and writes the PTX down; the host code that it makes calls a CUDA runtime, which is here
``runtime.c``, built where the program runs. Import this module before ``cutlass``.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from kcontract.dynamic.engines.simulator import kernel as decoded
from kcontract.dynamic.engines.simulator import memory, tensor_map
from kcontract.dynamic.engines.simulator.engine import lay_out
from kcontract.dynamic.engines.simulator.launch import Grid
from kcontract.dynamic.engines.simulator.options import Options

FOLDER = Path(tempfile.mkdtemp(prefix="cute"))
LIBRARY = FOLDER / "libruntime.so"
_CLUSTER = 4  # cudaLaunchAttributeClusterDimension

subprocess.run(
    [
        os.environ.get("CC", "cc"),
        "-shared",
        "-fPIC",
        "-O1",
        "-o",
        str(LIBRARY),
        str(Path(__file__).with_name("runtime.c")),
    ],
    check=True,
)
os.environ |= {
    "CUTE_DSL_LIBS": str(LIBRARY), "CUTE_DSL_ARCH": "sm_100a", "CUTE_DSL_KEEP": "ptx", "CUTE_DSL_DUMP_DIR": str(FOLDER),
    "CUTE_DSL_DISABLE_FILE_CACHING": "1",
}  # fmt: skip


def _one_device() -> None:
    """CuTe DSL's Python asks cuda-bindings how many devices there are."""
    from cuda.bindings import runtime

    none = runtime.cudaError_t.cudaSuccess
    runtime.cudaGetDeviceCount = lambda: (none, 1)
    runtime.cudaLibraryUnload = lambda library: (none,)


class _Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint32 * 16)]


class _Config(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("shared", ctypes.c_size_t),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(_Attribute)), ("count", ctypes.c_uint),
    ]  # fmt: skip


class Simulated:
    """Launches of this process; ``tensors`` are the buffers that kernels may touch."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.tensors: dict[str, Any] = {}
        self.grids: list[Grid] = []
        self.kernels: dict[int, decoded.Kernel] = {}
        self.failure: BaseException | None = None
        _one_device()
        library = ctypes.CDLL(str(LIBRARY))
        types = ctypes.POINTER(_Config), ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)
        self._launch = ctypes.CFUNCTYPE(ctypes.c_int, *types)(self._on_launch)
        library.kcontract_set(self._launch)

    def _on_launch(self, config: Any, function: int, arguments: Any) -> int:
        try:
            kernel = self.kernels.get(function)
            if kernel is None:  # kernels of one name exist in several files: the newest has just been loaded
                name = ctypes.string_at(function).decode()
                files = sorted(FOLDER.glob("*.ptx"), key=lambda f: f.stat().st_mtime_ns, reverse=True)
                text = next(t for t in (f.read_text() for f in files) if f".entry {name}(" in t)
                kernel = self.kernels[function] = decoded.decode(text)
            self.run(config.contents, kernel, arguments)
        except BaseException as error:
            self.failure = error
            return 999
        return 0

    def run(self, config: _Config, kernel: decoded.Kernel, arguments: Any) -> None:
        parameters = kernel.function.parameters
        data = [ctypes.string_at(arguments[k], q.size) for k, q in enumerate(parameters)]
        data = [tensor_map_of(d) if len(d) == tensor_map.BYTES else d for d in data]
        admitted = memory.Global()
        for label, x in self.tensors.items():
            storage = x.untyped_storage()
            admitted.add(label, storage.data_ptr(), storage.nbytes())
        cluster = (1, 1, 1)
        for k in range(config.count):
            if config.attributes[k].id == _CLUSTER:
                cluster = tuple(config.attributes[k].value[:3])
        grid = Grid(
            kernel, tuple(config.grid), tuple(config.block), cluster, config.shared + kernel.shared_static, admitted,
            lay_out(parameters, data), self.options,
        )  # fmt: skip
        self.grids.append(grid)
        grid.run()


def tensor_map_of(data: bytes) -> bytes:
    """A tensor map as CuTe DSL's host code lays it out, in the simulator's layout.

    The fields were found by compiling copies of tensors of known types, sizes, strides, boxes and swizzles.
    """
    words = [int(x) for x in np.frombuffer(data, "<u4")]
    form = words[2]
    rank, element = (form >> 4 & 7) + 1, form >> 7 & 15
    element = 11 if form >> 16 & 1 else 13 if element == 11 else element
    stride = [(words[3 + k] + ((words[7] >> 4 * k & 15) << 32)) << 4 for k in range(rank - 1)]
    return tensor_map.encode(
        words[0] + (words[1] << 32), element, [x + 1 for x in words[8 : 8 + rank]], stride,
        [x + 1 for x in data[55 : 55 + rank]], form >> 13 & 7, False,
    )  # fmt: skip


if "cutlass" in sys.modules:
    raise ImportError("import bridge before cutlass: it sets the environment that CuTe DSL reads")
